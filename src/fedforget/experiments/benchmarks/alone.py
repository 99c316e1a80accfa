"""`python -m fedforget.experiments.benchmarks.alone JOB`: one measurement in a process of its own; its spec is JSON on
standard input, its result JSON on standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fedforget.experiments.benchmarks.measuring import Spec
from fedforget.experiments.benchmarks.row_gradients import WAYS, RowWorld
from fedforget.experiments.benchmarks.worlds import NoiseWorld, TrainedWorld
from fedforget.experiments.configurations import ASKING_CLIENT
from fedforget.federation.cost import PeakMemory
from fedforget.federation.tasks import Train
from fedforget.methods import forget
from fedforget.params import state_of, weight_count


def noise_request(spec: Spec) -> dict[str, Any]:
    """Some requests on noise, and one epoch over the target beside each; the first of both does not count."""
    world = NoiseWorld(**{**spec, "shape": tuple(spec.get("shape", (1, 28, 28)))})
    torch.set_num_threads(world.threads)
    federation = world.federation()
    state = state_of(federation.model)
    share = world.target / (world.target + world.retained)
    epoch = Train(seed=0, threads=world.threads, round=0, share=share, purpose="bench")
    seconds, epochs, costs = [], [], []
    for _ in range(1 + world.requests):
        start = time.perf_counter()
        list(federation.ask(epoch, state, [ASKING_CLIENT]))
        epochs.append(time.perf_counter() - start)
        result = forget(federation, state, world.request, world.schedule, world.method, world.preset, **world.settings)
        seconds.append(result.cost.total_seconds)
        costs.append(result.cost.to_json())
    return {
        "parameters": weight_count(federation.model), "epoch": epochs[1:], "request": seconds[1:],
        "stages": [cost["seconds_by_stage"] for cost in costs[1:]], "bytes": costs[0]["bytes"],
        "stored_bytes": costs[0]["stored_bytes"], "peak_bytes": costs[0]["peak_bytes"],
        "gradient_evaluations": costs[0]["gradient_evaluations"],
    }  # fmt: skip


def cold_request(spec: Spec) -> dict[str, Any]:
    """The first request that a process serves, and the two after it. Reading data and model is not part of it."""
    torch.set_num_threads(spec["threads"])
    world = TrainedWorld.make(spec["configuration"], spec["device"], spec["threads"], spec["quick"])
    state = torch.load(Path(spec["model"]), weights_only=True, map_location=spec["device"])
    method, _, preset = spec["method"].partition(":")
    served = (forget(world.federation, state, world.request, world.schedule, method, preset) for _ in range(3))
    return {"seconds": [result.cost.total_seconds for result in served]}


def rows_of_the_jacobian(spec: Spec) -> dict[str, Any]:
    """The peak memory of one way to come by the sketch, above what data and model take."""
    way = spec.pop("way")
    world = RowWorld(**{**spec, "shape": tuple(spec["shape"])})
    torch.set_num_threads(world.threads)
    samples, model, inputs = world.made()
    small = samples.select(torch.arange(min(len(samples), 2)))
    WAYS[way](small, model, inputs, world)  # what a first call loads and keeps is not the way's memory
    with PeakMemory(torch.device(world.device)) as peak:
        WAYS[way](samples, model, inputs, world)
    return {"peak_bytes": peak.bytes, **asdict(world)}


JOBS: dict[str, Callable[[Spec], dict[str, Any]]] = {
    "noise_request": noise_request,
    "cold_request": cold_request,
    "rows_of_the_jacobian": rows_of_the_jacobian,
}


def main() -> None:
    print(json.dumps(JOBS[sys.argv[1]](json.loads(sys.stdin.read()))))


if __name__ == "__main__":
    main()
