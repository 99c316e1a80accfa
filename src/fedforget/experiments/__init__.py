"""The paper's tables and figures, and ours beside them: one table of experiments, one way to run them.

Adding an experiment is one file with an `Experiment` and one line in `EXPERIMENTS`."""

from __future__ import annotations

from fedforget.errors import InputError
from fedforget.experiments.ablation import ABLATION
from fedforget.experiments.audited import AUDIT
from fedforget.experiments.calibration import CALIBRATION
from fedforget.experiments.completeness import COMPLETENESS, TIME
from fedforget.experiments.durability import DURABILITY
from fedforget.experiments.engine import Experiment
from fedforget.experiments.feature import FEATURE
from fedforget.experiments.ladder import EXPERIMENT as LADDER
from fedforget.experiments.many_requests import REQUESTS
from fedforget.experiments.overlap import OVERLAP
from fedforget.experiments.readings import READINGS
from fedforget.experiments.ridge import EXPERIMENT as RIDGE
from fedforget.experiments.sensitivity import EPOCHS, LAMBDA, TEACHERS
from fedforget.experiments.sequential import SEQUENTIAL
from fedforget.experiments.shards import SHARDS
from fedforget.experiments.ulira import ULIRA

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        COMPLETENESS, TIME, OVERLAP, EPOCHS, LAMBDA, TEACHERS, SEQUENTIAL, ABLATION, AUDIT, ULIRA,
        DURABILITY, REQUESTS, FEATURE, CALIBRATION, LADDER, READINGS, RIDGE, SHARDS,
    )
}  # fmt: skip


def find_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise InputError(f"Experiment '{name}' is unknown; choose one of {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]
