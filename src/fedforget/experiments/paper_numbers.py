"""The paper's printed numbers (arXiv 2307.03363), by the LaTeX label of the table they stand in.

Percentages and seconds; of what is printed with a standard deviation, the mean. Copied from the LaTeX source by a
program; nothing is rounded or averaged here."""

from __future__ import annotations

from collections.abc import Sequence

_COMPLETE = """
mnist 0 81.14 0.12 0.73 2.71 65.43 0.60 0.58 96.83 91.14 71.32 84.39 40.03 92.22
mnist 1 81.57 0.11 0.55 0.00 70.04 0.68 0.82 96.84 91.06 69.27 80.17 39.99 92.29
mnist 2 81.58 0.03 0.94 0.00 71.07 0.40 0.65 96.39 90.75 65.45 85.11 39.75 92.06
mnist 3 80.73 0.08 0.62 0.00 67.22 0.71 0.79 96.68 90.42 70.33 84.09 39.94 92.19
mnist 4 81.16 0.01 0.60 1.79 69.37 0.93 0.39 96.42 90.52 68.88 84.11 39.92 92.12
mnist 5 80.82 0.37 0.97 2.01 73.22 0.62 0.57 96.78 90.42 70.33 80.77 40.10 92.12
mnist 6 80.25 0.04 1.04 0.00 66.37 0.55 0.73 96.74 91.03 71.55 87.15 40.17 91.85
mnist 7 80.41 0.27 1.71 0.00 70.23 1.29 1.27 96.54 91.01 68.35 83.89 39.94 92.04
mnist 8 81.86 0.13 0.77 1.99 69.42 0.43 0.82 96.68 90.21 69.57 82.25 40.11 91.90
mnist 9 79.60 0.22 1.41 2.35 69.49 1.33 1.05 96.38 89.76 68.43 84.35 40.07 92.38
cifar10 0 71.00 0.01 1.64 0.00 56.35 1.45 1.45 81.03 80.04 61.82 72.46 29.91 79.55
cifar10 1 70.59 1.63 2.38 0.00 55.02 2.17 2.81 80.84 79.04 63.73 72.65 28.27 79.76
cifar10 2 74.17 0.86 1.88 0.00 55.42 1.50 1.20 81.78 81.50 68.07 73.61 27.87 80.82
cifar10 3 69.85 1.59 2.15 0.00 67.06 1.79 1.76 81.61 80.60 68.85 73.48 28.18 80.63
cifar10 4 70.55 0.06 1.34 1.79 61.84 1.55 1.30 81.25 80.15 68.53 73.39 27.07 80.27
cifar10 5 74.66 0.03 1.34 1.14 64.25 1.96 1.70 80.57 79.59 68.50 73.63 27.85 80.50
cifar10 6 70.38 0.09 1.30 2.21 55.02 1.76 1.28 81.17 80.18 63.09 72.80 30.19 81.05
cifar10 7 73.66 0.05 1.34 0.00 53.41 1.56 1.53 80.90 80.44 63.99 72.52 25.45 80.78
cifar10 8 79.05 0.02 1.54 2.41 54.61 1.84 1.41 80.71 79.68 70.51 72.36 29.14 80.37
cifar10 9 81.70 1.08 1.81 2.81 60.64 1.75 1.55 80.54 79.45 69.95 72.57 29.14 80.28
celeba 0 74.16 0.68 2.18 0.00 64.56 1.76 1.91 88.71 88.69 32.07 87.18 31.29 88.44
celeba 1 74.58 0.39 1.43 0.00 46.06 1.29 1.34 89.29 89.09 32.76 87.91 32.35 89.10
celeba 2 84.55 1.33 2.58 0.00 46.28 2.52 2.43 86.15 86.10 34.39 83.68 29.99 85.14
celeba 3 62.13 0.63 1.94 0.00 36.43 1.82 1.98 89.34 88.11 31.53 87.57 29.83 89.74
"""
"""tab:complete: BD Acc before, then after Retrain, FRR, SGA, CDP, FedAF-C, FedAF; Test Acc after the same six."""

_SEQUENTIAL = """
mnist 0 81.14 0.12 0.73 2.71 65.43 0.60 0.58 96.83 91.14 71.32 84.39 40.03 92.22
mnist 0,1 81.35 0.12 0.76 2.57 68.93 0.67 0.78 96.83 91.01 70.43 84.02 40.00 92.25
mnist 0,1,2 81.43 0.11 0.92 2.15 70.03 0.62 0.72 96.80 90.89 68.65 84.12 39.85 92.14
cifar10 0 71.00 0.01 1.64 0.00 56.35 1.45 1.45 81.03 80.04 61.82 72.46 29.91 79.55
cifar10 0,1 70.80 0.92 2.12 0.00 55.75 2.01 2.42 80.92 80.05 62.62 72.62 28.83 79.62
cifar10 0,1,2 71.92 0.89 2.56 0.00 55.34 1.92 2.36 81.05 80.10 65.62 72.46 28.45 80.15
celeba 0 74.16 0.68 2.18 0.00 64.56 1.76 1.91 88.71 88.69 32.07 87.18 31.29 88.44
celeba 0,1 74.37 0.63 2.36 0.00 60.72 1.72 1.82 89.15 88.85 32.53 87.36 32.01 89.02
celeba 0,1,2 77.76 1.17 2.43 0.00 58.42 2.51 2.14 87.16 87.56 33.23 87.27 31.43 87.27
"""
"""tab:complete_mul: the same for classes unlearned one after another."""

