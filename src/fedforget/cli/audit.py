"""`fedforget audit`: what was forgotten, as a table with verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fedforget.audit.verdict import verdict_line
from fedforget.cli import targets
from fedforget.cli.terminal import DeviceOption, FolderArgument, JsonOption, progress_bars
from fedforget.runs.audit import audit_run
from fedforget.runs.climb import Rung
from fedforget.runs.folder import Run
from fedforget.runs.record import BEFORE, REPORT, Audit
from fedforget.runs.told import notes_beside


def audit(
    run: FolderArgument,
    client: targets.ClientOption = None,
    label: targets.ClassOption = None,
    samples: targets.SamplesOption = None,
    feature: targets.FeatureOption = None,
    whole_client: targets.WholeOption = False,
    target: targets.TargetOption = None,
    level: Annotated[
        str,
        typer.Option(help="How closely to look: alone (no oracle, no verdict), quick (3 oracles) or full (8)."),
    ] = "quick",
    oracles: Annotated[int | None, typer.Option(help="How many models to retrain for comparison.")] = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Compare every model that forgot with the model before and with retrained ones, judge it, write report.html."""
    requests = targets.read_requests(client, label, samples, feature, whole_client, target)
    with progress_bars(as_json) as progress:
        result = audit_run(run, requests or None, level=level, oracles=oracles, progress=progress, device=device)
    if as_json:
        print(json.dumps(result.to_json()))
        return
    show_audit(result, Run(run).folder / REPORT)


def show_audit(result: Audit, report: Path) -> None:
    """The audit's table on the terminal."""
    console = Console(highlight=False)
    feature = any(row.sensitivity is not None for row in result.rows)
    title = f"Forgetting {result.target} ({result.target_samples} samples), in percent: test data;\n" + (
        "test data without the feature; retained data; S: how sensitive the model is to the feature"
        if feature
        else "the target as trained, after one further round, as its true class; retained data"
    )
    columns = ("test", "as\ntrained", "+ 1\nround", "as\ntrue", "retained")
    if feature:
        columns = ("test", "with-\nout", "retained", "S at\nclient", "S on\nunseen")
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, collapse_padding=True)
    table.add_column("", no_wrap=True)
    for column in (*columns, "seconds", "gradients"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in result.rows:
        name = row.method if row.preset in (None, "default") else f"{row.method} {row.preset}"
        now, later, heard = row.now, row.later, row.sensitivity
        if now is None or later is None:
            table.add_row(name, "diverged", *["–"] * 6)
            continue
        figures = [now.test_acc, now.bd_acc, later.bd_acc, now.true_acc, now.retained_acc]
        if heard is not None:
            figures = [now.test_acc, heard["unseen_acc_without"], now.retained_acc]
        shown = ["–" if value is None else f"{value:.1f}" for value in figures]
        if heard is not None:
            shown += ["–" if value is None else f"{value:.4f}" for value in (heard["target"], heard["unseen"])]
        seconds = "–" if row.cost is None else f"{row.cost.total_seconds:.2f}"
        gradients = "–" if row.cost is None else f"{row.cost.gradient_evaluations:,.0f}"
        table.add_row(name, *shown, seconds, gradients)
    console.print(table)
    for row in result.rows:
        if row.verdict is not None and row.method != BEFORE:
            line = f"{row.method} ({row.preset}): {verdict_line(row.verdict)}"
            console.print(line, markup=False, soft_wrap=True)
        for note in [row.note, *notes_beside([Rung.from_json(rung) for rung in row.rungs or ()], row.notes)]:
            if note:
                console.print(f"{row.method} ({row.preset}): {note}", markup=False, soft_wrap=True)
    console.print(f"Report: {report}", markup=False, soft_wrap=True)
