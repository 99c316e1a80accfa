"""Table "Running time of unlearning one class in a client" (tab:time).

Its cells are those of `completeness`: the bill of every request is written down there. What is computed under one name
is found under the other, and asking for `time` alone computes the first class, which is the one the paper times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedforget.experiments.drawing import Bars, bar_charts
from fedforget.experiments.engine import CellSpec, Experiment, Row, request_specs
from fedforget.experiments.options import Options
from fedforget.experiments.paper_numbers import running_time
from fedforget.experiments.summaries import by_method, counted, entry, notes_of, paired_with_retrain, ratio, values
from fedforget.experiments.tables import Entry, Table

SAME_MACHINE = ("class", "seed", "hardware", "threads")
"""Seconds are compared within one machine alone."""
MEGABYTE = 1e6


def specs(options: Options) -> list[CellSpec]:
    return request_specs(replace(options, classes=options.classes or (0,)))


def tables(rows: Sequence[Row]) -> list[Table]:
    return [_time(rows), _memory(rows)]


def _time(rows: Sequence[Row]) -> Table:
    body: list[list[str | Entry]] = []
    for name, own in by_method(rows).items():
        machine = paired_with_retrain(own, rows, SAME_MACHINE)
        body.append(
            [name, entry(own, "seconds"), ratio(machine, "seconds"),
             Entry.of(values(own, "gradient_evaluations"), digits=0),
             ratio(paired_with_retrain(own, rows), "gradient_evaluations"), counted(own)]
        )  # fmt: skip
    machines = sorted({f"{row['hardware']}, {row['threads']} threads" for row in rows})
    return Table(
        "Running time of unlearning one class of one client",
        ("", "seconds", "Retrain / seconds", "gradient evaluations", "Retrain / gradient evaluations", "cells"),
        body,
        (
            "Seconds of the whole request, from its arrival to the final global model. A gradient evaluation is one "
            "sample's forward and backward pass; a forward pass alone counts 0.4. "
            f"Ours on {' and '.join(machines)}; the paper's on an RTX 3090, for its first class.",
            *notes_of(rows),
        ),
    )


def _memory(rows: Sequence[Row]) -> Table:
    columns = {"bytes": "sent", "stored_bytes": "stored beside the model", "peak_bytes": "peak memory"}
    body: list[list[str | Entry]] = [
        [name, *(Entry.of(None if v is None else v / MEGABYTE for v in values(own, column)) for column in columns)]
        for name, own in by_method(rows).items()
    ]
    return Table("Megabytes of one request", ("", *columns.values()), body)


def paper_values(row: Mapping[str, Any]) -> dict[str, float] | None:
    return running_time(row["dataset"], row["method"])


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Seconds and gradient evaluations of each method on a logarithmic axis; a black line is the paper's."""
    methods = by_method(rows)
    panels = [
        Bars(title, list(methods), {"ours": [entry(own, column) for own in methods.values()]}, title, logarithmic=True)
        for column, title in (("seconds", "seconds"), ("gradient_evaluations", "gradient evaluations"))
    ]
    return bar_charts(stem, f"Running time of unlearning one class of one client, {rows[0]['dataset']}", rows, panels)


TIME = Experiment(
    name="time",
    title="Running time of unlearning one class in a client",
    label="tab:time",
    specs=specs,
    tables=tables,
    paper=paper_values,
    figures=figures,
    shares="completeness",
)
