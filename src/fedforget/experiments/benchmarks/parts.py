"""The parts of the benchmark, each from a `Run` to plain figures, and the file that keeps them: one JSON file for each
device, each part with the circumstances it was measured in."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fedforget.data.files import write_json
from fedforget.errors import InputError
from fedforget.experiments.benchmarks.alone import NoiseWorld, measured_alone
from fedforget.experiments.benchmarks.measuring import Run, Work, in_turns, ratio
from fedforget.experiments.configurations import ASKING_CLIENT
from fedforget.experiments.scenario import Bench, ScenarioSpec
from fedforget.federation.rounds import train
from fedforget.federation.tasks import Train
from fedforget.methods import Forgetting
from fedforget.params import weight_count

Results = dict[str, Any]
Progress = Callable[[int, int, str], None]
"""(parts done, parts in all, what is going on)."""
SHORT = 3
"""So often in a turn is a request timed, which is short beside Retrain."""
COMPARED = {"retrain": "default", "sga": "ewc", "sga plain": "plain", "fedquit": "default"}
"""What a request is held against, with the preset of each."""


def request(run: Run) -> dict[str, Any]:
    """A whole request, by `overwrite`, against other methods and against one epoch over the target: MNIST on a CPU,
    CIFAR-10 on a GPU, one class of a client."""
    dataset = "digits" if run.quick else "cifar10" if run.cuda else "mnist"
    scenario = Bench(replace(run, dataset=dataset)).scenario(ScenarioSpec((3,), 0, poisoned=False))
    federation, schedule = scenario.federation, scenario.schedule
    run.say("training the model that forgets")
    state = train(federation, scenario.initial, schedule)
    target = federation.check(scenario.requests)[ASKING_CLIENT].target
    share = target / len(federation.client(ASKING_CLIENT).samples)
    epoch = Train(seed=0, threads=run.threads, round=0, share=share, batch_size=schedule.batch_size, purpose="bench")

    def forgetting(method: str, preset: str) -> Callable[[], Forgetting]:
        return lambda: scenario.forget(method, preset, state=state)

    works = {
        "epoch": Work(lambda: list(federation.ask(epoch, state, [ASKING_CLIENT])), SHORT),
        "request": Work(forgetting("overwrite", "default"), SHORT),
        **{name: Work(forgetting(name.split()[0], preset)) for name, preset in COMPARED.items()},
    }
    stages: list[dict[str, float]] = []
    evaluations: dict[str, float] = {}

    def seen(name: str, result: Any) -> None:
        run.say(f"{name} done")
        if isinstance(result, Forgetting):
            evaluations[name] = result.cost.gradient_evaluations
            if name == "request":
                stages.append(result.cost.seconds)

    seconds = in_turns(works, run.repeats, run.device, seen)
    median_stages = {stage: median([taken[stage] for taken in stages]) for stage in stages[0]}
    return {
        "dataset": dataset, "parameters": weight_count(federation.model), "clients": len(federation.clients),
        "rounds": schedule.rounds, "target": target,
        "samples": sum(len(federation.client(k).samples) for k in federation.clients), "seconds": seconds,
        "stages": {"request": median_stages}, "gradient_evaluations": evaluations,
    }  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """What grows, from one request on noise to the next."""

    title: str
    base: NoiseWorld
    values: Sequence[int]
    quick: Sequence[int]
    changes: Callable[[int], dict[str, Any]]
    """What a value stands for in the world."""


TINY: dict[str, Any] = {
    "side": 8, "clients": 2, "target": 8, "retained": 24, "others": 60, "requests": 1,
    "settings": {"sketch_rows": 4, "sketch_samples": 16},
}  # fmt: skip
AXES = {
    "clients": Axis(
        "More clients, who share the same samples", NoiseWorld(requests=1, others=58_500), (4, 10, 100, 1000), (2, 3),
        lambda clients: {"clients": clients},
    ),
    "parameters": Axis(
        "Larger networks (MLP, 50 rows)",
        NoiseWorld(target=256, retained=1000, others=3000, requests=1,
                   settings={"sketch_rows": 50, "sketch_samples": 400}),
        (113, 670, 1_850, 4_080), (4, 8), lambda hidden: {"hidden": hidden},
    ),
    "rows": Axis(
        "More rows in the sketch of 4,000 samples", NoiseWorld(retained=4000), (10, 50, 100, 200, 500, 1000), (2, 4),
        lambda rows: {"settings": {"sketch_rows": rows, "sketch_samples": 4000}},
    ),
    "target": Axis(
        "A larger target", NoiseWorld(retained=4000), (16, 64, 256, 1024, 4096), (4, 8),
        lambda target: {"target": target},
    ),
}  # fmt: skip


def growth(name: str, run: Run) -> dict[str, Any]:
    """Requests along one axis: each point in processes of its own, all points in turns. Networks are named by their
    parameters."""
    axis = AXES[name]
    base = replace(axis.base, device=run.device, threads=run.threads, **(TINY if run.quick else {}))
    values = axis.quick if run.quick else axis.values
    found: dict[int, list[dict[str, Any]]] = {value: [] for value in values}
    for turn in range(run.repeats):
        for value, measured in found.items():
            run.say(f"turn {turn + 1} of {run.repeats}, {name} {value}")
            measured.append(measured_alone(replace(base, **axis.changes(value))))
    points = []
    for value, measured in found.items():
        requests, epochs = ([x for one in measured for x in one[k]] for k in ("request", "epoch"))
        points.append(
            {name: measured[0].get(name, value), "request": median(requests), "epoch": median(epochs),
             "over_epoch": ratio(requests, epochs),
             "peak_bytes": median([one["peak_bytes"] for one in measured]),
             **{kind: measured[0][kind] for kind in ("parameters", "bytes", "stored_bytes", "gradient_evaluations")}}
        )  # fmt: skip
    return {"points": points}


PARTS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "request": request,
    **{name: partial(growth, name) for name in AXES},
}


def run_parts(names: Sequence[str], run: Run, out: Path | None = None, progress: Progress | None = None) -> Results:
    """The results of the parts `names` (all of them where none is named), beside what `out` already holds. `out` is
    written after each part: what an interruption leaves is whole."""
    for name in names:
        if name not in PARTS:
            raise InputError(f"The benchmark has no part '{name}'; choose one of {', '.join(PARTS)}.")
    chosen, report = [name for name in PARTS if not names or name in names], progress or (lambda *_: None)
    results = read_results(out) if out is not None and out.exists() else {}
    torch.set_num_threads(run.threads)
    for done, name in enumerate(chosen):
        tell = replace(run, say=lambda what, d=done, n=name: report(d, len(chosen), f"{n}: {what}"))  # type: ignore[misc]
        tell.say("begins")
        results[name] = {"run": run.circumstances(), **PARTS[name](tell)}
        if out is not None:
            write_json(out, results)
    report(len(chosen), len(chosen), "done")
    return results


def read_results(path: Path) -> Results:
    try:
        found = json.loads(path.read_text())
        if not (isinstance(found, dict) and all(isinstance(part, dict) and "run" in part for part in found.values())):
            raise ValueError
    except (OSError, ValueError):
        raise InputError(f"{path} holds no results of the benchmark; choose another --out.") from None
    return found
