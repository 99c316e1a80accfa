"""`fedforget demo`: the main job on embedded data."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedforget.cli.audit import audit_table
from fedforget.cli.terminal import JsonOption, progress_bars
from fedforget.runs.demo import demo_run, where_it_ended

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
    for audit in audits:
        console.print()
        console.print(audit_table(audit))
        for line in where_it_ended(out, audit):
            say(line)
