"""`fedforget demo`: the main job on embedded data."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from fedforget.cli.terminal import JsonOption, progress_bars
from fedforget.runs.demo import REPORTS, demo_run, where_it_ended
from fedforget.runs.record import Audit

INDENT = "   "


def demo(
    out: Annotated[Path, typer.Option(help="Where to write the run and the reports.")] = Path("demo"),
    as_json: JsonOption = False,
) -> None:
    """The main job on embedded data: train, serve a poisoned and an honest request, audit both against Retrain."""
    console = Console(stderr=as_json, highlight=False)

    def say(line: str) -> None:
        shown = textwrap.fill(line, console.width, subsequent_indent=INDENT, break_long_words=False)
        console.print(shown, markup=False, soft_wrap=True)

    with progress_bars(as_json) as progress:
        audits = demo_run(out, progress=progress, say=say)
    if as_json:
        print(json.dumps({"audits": [audit.to_json() for audit in audits]}))
        return
    console.print(demo_table(audits))
    for audit in audits:
        for line in where_it_ended(out, audit):
            say(line)
        console.print(f"{INDENT}Report: {out / REPORTS[audit.requests[0]]}", markup=False, soft_wrap=True)


def demo_table(audits: Sequence[Audit]) -> Table:
    """Every model of both requests: how much of the target it knows, and what else it knows."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("percent", no_wrap=True)
    table.add_column("", no_wrap=True)
    for column in ("as\ntrained", "1 round\nlater", "test\ndata", "seconds", "gradients"):
        table.add_column(column, justify="right", no_wrap=True)
    for audit in audits:
        for row in audit.rows:
            shares = [row.now and row.now.bd_acc, row.later and row.later.bd_acc, row.now and row.now.test_acc]
            paid = ("–", "–")
            if row.cost is not None:
                paid = (f"{row.cost.total_seconds:.2f}", f"{row.cost.gradient_evaluations:,.0f}")
            shown = ["–" if share is None else f"{share:.1f}" for share in shares]
            table.add_row(audit.target if row.name == "before" else "", row.method, *shown, *paid)
        table.add_section()
    return table
