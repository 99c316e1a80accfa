"""What the commands share: options that several have, what they print, and a bar that says how far they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from fedforget.federation.observed import Progress as Report

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and nothing else there.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, or a GPU such as cuda.")]
FolderArgument = Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")]


def print_result(as_json: bool, values: Any, lines: Sequence[str | Table]) -> None:
    if as_json:
        print(json.dumps(values))
        return
    for line in lines:
        Console(highlight=False).print(line, markup=False, soft_wrap=isinstance(line, str))


def terminal_bars(quiet: bool, time_left: ProgressColumn | None = None) -> Progress:
    """Bars with the time left, on standard error where that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), time_left or TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)


@contextmanager
def one_bar(quiet: bool, time_left: ProgressColumn | None = None) -> Iterator[Callable[..., None]]:
    """One bar over all that is done; what it takes are the fields of a task of `rich`."""
    with terminal_bars(quiet, time_left) as bars:
        task = bars.add_task("", total=None, left="")
        yield lambda **fields: bars.update(task, **fields)


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Report]:
    """A bar for each thing that is done."""
    with terminal_bars(quiet) as bars:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report
