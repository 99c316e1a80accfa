"""The parts of the benchmark, each a function from `Run` to plain figures."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from fedforget.data.own import from_arrays
from fedforget.experiments.benchmarks.measuring import Run, Spec, Work, alone, alone_in_turns, in_turns, median, ratio
from fedforget.experiments.benchmarks.row_gradients import WAYS, RowWorld
from fedforget.experiments.benchmarks.worlds import NoiseWorld, TrainedWorld
from fedforget.experiments.configurations import ASKING_CLIENT
from fedforget.federation.cost import Meter
from fedforget.federation.local import LocalFederation
from fedforget.federation.tasks import Train
from fedforget.methods import Forgetting, forget
from fedforget.params import state_of, weight_count

SHORT = 3
"""So often in a turn is a request timed, which is short beside Retrain."""
REQUEST = "overwrite:default"
COMPARED = {"retrain": "retrain", "sga": "sga", "sga plain": "sga:plain", "fedquit": "fedquit"}
"""What a request is held against, with the method and preset of each."""


def request(run: Run) -> dict[str, Any]:
    """A whole request, by `overwrite`, against other methods and against one epoch over the target: MNIST on a CPU,
    CIFAR-10 on a GPU, one class of a client."""
    world = TrainedWorld.make("cifar10" if run.cuda else "mnist", run.device, run.threads, run.quick)
    federation, schedule = world.federation, world.schedule
    run.say("training the model that forgets")
    state = world.train()
    target, own = world.target, len(federation.client(ASKING_CLIENT).samples)
    epoch = Train(
        seed=0, threads=run.threads, round=0, share=target / own, batch_size=schedule.batch_size, purpose="bench"
    )

    def forgetting(method: str = REQUEST, **settings: Any) -> Work:
        name, _, preset = method.partition(":")
        return Work(lambda: forget(federation, state, world.request, schedule, name, preset or None, **settings))

    works = {
        "epoch": Work(lambda: list(federation.ask(epoch, state, [ASKING_CLIENT]))),
        "request": forgetting(),
        **{f"request, s = {s}": forgetting(sketch_rows=s) for s in (50, 200)},
        **{name: forgetting(method) for name, method in COMPARED.items()},
    }
    works = {name: work if name in COMPARED else replace(work, times=SHORT) for name, work in works.items()}
    stages: dict[str, list[dict[str, float]]] = {}
    evaluations: dict[str, float] = {}

    def seen(name: str, result: Any) -> None:
        run.say(f"{name} done")
        if isinstance(result, Meter):
            evaluations[name] = result.cost.gradient_evaluations
        if isinstance(result, Forgetting):
            stages.setdefault(name, []).append(result.cost.seconds)
            evaluations[name] = result.cost.gradient_evaluations

    seconds = in_turns(works, run.repeats, run.device, seen)
    with tempfile.TemporaryDirectory(prefix="fedforget-bench-") as folder:
        model = Path(folder) / "model.pt"
        torch.save({name: tensor.cpu() for name, tensor in state.items()}, model)
        run.say("the first request of a new process")
        spec = {"configuration": world.configuration, "device": run.device, "threads": run.threads,
                "quick": run.quick, "model": str(model), "method": REQUEST}  # fmt: skip
        cold = [alone("cold_request", spec)["seconds"] for _ in range(run.repeats)]
    return {
        "dataset": "noise" if run.quick else world.configuration, "parameters": weight_count(federation.model),
        "clients": len(federation.clients), "rounds": schedule.rounds, "target": target,
        "samples": sum(len(federation.client(k).samples) for k in federation.clients), "seconds": seconds,
        "stages": {name: _median_stages(found) for name, found in stages.items()},
        "forgetting": {
            name: [median([s["forgetting"] for s in found[i : i + SHORT]]) for i in range(0, len(found), SHORT)]
            for name, found in stages.items() if "request" in name
        },
        "gradient_evaluations": evaluations, "cold": cold,
    }  # fmt: skip


def _median_stages(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median([stages[name] for stages in found]) for name in found[0]}


def sketch(run: Run) -> dict[str, Any]:
    """The sketch against one training epoch over the same samples, and against per-sample gradients."""
    if run.quick:
        cases = [RowWorld("cnn", (1, 8, 8), 32, 4, batch=8)]
    else:
        small, large = ((1, 28, 28), (3, 32, 32))
        many = (3200, 50) if run.cuda else (64, 1)
        cases = [
            RowWorld("cnn", small, 4800, 75), RowWorld("cnn", small, 1000, 75), RowWorld("resnet10", large, *many),
            *([RowWorld("resnet10", large, 1500, 150)] if run.cuda else []),
        ]  # fmt: skip
    rows = []
    for number, case in enumerate(cases):
        world = RowWorld(**{**asdict(case), "device": run.device, "threads": run.threads})
        run.say(f"case {number + 1} of {len(cases)}: {world.name}, {world.samples} samples, {world.rows} rows")
        samples, model, inputs = world.made()
        federation = _one_client(world)
        state = state_of(federation.model)
        epoch = Train(seed=0, threads=run.threads, round=0, batch_size=world.batch)
        works = {"epoch": Work(lambda f=federation, t=epoch, s=state: list(f.ask(t, s)))}  # type: ignore[misc]
        for way, made in WAYS.items():
            works[way] = Work(lambda m=made, a=(samples, model, inputs, world): m(*a))  # type: ignore[misc]
        seconds = in_turns(works, run.repeats, run.device)
        peaks = {way: alone("rows_of_the_jacobian", {**asdict(world), "way": way})["peak_bytes"] for way in WAYS}
        rows.append(
            {**asdict(world), "parameters": weight_count(model), "seconds": seconds, "peak_bytes": peaks,
             "sketch_bytes": 4 * world.rows * weight_count(model)}
        )  # fmt: skip
    return {"cases": rows}


def _one_client(world: RowWorld) -> LocalFederation:
    """A federation of one client who trains on exactly the samples that are sketched."""
    samples, model, _ = world.made()
    data = from_arrays(samples.features.cpu(), samples.labels, samples.features[:10].cpu(), samples.labels[:10])
    return LocalFederation(data, [torch.arange(len(samples))], model, device=world.device)


def _scaling(run: Run, axis: str, worlds: Mapping[float, NoiseWorld]) -> dict[str, Any]:
    """Requests on noise along one axis: each point in processes of its own, all points in turns."""
    specs: list[Spec] = [asdict(world) | {"device": run.device, "threads": run.threads} for world in worlds.values()]
    found = alone_in_turns("noise_request", specs, run)
    points = []
    for value, measured in zip(worlds, found, strict=True):
        requests = [seconds for one in measured for seconds in one["request"]]
        epochs = [seconds for one in measured for seconds in one["epoch"]]
        points.append(
            {axis: value, "request": median(requests), "epoch": median(epochs), "over_epoch": ratio(requests, epochs),
             "stages": _median_stages([stages for one in measured for stages in one["stages"]]),
             "peak_bytes": median([one["peak_bytes"] for one in measured]),
             **{name: measured[0][name] for name in ("parameters", "bytes", "stored_bytes", "gradient_evaluations")}}
        )  # fmt: skip
    return {"axis": axis, "points": points}


def clients(run: Run) -> dict[str, Any]:
    """More clients who share the same samples; target and asking client stay as they are."""
    counts, others = ((2, 3), 60) if run.quick else ((4, 10, 100, 1000), 58_500)
    base = _tiny() if run.quick else NoiseWorld(requests=1)
    return _scaling(run, "clients", {k: _with(base, clients=k, others=others) for k in counts})


def parameters(run: Run) -> dict[str, Any]:
    """Larger MLPs under a sketch of 50 rows."""
    hidden = (4, 8) if run.quick else (113, 670, 1_850, 4_080)
    settings = {"sketch_rows": 4 if run.quick else 50, "sketch_samples": 40 if run.quick else 400}
    base = _tiny() if run.quick else NoiseWorld(target=256, retained=1000, others=3000, requests=1)
    worlds = [_with(base, hidden=h, settings=settings) for h in hidden]
    return _scaling(run, "parameters", {weight_count(w.federation().model): w for w in worlds})


def rows(run: Run) -> dict[str, Any]:
    """More rows s in the sketch of the same samples."""
    counts, base = ((2, 4), _tiny()) if run.quick else ((10, 50, 100, 200, 500, 1000), NoiseWorld(retained=4000))
    samples = 16 if run.quick else 4000
    return _scaling(
        run, "rows", {s: _with(base, settings={"sketch_rows": s, "sketch_samples": samples}) for s in counts}
    )


def target(run: Run) -> dict[str, Any]:
    """A larger target."""
    sizes, base = ((4, 8), _tiny()) if run.quick else ((16, 64, 256, 1024, 4096), NoiseWorld(retained=4000))
    return _scaling(run, "target", {n: _with(base, target=n) for n in sizes})


def bytes_sent(run: Run) -> dict[str, Any]:
    """Bytes between server and clients, of one request; they do not depend on the data, so there is little of it."""
    cases = [("cnn", (1, 8, 8), 2)] if run.quick else [("cnn", (1, 28, 28), 5), ("resnet10", (3, 32, 32), 20)]
    methods = {"overwrite": "overwrite", "overwrite, whole client": "overwrite", **COMPARED}
    table = []
    for name, shape, rounds in cases:
        for label, method in methods.items():
            run.say(f"{name}, {label}")
            kind, _, preset = method.partition(":")
            whole = label.endswith("client")
            world = NoiseWorld(
                name=name, shape=shape, target=4, retained=0 if whole else 8, others=24, requests=0, rounds=rounds,
                device=run.device, threads=run.threads, method=kind, preset=preset or None,
            )  # fmt: skip
            found = alone("noise_request", asdict(world))
            model = 4 * found["parameters"]
            table.append(
                {"network": name, "method": label, "clients": world.clients, "rounds": rounds, "bytes": found["bytes"],
                 "models": found["bytes"] / model, "stored_bytes": found["stored_bytes"],
                 "parameters": found["parameters"]}
            )  # fmt: skip
    return {"table": table}


def _tiny() -> NoiseWorld:
    return NoiseWorld(shape=(1, 8, 8), clients=2, target=8, retained=24, others=24, requests=1, rounds=1)


def _with(world: NoiseWorld, **changes: Any) -> NoiseWorld:
    return NoiseWorld(**{**asdict(world), **changes})


PARTS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "request": request,
    "sketch": sketch,
    "clients": clients,
    "parameters": parameters,
    "rows": rows,
    "target": target,
    "bytes": bytes_sent,
}
