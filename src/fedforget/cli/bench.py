"""`fedforget bench`: speed, as ratios in one run, on the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from fedforget.cli.reproduce import show_tables
from fedforget.cli.terminal import DeviceOption, JsonOption, one_bar
from fedforget.experiments.benchmarks.measuring import Run
from fedforget.experiments.benchmarks.page import summary
from fedforget.experiments.benchmarks.parts import PARTS, run_parts


def bench(
    part: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(PARTS)}; may be repeated.")] = None,
    device: DeviceOption = "cpu",
    repeats: Annotated[int, typer.Option(help="How often each thing is timed; the median counts.")] = 3,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = os.cpu_count() or 1,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, to see that it works.")] = False,
    out: Annotated[Path | None, typer.Option(help="A JSON file that takes the results in, part by part.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure speed, as ratios: a request beside other methods, and how it grows.

    It grows with clients, parameters, rows of the sketch and target."""
    run = Run(device=device, quick=quick, repeats=repeats, threads=threads)
    with one_bar(as_json) as show:
        results = run_parts(
            part or [], run, out, lambda done, total, what: show(completed=done, total=total, description=escape(what))
        )
    if as_json:
        print(json.dumps(results))
        return
    show_tables(Console(highlight=False), summary(results))
