"""The main job, small, on embedded data: train, receive two requests, climb the ladder, audit both, report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedforget.audit.verdict import GONE
from fedforget.data.backdoor import Backdoor
from fedforget.federation.observed import Progress, silent
from fedforget.federation.rounds import Schedule
from fedforget.methods import LADDER
from fedforget.requests import ErasureRequest
from fedforget.runs.audit import audit_run
from fedforget.runs.climb import Rung
from fedforget.runs.config import RunConfig, default_trigger
from fedforget.runs.folder import Run
from fedforget.runs.forget import branch_folder, forget_run
from fedforget.runs.record import Audit, Figures, Result
from fedforget.runs.told import end_sentence, tried_sentence, untold
from fedforget.runs.train import train_run

POISONED = ErasureRequest.of_class(client=0, label=3)
HONEST = ErasureRequest.of_class(client=1, label=7)
ALONE = "overwrite"
"""The rung that the poisoned request is also served by alone."""
REPORTS = {POISONED: "poisoned.html", HONEST: "honest.html"}


def demo_config() -> RunConfig:
    """Four clients with scikit-learn's digits; client 0's threes carry a trigger and a wrong label."""
    schedule = Schedule(rounds=20, lr=0.05, batch_size=16, threads=1)  # tensors this small gain nothing from a second
    dataset = RunConfig().load_dataset()
    backdoor = Backdoor.draw(POISONED, default_trigger(dataset), len(dataset.classes), schedule.seed)
    return RunConfig(schedule=schedule, backdoor=backdoor)


def demo_run(folder: Path, *, progress: Progress = silent, say: Callable[[str], None] = print) -> list[Audit]:
    """Train four clients with scikit-learn's digits, serve a poisoned and an honest request from the same model, each
    on the ladder, and audit both. What `say` hears of a step begins with its number; what it hears within, with a
    space."""
    folder, config = Path(folder), demo_config()
    assert config.backdoor is not None
    if (folder / "run.json").exists() and Run(folder).config == config:
        say(f"1  Going on with the federation in {folder}.")
        train_run(folder, progress=progress)
    else:
        say("1  Training: 4 clients, 1,437 digits. Client 0's threes carry a trigger and the wrong label "
            f"{config.backdoor.flipped_label}.")  # fmt: skip
        train_run(folder, config, progress=progress)
    say("2  Client 0 withdraws its threes, which are poisoned. The ladder: overwrite, else rebuild, else retrain.")
    _serve(folder, POISONED, progress, say)
    forget_run(folder, [POISONED], ALONE, progress=progress)
    say(f"   For comparison: {ALONE}, which is our FedAF, by itself.")
    say("3  Client 1 withdraws its sevens, which are honest: others hold digits like them.")
    _serve(folder, HONEST, progress, say)
    say("4  Auditing both, against three oracles each: models trained afresh without the target.")
    return [
        audit_run(folder, [request], level="quick", progress=progress, report=report)
        for request, report in REPORTS.items()
    ]


def _serve(folder: Path, request: ErasureRequest, progress: Progress, say: Callable[[str], None]) -> None:
    told: list[str] = []

    def tell(sentence: str) -> None:
        told.append(sentence)
        say(f"   {sentence}")

    served = forget_run(folder, [request], progress=progress, say=tell)
    assert served is not None, "the training is over"
    result = Result.read(served)
    tried = tried_sentence(result.rungs, result.cost, result.retrain_forecast)
    for line in [*untold(result.rungs, told), tried]:
        say(f"   {line}")


def where_it_ended(folder: Path, audit: Audit) -> list[str]:
    """What became of the request that was audited, what that means, and what the audit says of it beside Retrain."""
    retrain, row = audit.row("retrain:default"), audit.row(f"{LADDER}:default")
    assert row.verdict is not None
    lines = [
        f"{audit.target}: {end_sentence([Rung.from_json(rung) for rung in row.rungs or ()])}",
        f"   {_known(row)} of it is recognised as trained; Retrain, which never saw it, is at {_known(retrain)}.",
        f"   The audit says: {row.verdict['word']}. {row.verdict['reasons'][0]}",
    ]
    if row.verdict["word"] not in GONE:
        retrained = branch_folder(Run(folder), audit.requests, "retrain", "default")
        lines.append(f"   Whoever must be sure takes the retrained model, which is exact: {retrained}")
    return lines


def _known(row: Figures) -> str:
    return "–" if row.now is None or row.now.bd_acc is None else f"{row.now.bd_acc:.1f} %"
