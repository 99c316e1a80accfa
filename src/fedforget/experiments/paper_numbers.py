"""The paper's printed numbers (arXiv 2307.03363), by the LaTeX label of the table they stand in.

`paper_numbers.csv` has percentages and seconds, copied from the LaTeX source by a program; of what is printed with a
standard deviation, the mean. Nothing is rounded or averaged here."""

from __future__ import annotations

import csv
from importlib.resources import files

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


def _read() -> dict[tuple[str, str], dict[tuple[str, str], dict[str, float]]]:
    """(table, figure) -> (data set, class) -> column -> printed number."""
    found: dict[tuple[str, str], dict[tuple[str, str], dict[str, float]]] = {}
    with files("fedforget.experiments").joinpath("paper_numbers.csv").open() as lines:
        for line in csv.DictReader(lines):
            table, dataset, label, figure = (line.pop(name) for name in ("table", "dataset", "class", "figure"))
            numbers = {column: float(number) for column, number in line.items() if number}
            found.setdefault((table, figure), {})[dataset, label] = numbers
    return found


_PRINTED = _read()
COMPLETE_BD, COMPLETE_TEST = _PRINTED["tab:complete", "bd_acc"], _PRINTED["tab:complete", "test_acc"]
SEQUENTIAL_BD, SEQUENTIAL_TEST = _PRINTED["tab:complete_mul", "bd_acc"], _PRINTED["tab:complete_mul", "test_acc"]
"""Keyed by (data set, the classes unlearned so far, such as 0,1)."""
OVERLAP_NON_TARGET = _PRINTED["tab:over_non", "non_target_acc"]


def completeness(dataset: str, label: object, method: str) -> dict[str, float] | None:
    """tab:complete for a class, or tab:complete_mul for several ("0,1"): the printed means under the names that our
    rows use. For a method that the paper does not have, what was before unlearning alone."""
    place = (dataset, str(label))
    bd, test = (COMPLETE_BD | SEQUENTIAL_BD).get(place), (COMPLETE_TEST | SEQUENTIAL_TEST).get(place)
    if bd is None or test is None:
        return None
    before = {"bd_acc_before": bd["before"], "test_acc_before": TEST_ACC_BEFORE[dataset]}
    return before | ({"bd_acc": bd[method], "test_acc": test[method]} if method in test else {})


def running_time(dataset: str, method: str) -> dict[str, float] | None:
    """tab:time for a method; the paper times its first class alone."""
    seconds = _PRINTED["tab:time", "seconds"].get((dataset, "0"), {}).get(method)
    return None if seconds is None else {"seconds": seconds}
