"""`make bench`: speed as ratios taken in one run, never as a test. Prints a table and writes benchmarks/latest.json.

Each figure is the median of a few repetitions on the machine at hand, next to the thing it is compared with."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedforget import ErasureRequest, LocalFederation, Schedule, build_model, forget, load_dataset, partition, state_of
from fedforget.federation.rounds import run_round, train
from fedforget.federation.tasks import Train
from fedforget.methods.fedaf.forgetting import BuildSketch
from fedforget.methods.fedaf.settings import RECOMMENDED
from fedforget.params import weight_count


def median_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The median time of `work`, after one run that does not count."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    dataset = load_dataset("mnist")
    schedule = Schedule(rounds=5, threads=os.cpu_count() or 1)
    model = build_model("cnn", dataset.shape, len(dataset.classes), seed=0)
    federation = LocalFederation(dataset, partition("iid", dataset.train.labels, 4, 0), model)
    request = ErasureRequest.of_class(0, 3)
    trained = train(federation, state_of(model), replace(schedule, rounds=1))
    target = federation.check([request])[0].target

    request_seconds = median_seconds(lambda: forget(federation, trained, request, schedule))
    start = time.perf_counter()
    forget(federation, trained, request, schedule, method="retrain")
    retrain_seconds = time.perf_counter() - start
    share = target / len(federation.client(0).samples)
    one_pass = Train(seed=0, threads=schedule.threads, round=0, share=share)
    pass_seconds = median_seconds(lambda: list(federation.ask(one_pass, trained, [0])))
    settings = RECOMMENDED.for_network(weight_count(model))
    build = BuildSketch(seed=0, threads=schedule.threads, requests=(request,), settings=settings)
    sketch_seconds = median_seconds(lambda: list(federation.ask(build, trained, [0])))
    same = replace(one_pass, share=int(settings.sketch_samples or 0) / len(federation.client(0).samples))
    same_seconds = median_seconds(lambda: list(federation.ask(same, trained, [0])))
    round_seconds = median_seconds(lambda: run_round(federation, trained, schedule.train_task(0)), repeats=2)

    figures = {
        "request_seconds": request_seconds,
        "retrain_over_request": retrain_seconds / request_seconds,
        "request_over_one_pass_of_the_target": request_seconds / pass_seconds,
        "sketch_over_training_on_the_same_samples": sketch_seconds / same_seconds,
        "request_over_one_ordinary_round": request_seconds / round_seconds,
    }
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):45s} {value:8.2f}")
    Path(__file__).with_name("latest.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
