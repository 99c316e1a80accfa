"""Table "Accuracy of unlearning different classes" (tab:complete): one class of one client at a time, poisoned,
served by every method from the same trained model. BD Acc before and after, and Test Acc after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedforget.experiments.configurations import find_configuration
from fedforget.experiments.drawing import Bars, bar_charts
from fedforget.experiments.engine import Experiment, Row, request_specs
from fedforget.experiments.paper_numbers import completeness, running_time
from fedforget.experiments.summaries import (
    against_retrain,
    by_method,
    counted,
    difference,
    entry,
    notes_of,
    paired_with_retrain,
    printed,
    ratio,
    values,
    where,
)
from fedforget.experiments.tables import Entry, Table

OTHER_MEASURES = {
    "true_acc": "target as its true class",
    "retained_acc": "retained data",
    "target_class_test_acc": "the class's test images",
}


def paper_values(row: Mapping[str, Any]) -> dict[str, float] | None:
    """tab:complete, and tab:time for the class that the paper times; of a federation like the paper's alone."""
    if "all" in find_configuration(row["dataset"], row["configuration"]).reasons:
        return None
    seconds = running_time(row["dataset"], row["method"]) if row["class"] == 0 else None
    return (completeness(row["dataset"], row["class"], row["method"]) or {}) | (seconds or {}) or None


def tables(rows: Sequence[Row]) -> list[Table]:
    methods = by_method(rows)
    return [
        _averages(rows, methods),
        against_retrain(
            rows,
            "Method minus Retrain, in points, with 95 % confidence intervals",
            ("Pairs of the same class and seed; Student's interval of the mean difference.",),
        ),
        _other_measures(methods),
        _per_class("bd_acc", "BD Acc (%) after unlearning, the lower the better", rows, methods),
        _per_class("test_acc", "Test Acc (%) after unlearning", rows, methods),
    ]


def _scenarios(rows: Sequence[Row]) -> list[Row]:
    """One row of each (class, seed): what is before unlearning is the same for all methods."""
    return list({(row["class"], row["seed"]): row for row in rows}.values())


def _before(rows: Sequence[Row], column: str) -> Entry:
    own = _scenarios(rows)
    return Entry.of(values(own, column), printed(own, column))


def _averages(rows: Sequence[Row], methods: Mapping[str, Sequence[Row]]) -> Table:
    body: list[list[str | Entry]] = [
        ["before unlearning", _before(rows, "bd_acc_before"), _before(rows, "test_acc_before"),
         str(len(_scenarios(rows)))],
    ]  # fmt: skip
    body += [[name, entry(own, "bd_acc"), entry(own, "test_acc"), counted(own)] for name, own in methods.items()]
    classes = sorted({row["class"] for row in rows})
    return Table(
        f"Accuracy (%) of unlearning one class of one client, over {len(classes)} classes",
        ("", "BD Acc", "Test Acc", "cells"),
        body,
        ("Mean ± standard deviation over the cells (class, trial).", *notes_of(rows)),
    )


def _other_measures(methods: Mapping[str, Sequence[Row]]) -> Table:
    measured = [c for c in OTHER_MEASURES if any(row.get(c) is not None for own in methods.values() for row in own)]
    body: list[list[str | Entry]] = [
        [name, *(Entry.of(row.get(column) for row in own) for column in measured)] for name, own in methods.items()
    ]
    return Table("Other measures (%), which the paper does not print", ("", *map(OTHER_MEASURES.get, measured)), body)  # type: ignore[arg-type]


def _per_class(column: str, title: str, rows: Sequence[Row], methods: Mapping[str, Sequence[Row]]) -> Table:
    before = column == "bd_acc"
    body: list[list[str | Entry]] = []
    for label in sorted({row["class"] for row in rows}):
        line: list[str | Entry] = [str(label)]
        if before:
            line.append(_before(where(rows, "class", label), "bd_acc_before"))
        line += [entry(where(own, "class", label), column) for own in methods.values()]
        body.append(line)
    columns = ("class", *(("before",) if before else ()), *methods)
    return Table(title, columns, body, wide=True)


def remarks(rows: Sequence[Row]) -> list[str]:
    """Ours and the paper's FedAF against Retrain, in one sentence each."""
    sentences = []
    for name, own in by_method(rows).items():
        pairs = paired_with_retrain(own, rows)
        if own[0]["method"] in ("overwrite", "fedaf") and pairs:
            cheaper = ratio(pairs, "gradient_evaluations")
            sentences.append(
                f"{name} minus Retrain, {len(pairs)} cells: Test Acc {difference(pairs, 'test_acc').text()} points, "
                f"BD Acc {difference(pairs, 'bd_acc').text()} points, with {cheaper.text()} times fewer gradient "
                "evaluations."
            )
    return sentences


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """The table as bars: for each class a bar of each method; a black line is the paper's mean."""
    methods, classes = by_method(rows), sorted({row["class"] for row in rows})

    panels = []
    for column, title in (("bd_acc", "BD Acc after unlearning"), ("test_acc", "Test Acc after unlearning")):
        series = {"before unlearning": [_before(where(rows, "class", label), f"{column}_before") for label in classes]}
        series |= {
            name: [entry(where(own, "class", label), column) for label in classes] for name, own in methods.items()
        }
        panels.append(Bars(title, [f"class {label}" for label in classes], series, "accuracy (%)"))
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
