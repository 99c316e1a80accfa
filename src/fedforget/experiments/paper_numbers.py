"""The paper's printed numbers (arXiv 2307.03363), by the LaTeX label of the table they stand in.

Percentages and seconds, with the standard deviations that are printed beside them; rows are compared with the means.
Copied from the LaTeX source by a program; nothing is rounded or averaged here."""

from __future__ import annotations

_COMPLETE_BD = """
mnist 0 81.14±2.86 0.12±0.01 0.73±0.13 2.71±0.94 65.43±1.12 0.60±0.35 0.58±0.18
mnist 1 81.57±3.32 0.11±0.14 0.55±0.08 0.00±0.00 70.04±1.54 0.68±0.52 0.82±0.43
mnist 2 81.58±3.29 0.03±0.00 0.94±0.15 0.00±0.00 71.07±0.99 0.40±0.35 0.65±0.41
mnist 3 80.73±3.19 0.08±0.01 0.62±0.04 0.00±0.00 67.22±1.32 0.71±0.58 0.79±0.45
mnist 4 81.16±2.87 0.01±0.00 0.60±0.02 1.79±0.88 69.37±1.35 0.93±0.18 0.39±0.05
mnist 5 80.82±3.13 0.37±0.15 0.97±0.20 2.01±1.15 73.22±1.52 0.62±0.41 0.57±0.32
mnist 6 80.25±4.06 0.04±0.00 1.04±0.17 0.00±0.00 66.37±1.32 0.55±0.07 0.73±0.20
mnist 7 80.41±3.50 0.27±0.15 1.71±0.54 0.00±0.00 70.23±1.23 1.29±0.45 1.27±0.62
mnist 8 81.86±3.57 0.13±0.04 0.77±0.21 1.99±0.71 69.42±1.04 0.43±0.10 0.82±0.18
mnist 9 79.60±5.30 0.22±0.06 1.41±0.47 2.35±0.46 69.49±0.74 1.33±0.22 1.05±0.50
cifar10 0 71.00±1.73 0.01±0.00 1.64±1.05 0.00±0.00 56.35±1.33 1.45±1.87 1.45±1.02
cifar10 1 70.59±4.62 1.63±1.28 2.38±1.91 0.00±0.00 55.02±1.91 2.17±1.44 2.81±1.80
cifar10 2 74.17±4.02 0.86±0.08 1.88±0.91 0.00±0.00 55.42±1.70 1.50±0.48 1.20±0.91
cifar10 3 69.85±1.29 1.59±1.25 2.15±1.71 0.00±0.00 67.06±2.01 1.79±1.10 1.76±0.83
cifar10 4 70.55±4.44 0.06±0.00 1.34±1.04 1.79±1.64 61.84±0.88 1.55±0.95 1.30±1.07
cifar10 5 74.66±1.07 0.03±0.01 1.34±1.03 1.14±1.11 64.25±1.44 1.96±1.24 1.70±1.12
cifar10 6 70.38±2.42 0.09±0.01 1.30±0.94 2.21±0.77 55.02±0.88 1.76±1.19 1.28±1.06
cifar10 7 73.66±6.68 0.05±0.00 1.34±1.05 0.00±0.00 53.41±1.11 1.56±1.12 1.53±1.22
cifar10 8 79.05±4.81 0.02±0.00 1.54±0.92 2.41±0.75 54.61±0.93 1.84±0.85 1.41±0.66
cifar10 9 81.70±6.54 1.08±0.07 1.81±1.07 2.81±1.40 60.64±1.02 1.75±1.46 1.55±1.15
celeba 0 74.16±0.37 0.68±0.30 2.18±1.30 0.00±0.00 64.56±0.27 1.76±1.31 1.91±1.32
celeba 1 74.58±1.65 0.39±0.35 1.43±0.86 0.00±0.00 46.06±0.77 1.29±1.14 1.34±1.15
celeba 2 84.55±3.40 1.33±0.61 2.58±1.44 0.00±0.00 46.28±1.47 2.52±2.26 2.43±1.65
celeba 3 62.13±6.33 0.63±0.80 1.94±1.31 0.00±0.00 36.43±0.98 1.82±1.24 1.98±1.73
"""
"""tab:complete: BD Acc before, then after Retrain, FRR, SGA, CDP, FedAF-C, FedAF."""

