"""`fedforget reproduce NAME`: a table or figure of the paper, on the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import TextColumn
from rich.table import Table as RichTable

from fedforget.cli.terminal import DeviceOption, JsonOption, one_bar
from fedforget.experiments import EXPERIMENTS
from fedforget.experiments.configurations import CONFIGURATIONS
from fedforget.experiments.engine import Step
from fedforget.experiments.tables import Table
from fedforget.experiments.whole import ALL, DATASET, chosen, reproduce_named


def reproduce(
    name: Annotated[str, typer.Argument(help=f"{ALL}, or one of {', '.join(EXPERIMENTS)}.", metavar="NAME")],
    dataset: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(CONFIGURATIONS)}; digits, or {DATASET} for {ALL}.")
    ] = None,
    classes: Annotated[str, typer.Option(help="Such as 0-9 or 0,3,7.")] = "all",
    targets: Annotated[
        str | None, typer.Option(help="For audit: class,samples,client, each poisoned or with clean- before it.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Such as all, or retrain,fedaf:paper; all is every method of the table.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="How many; trial t has the seed --seed + t.")] = None,
    device: DeviceOption = "cpu",
    seed: Annotated[int, typer.Option(help="The first trial's seed.")] = 0,
    out: Annotated[Path, typer.Option(help="The folder for cells, models and pages.")] = Path("results"),
    merge: Annotated[
        list[Path] | None, typer.Option(help="Take in this folder's cells first; may be repeated.")
    ] = None,
    configuration: Annotated[str, typer.Option(help="default, or paper: its printed settings.")] = "default",
    threads: Annotated[int, typer.Option(help="CPU threads.")] = os.cpu_count() or 1,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer classes, trials and samples.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compute a table or figure of the paper, or all of them, and show it beside the printed numbers.

    What is done is kept in --out, cell by cell: stop it any time, and the same command goes on."""
    options = chosen(
        name, classes=classes, methods=methods, targets=targets, trials=trials, device=device, seed=seed, out=out,
        dataset=dataset, quick=quick, threads=threads, configuration=configuration,
    )  # fmt: skip
    with one_bar(as_json, TextColumn("{task.fields[left]}")) as show:

        def report(step: Step) -> None:
            left = "" if step.seconds_left is None else f"{timedelta(seconds=round(step.seconds_left))} left"
            show(description=step.what, completed=step.done, total=step.total, left=left)

        values, tables, pages = reproduce_named(name, options, merge or (), report)
    if as_json:
        print(json.dumps(values))
        return
    console = Console(highlight=False)
    show_tables(console, tables)
    console.print(f"Pages: {', '.join(map(str, pages))}", markup=False, soft_wrap=True)


def show_tables(console: Console, tables: Iterable[Table]) -> None:
    """Tables of results, each with its notes below it."""
    for table in tables:
        shown = RichTable(title=table.title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
        for number, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if number else "left")
        for row in table.cells():
            shown.add_row(*map(escape, row))
        console.print(shown)
        for note in table.notes:
            console.print(note, markup=False)