_OVERLAP = """
mnist 0 98.9 98.9 98.9 98.9
mnist 1 98.7 98.7 98.7 98.8
mnist 2 99.0 99.0 98.9 99.0
mnist 3 98.9 99.0 98.9 98.9
mnist 4 98.9 99.0 98.9 99.0
mnist 5 99.0 99.0 99.0 99.0
mnist 6 99.0 99.0 99.0 98.8
mnist 7 99.0 99.1 99.0 99.0
mnist 8 99.1 99.1 99.1 99.0
mnist 9 99.1 99.1 99.2 99.1
cifar10 0 91.1 90.8 90.6 90.8
cifar10 1 89.6 89.5 89.7 90.0
cifar10 2 92.1 91.9 91.7 91.6
cifar10 3 93.7 93.7 91.0 91.8
cifar10 4 90.4 91.2 91.1 90.4
cifar10 5 92.5 92.9 91.8 91.9
cifar10 6 89.8 90.2 90.4 90.4
cifar10 7 89.9 90.2 90.1 90.2
cifar10 8 89.7 90.5 89.7 89.8
cifar10 9 90.7 90.6 90.4 90.3
celeba 0 95.0 94.9 95.1 95.2
celeba 1 95.1 95.0 95.2 95.2
celeba 2 95.0 95.2 94.9 95.1
celeba 3 95.2 94.8 95.1 95.2
"""
"""tab:over_non: non-target accuracy of the labels uniform, random, teacher, debiased."""

_TIME = """
mnist 24.55 28.60 1.29 17.39 1.62
cifar10 891.46 3554.32 4.78 34.37 9.29
celeba 1774.75 16696.48 36.15 235.95 57.20
"""
"""tab:time: seconds of Retrain, FRR, SGA, CDP, FedAF."""

METHODS_IN_TABLE = ("retrain", "frr", "sga", "cdp", "fedaf-c", "fedaf")
"""The paper's columns under our methods' names."""
BESIDE = {"overwrite": "fedaf"}
"""Ours, and whose numbers stand beside it."""
LABELS = ("uniform", "random", "teacher", "debiased")

TEST_ACC_BEFORE = {"mnist": 98.30, "cifar10": 82.04, "celeba": 90.31}
"""tab:complete, caption."""

STATED = {
    "fig:overlap": "Accuracy of the target class: uniform and random labels leave it considerably high in most classes "
    "and unstable, the teacher label makes it low in most classes and fails in a few, the debiased teacher label makes "
    "it low in all.",
    "fig:epoch": "Target accuracy is almost 0 % after 1 epoch and absolutely 0 % above 3; non-target accuracy is best "
    "after 1 epoch and then gradually declines.",
    "fig:lam": "Target accuracy is almost 0 % for lambda up to 10 and grows beyond; non-target accuracy grows with "
    "lambda, ever more slowly.",
    "sec:hyper": "More than Q = 10 teachers do not significantly improve the teachers.",
}
"""What the text says of figures that print no number; `sec:hyper` is the paragraph on hyper-parameters."""


def _read(text: str, *tables: Sequence[str]) -> list[dict[tuple[str, str], dict[str, float]]]:
    """For each table, whose columns stand side by side: (data set, class) -> column -> printed mean."""
    found: list[dict[tuple[str, str], dict[str, float]]] = [{} for _ in tables]
    for line in text.strip().splitlines():
        dataset, label, *words = line.split()
        means = map(float, words)
        for table, columns in zip(found, tables, strict=True):
            table[dataset, label] = {column: next(means) for column in columns}
    return found


COMPLETE_BD, COMPLETE_TEST = _read(_COMPLETE, ("before", *METHODS_IN_TABLE), METHODS_IN_TABLE)
SEQUENTIAL_BD, SEQUENTIAL_TEST = _read(_SEQUENTIAL, ("before", *METHODS_IN_TABLE), METHODS_IN_TABLE)
"""Keyed by (data set, the classes unlearned so far, such as 0,1)."""
(OVERLAP_NON_TARGET,) = _read(_OVERLAP, LABELS)
SECONDS = {
    dataset: dict(zip(("retrain", "frr", "sga", "cdp", "fedaf"), map(float, words), strict=True))
    for dataset, *words in map(str.split, _TIME.strip().splitlines())
}


def completeness(dataset: str, label: object, method: str) -> dict[str, float] | None:
    """tab:complete for a class, or tab:complete_mul for several ("0,1"): the printed means under the names that our
    rows use. For a method that the paper does not have, what was before unlearning alone."""
    place = (dataset, str(label))
    bd, test = (COMPLETE_BD | SEQUENTIAL_BD).get(place), (COMPLETE_TEST | SEQUENTIAL_TEST).get(place)
    if bd is None or test is None:
        return None
    method = BESIDE.get(method, method)
    before = {"bd_acc_before": bd["before"], "test_acc_before": TEST_ACC_BEFORE[dataset]}
    return before | ({"bd_acc": bd[method], "test_acc": test[method]} if method in test else {})


def running_time(dataset: str, method: str) -> dict[str, float] | None:
    """tab:time for a method; the paper times its first class alone."""
    seconds = SECONDS.get(dataset, {}).get(BESIDE.get(method, method))
    return None if seconds is None else {"seconds": seconds}