_COMPLETE_TEST = """
mnist 0 96.83±0.13 91.14±0.12 71.32±2.21 84.39±1.13 40.03±0.51 92.22±0.26
mnist 1 96.84±0.07 91.06±0.12 69.27±0.98 80.17±1.45 39.99±0.41 92.29±0.61
mnist 2 96.39±0.18 90.75±0.20 65.45±2.07 85.11±1.28 39.75±0.32 92.06±0.39
mnist 3 96.68±0.07 90.42±0.28 70.33±0.87 84.09±1.10 39.94±0.33 92.19±0.38
mnist 4 96.42±0.10 90.52±0.15 68.88±1.17 84.11±0.94 39.92±0.62 92.12±0.64
mnist 5 96.78±0.13 90.42±0.22 70.33±0.91 80.77±1.25 40.10±0.24 92.12±0.62
mnist 6 96.74±0.05 91.03±0.21 71.55±0.95 87.15±1.08 40.17±0.47 91.85±0.60
mnist 7 96.54±0.15 91.01±0.14 68.35±0.77 83.89±0.95 39.94±0.45 92.04±0.24
mnist 8 96.68±0.24 90.21±0.22 69.57±0.94 82.25±0.75 40.11±0.71 91.90±0.42
mnist 9 96.38±0.21 89.76±0.34 68.43±1.68 84.35±0.85 40.07±0.37 92.38±0.65
cifar10 0 81.03±0.63 80.04±0.61 61.82±1.19 72.46±1.06 29.91±6.74 79.55±1.92
cifar10 1 80.84±0.27 79.04±0.31 63.73±1.22 72.65±0.81 28.27±4.11 79.76±0.96
cifar10 2 81.78±0.57 81.50±0.56 68.07±0.92 73.61±0.51 27.87±3.60 80.82±0.75
cifar10 3 81.61±1.06 80.60±1.09 68.85±1.01 73.48±1.02 28.18±8.25 80.63±1.76
cifar10 4 81.25±0.40 80.15±0.35 68.53±0.88 73.39±0.94 27.07±4.61 80.27±0.81
cifar10 5 80.57±0.25 79.59±0.25 68.50±1.63 73.63±1.02 27.85±5.35 80.50±1.74
cifar10 6 81.17±0.81 80.18±0.84 63.09±2.15 72.80±0.77 30.19±4.42 81.05±1.02
cifar10 7 80.90±0.42 80.44±0.41 63.99±1.54 72.52±0.37 25.45±2.42 80.78±0.50
cifar10 8 80.71±0.29 79.68±0.33 70.51±1.96 72.36±0.41 29.14±3.48 80.37±0.25
cifar10 9 80.54±0.57 79.45±0.64 69.95±0.98 72.57±1.10 29.14±2.67 80.28±1.12
celeba 0 88.71±0.36 88.69±0.39 32.07±3.85 87.18±0.22 31.29±4.91 88.44±0.47
celeba 1 89.29±0.24 89.09±0.26 32.76±1.83 87.91±1.10 32.35±2.73 89.10±1.18
celeba 2 86.15±0.25 86.10±0.29 34.39±3.04 83.68±1.41 29.99±4.11 85.14±0.31
celeba 3 89.34±0.37 88.11±0.20 31.53±3.22 87.57±0.82 29.83±3.94 89.74±0.56
"""
"""tab:complete: Test Acc after the same six."""

_SEQUENTIAL_BD = """
mnist 0 81.14±2.86 0.12±0.01 0.73±0.13 2.71±0.94 65.43±1.12 0.60±0.35 0.58±0.18
mnist 0,1 81.35±3.14 0.12±0.14 0.76±0.46 2.57±0.51 68.93±1.32 0.67±0.51 0.78±0.41
mnist 0,1,2 81.43±3.19 0.11±0.22 0.92±0.32 2.15±1.05 70.03±1.54 0.62±0.23 0.72±0.32
cifar10 0 71.00±1.73 0.01±0.00 1.64±1.05 0.00±0.00 56.35±1.33 1.45±1.87 1.45±1.02
cifar10 0,1 70.80±3.22 0.92±1.01 2.12±1.87 0.00±0.00 55.75±1.92 2.01±1.67 2.42±1.52
cifar10 0,1,2 71.92±3.53 0.89±1.14 2.56±1.25 0.00±0.00 55.34±2.27 1.92±1.59 2.36±1.41
celeba 0 74.16±0.37 0.68±0.30 2.18±1.30 0.00±0.00 64.56±0.27 1.76±1.31 1.91±1.32
celeba 0,1 74.37±1.14 0.63±0.43 2.36±1.25 0.00±0.00 60.72±0.72 1.72±1.15 1.82±1.16
celeba 0,1,2 77.76±2.52 1.17±0.64 2.43±1.36 0.00±0.00 58.42±1.15 2.51±2.12 2.14±1.46
"""
"""tab:complete_mul: the same for classes unlearned one after another."""

