"""Tables "Accuracy of unlearning different classes" (tab:complete) and "Running time of unlearning one class in a
client" (tab:time): one class of one client at a time, poisoned, served by every method from the same trained model.

Both show the same cells, since the bill of every request is written down with its accuracies. What is computed under
one name is found under the other; `time` alone computes the first class, which is the one the paper times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedforget.experiments.columns import Columns, beside_paper, counted, crossed, mean, notes_of, table
from fedforget.experiments.configurations import find_configuration
from fedforget.experiments.drawing import Bars, bar_charts
from fedforget.experiments.engine import Experiment, Row, request_specs
from fedforget.experiments.pairs import against_retrain, difference, paired, ratio
from fedforget.experiments.paper_numbers import completeness, running_time
from fedforget.experiments.summaries import by_method, distinct, untouched, values
from fedforget.experiments.tables import Entry, Table

OTHER_MEASURES = {
    "true_acc": "target as its true class",
    "retained_acc": "retained data",
    "target_class_test_acc": "the class's test images",
}
SAME_MACHINE = ("class", "seed", "hardware", "threads")
"""Seconds are compared within one machine alone."""


def paper_values(row: Mapping[str, Any]) -> dict[str, float] | None:
    """tab:complete, and tab:time for the class that the paper times; of a federation like the paper's alone."""
    if "all" in find_configuration(row["dataset"], row["configuration"]).reasons:
        return None
    seconds = running_time(row["dataset"], row["method"]) if row["class"] == 0 else None
    return (completeness(row["dataset"], row["class"], row["method"]) or {}) | (seconds or {}) or None


def tables(rows: Sequence[Row]) -> list[Table]:
    methods, before = by_method(rows), untouched(rows)
    others = {c: name for c, name in OTHER_MEASURES.items() if any(value is not None for value in values(rows, c))}
    bd_acc, test_acc = beside_paper("bd_acc"), beside_paper("test_acc")
    return [
        table(
            f"Accuracy (%) of unlearning one class of one client, over {len(distinct(rows, 'class'))} classes",
            {"before unlearning": before, **methods}, {"BD Acc": bd_acc, "Test Acc": test_acc, "cells": counted},
            ("Mean ± standard deviation over the cells (class, trial).", *notes_of(rows)),
        ),
        against_retrain(
            rows, "Method minus Retrain, in points, with 95 % confidence intervals",
            ("Pairs of the same class and seed. Student's interval over the seeds, each of which is one draw.",),
        ),
        table(
            "Other measures (%), which the paper does not print", methods,
            {name: mean(column) for column, name in others.items()},
        ),
        crossed("BD Acc (%) after unlearning, the lower the better", "class", {"before": before, **methods}, bd_acc),
        crossed("Test Acc (%) after unlearning", "class", methods, test_acc),
    ]  # fmt: skip


def remarks(rows: Sequence[Row]) -> list[str]:
    """Ours and the paper's FedAF against Retrain, in one sentence each."""
    sentences = []
    for name, own in by_method(rows).items():
        pairs = paired(own, rows)
        if own[0]["method"] in ("overwrite", "fedaf") and pairs:
            sentences.append(
                f"{name} minus Retrain, {len(pairs)} cells: Test Acc {difference(pairs, 'test_acc').text()} points, "
                f"BD Acc {difference(pairs, 'bd_acc').text()} points, with "
                f"{ratio(pairs, 'gradient_evaluations').text()} times fewer gradient evaluations."
            )
    return sentences


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """The table as bars: for each class a bar of each method; a black line is the paper's mean."""
    groups = {"before unlearning": untouched(rows), **by_method(rows)}
    names = {label: f"class {label}" for label in distinct(rows, "class")}
    panels = [
        Bars.of(f"{title} after unlearning", "accuracy (%)", groups, "class", names, beside_paper(column))
        for column, title in (("bd_acc", "BD Acc"), ("test_acc", "Test Acc"))
    ]
    return bar_charts(stem, f"Unlearning one class of one client, {rows[0]['dataset']}", rows, panels)


COMPLETENESS = Experiment(
    name="completeness",
    title="Accuracy of unlearning different classes",
    label="tab:complete",
    specs=request_specs,
    tables=tables,
    paper=paper_values,
    remarks=remarks,
    figures=figures,
)


def time_tables(rows: Sequence[Row]) -> list[Table]:
    def cheaper(column: str, own: Sequence[Row], *alike: str) -> Entry:
        return ratio(paired(own, rows, alike or ("class", "seed")), column)

    machines = sorted({f"{row['hardware']}, {row['threads']} threads" for row in rows})
    notes = (
        "Seconds of the whole request, from its arrival to the final global model. A gradient evaluation is one "
        "sample's forward and backward pass; a forward pass alone counts 0.4. "
        f"Ours on {' and '.join(machines)}; the paper's on an RTX 3090, for its first class.",
        *notes_of(rows),
    )
    columns: Columns = {
        "seconds": beside_paper("seconds"),
        "Retrain / seconds": lambda own: cheaper("seconds", own, *SAME_MACHINE),
        "pairs on one machine": lambda own: str(len(paired(own, rows, SAME_MACHINE))),
        "gradient evaluations": mean("gradient_evaluations", digits=0),
        "Retrain / gradient evaluations": lambda own: cheaper("gradient_evaluations", own),
        "cells": counted,
    }
    sizes = {"sent": "bytes", "stored beside the model": "stored_bytes", "peak memory": "peak_bytes"}
    return [
        table("Running time of unlearning one class of one client", by_method(rows), columns, notes),
        table(
            "Megabytes of one request",
            by_method(rows),
            {name: mean(column, unit=1e6) for name, column in sizes.items()},
        ),
    ]


def time_figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Seconds and gradient evaluations of each method on a logarithmic axis; a black line is the paper's."""
    methods = by_method(rows)
    panels = [
        Bars(title, list(methods), {"ours": list(map(beside_paper(column), methods.values()))}, title, logarithmic=True)
        for column, title in (("seconds", "seconds"), ("gradient_evaluations", "gradient evaluations"))
    ]
    return bar_charts(stem, f"Running time of unlearning one class of one client, {rows[0]['dataset']}", rows, panels)


TIME = Experiment(
    name="time",
    title="Running time of unlearning one class in a client",
    label="tab:time",
    specs=partial(request_specs, classes=(0,)),
    tables=time_tables,
    paper=lambda row: running_time(row["dataset"], row["method"]),
    figures=time_figures,
    shares="completeness",
)
