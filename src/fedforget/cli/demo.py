"""`fedforget demo`: the main job on embedded data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedforget.cli.audit import show_audit
from fedforget.cli.terminal import JsonOption, progress_bars
from fedforget.runs.demo import demo_run
from fedforget.runs.record import REPORT


def demo(
    out: Annotated[Path, typer.Option(help="Where to write the run and the report.")] = Path("demo"),
    as_json: JsonOption = False,
) -> None:
    """The main job on embedded data: train, receive a request, forget, audit against Retrain, show a report."""
    console = Console(stderr=as_json, highlight=False)
    with progress_bars(as_json) as progress:
        result = demo_run(out, progress=progress, say=lambda line: console.print(line, markup=False))
    if as_json:
        print(json.dumps(result.to_json()))
        return
    show_audit(result, out / REPORT)