_SEQUENTIAL_TEST = """
mnist 0 96.83±0.13 91.14±0.12 71.32±2.21 84.39±1.13 40.03±0.51 92.22±0.26
mnist 0,1 96.83±0.14 91.01±0.14 70.43±1.63 84.02±1.35 40.00±0.51 92.25±0.43
mnist 0,1,2 96.80±0.14 90.89±0.17 68.65±1.67 84.12±1.51 39.85±0.41 92.14±0.31
cifar10 0 81.03±0.63 80.04±0.61 61.82±1.19 72.46±1.06 29.91±6.74 79.55±1.92
cifar10 0,1 80.92±0.61 80.05±0.45 62.62±1.46 72.62±0.84 28.83±5.56 79.62±0.56
cifar10 0,1,2 81.05±0.87 80.10±0.65 65.62±1.53 72.46±0.83 28.45±4.15 80.15±0.63
celeba 0 88.71±0.36 88.69±0.39 32.07±3.85 87.18±0.22 31.29±4.91 88.44±0.47
celeba 0,1 89.15±0.41 88.85±0.43 32.53±2.51 87.36±1.23 32.01±3.14 89.02±0.97
celeba 0,1,2 87.16±0.26 87.56±0.19 33.23±2.23 87.27±1.25 31.43±3.43 87.27±0.75
"""
"""tab:complete_mul: Test Acc."""

_OVERLAP = """
mnist 0 98.9±0.1 98.9±0.1 98.9±0.1 98.9±0.1
mnist 1 98.7±0.1 98.7±0.2 98.7±0.2 98.8±0.1
mnist 2 99.0±0.1 99.0±0.2 98.9±0.2 99.0±0.1
mnist 3 98.9±0.1 99.0±0.1 98.9±0.2 98.9±0.1
mnist 4 98.9±0.3 99.0±0.1 98.9±0.1 99.0±0.1
mnist 5 99.0±0.1 99.0±0.1 99.0±0.1 99.0±0.1
mnist 6 99.0±0.2 99.0±0.1 99.0±0.1 98.8±0.2
mnist 7 99.0±0.2 99.1±0.1 99.0±0.1 99.0±0.2
mnist 8 99.1±0.1 99.1±0.1 99.1±0.1 99.0±0.1
mnist 9 99.1±0.1 99.1±0.1 99.2±0.1 99.1±0.1
cifar10 0 91.1±0.6 90.8±0.6 90.6±0.6 90.8±0.7
cifar10 1 89.6±0.9 89.5±0.7 89.7±0.5 90.0±0.6
cifar10 2 92.1±0.6 91.9±1.0 91.7±0.6 91.6±0.9
cifar10 3 93.7±0.9 93.7±0.8 91.0±0.6 91.8±0.6
cifar10 4 90.4±1.9 91.2±0.8 91.1±0.6 90.4±1.2
cifar10 5 92.5±0.3 92.9±0.7 91.8±1.8 91.9±0.5
cifar10 6 89.8±1.7 90.2±1.0 90.4±0.5 90.4±0.3
cifar10 7 89.9±1.0 90.2±0.3 90.1±0.5 90.2±1.0
cifar10 8 89.7±0.5 90.5±0.5 89.7±0.6 89.8±1.0
cifar10 9 90.7±0.4 90.6±0.4 90.4±0.5 90.3±0.4
celeba 0 95.0±0.6 94.9±0.5 95.1±0.6 95.2±0.7
celeba 1 95.1±0.5 95.0±0.6 95.2±0.4 95.2±0.5
celeba 2 95.0±0.4 95.2±0.7 94.9±0.5 95.1±0.7
celeba 3 95.2±0.4 94.8±0.4 95.1±0.6 95.2±0.6
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


def _read(text: str, columns: tuple[str, ...]) -> dict[tuple[str, str], dict[str, float]]:
    """(data set, class) -> column -> printed mean."""
    found = {}
    for line in text.strip().splitlines():
        dataset, label, *words = line.split()
        means = (float(word.partition("±")[0]) for word in words)
        found[dataset, label] = dict(zip(columns, means, strict=True))
    return found


COMPLETE_BD = _read(_COMPLETE_BD, ("before", *METHODS_IN_TABLE))
COMPLETE_TEST = _read(_COMPLETE_TEST, METHODS_IN_TABLE)
SEQUENTIAL_BD = _read(_SEQUENTIAL_BD, ("before", *METHODS_IN_TABLE))
SEQUENTIAL_TEST = _read(_SEQUENTIAL_TEST, METHODS_IN_TABLE)
"""Keyed by (data set, the classes unlearned so far, such as 0,1)."""
OVERLAP_NON_TARGET = _read(_OVERLAP, LABELS)
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
