"""The main job, small, on embedded data: train, receive a request, forget, audit, report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedforget.data.backdoor import Backdoor
from fedforget.errors import DivergedError
from fedforget.federation.observed import Progress, silent
from fedforget.federation.rounds import Schedule
from fedforget.requests import ErasureRequest
from fedforget.runs.audit import audit_run
from fedforget.runs.config import RunConfig, default_trigger
from fedforget.runs.folder import Run
from fedforget.runs.forget import forget_run
from fedforget.runs.record import Audit
from fedforget.runs.train import train_run

DEMO_REQUEST = ErasureRequest.of_class(client=0, label=3)


def demo_config() -> RunConfig:
    """Four clients with scikit-learn's digits; client 0's threes carry a trigger and a wrong label."""
    schedule = Schedule(rounds=20, lr=0.05, batch_size=16, threads=1)  # tensors this small gain nothing from a second
    dataset = RunConfig().load_dataset()
    backdoor = Backdoor.draw(DEMO_REQUEST, default_trigger(dataset), len(dataset.classes), schedule.seed)
    return RunConfig(schedule=schedule, backdoor=backdoor)


def demo_run(folder: Path, *, progress: Progress = silent, say: Callable[[str], None] = print) -> Audit:
    """The main job, small: four clients with scikit-learn's digits; client 0's threes carry a trigger and a wrong
    label, and client 0 withdraws them."""
    folder, config = Path(folder), demo_config()
    assert config.backdoor is not None
    if (folder / "run.json").exists() and Run(folder).config == config:
        say(f"1  Going on with the federation in {folder}.")
        train_run(folder, progress=progress)
    else:
        say("1  Training: 4 clients, 1,437 digits; client 0's threes carry a trigger and the wrong label "
            f"{config.backdoor.flipped_label}.")  # fmt: skip
        train_run(folder, config, progress=progress)
    say("2  A request arrives: client 0 withdraws its class 3.")
    for method, preset in (("overwrite", "default"), ("fedaf", "paper"), ("fedaf-c", "default")):
        try:
            forget_run(folder, [DEMO_REQUEST], method, preset, progress=progress)
            say(f"3  {method} ({preset}) has served it.")
        except DivergedError as error:
            say(f"3  {method} ({preset}): {error}")
    say("4  Auditing against three oracles: models trained afresh without the target.")
    return audit_run(folder, [DEMO_REQUEST], level="quick", progress=progress)
