"""Tables of groups of rows: a line for each group, a column for each figure of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fedforget.experiments.engine import Row
from fedforget.experiments.summaries import by_method, distinct, values, where
from fedforget.experiments.tables import Entry, Table

Figure = Callable[[Sequence[Row]], Entry]
"""What is shown of some rows."""
Columns = Mapping[str, Callable[[Sequence[Row]], str | Entry]]
"""A table's columns, by what stands above them."""
Line = list[str | Entry]


def entry(rows: Sequence[Row], column: str, digits: int = 2) -> Entry:
    """Mean and deviation of a column beside the paper's mean; a word where no row has a figure."""
    remark = "no model" if rows and all(row["note"] for row in rows) else None
    printed = [(row["paper"] or {}).get(column) for row in rows]
    return Entry.of(values(rows, column), printed, digits=digits, remark=remark)


def beside_paper(column: str) -> Figure:
    """`entry` of a column."""
    return lambda rows: entry(rows, column)


def mean(column: str, digits: int = 2, unit: float = 1.0) -> Figure:
    """Mean and deviation of a column, in such units."""
    return lambda rows: Entry.of((None if v is None else v / unit for v in values(rows, column)), digits=digits)


def at(column: str, value: object, figure: Figure) -> Figure:
    """The figure of those rows alone that have this value there."""
    return lambda rows: figure(where(rows, column, value))


def counted(rows: Sequence[Row]) -> str:
    """`9`, or `7 of 9` where some left no model."""
    whole = sum(row["note"] is None for row in rows)
    return str(whole) if whole == len(rows) else f"{whole} of {len(rows)}"


def notes_of(rows: Sequence[Row]) -> list[str]:
    """Why methods left no model: one sentence of each, and how often."""
    lines = []
    for name, own in by_method(rows).items():
        notes = [row["note"] for row in own if row["note"]]
        if notes:
            lines.append(f"{name}, {len(notes)} of {len(own)} cells without a model, for example: {notes[0]}")
    return lines


def table(
    title: str, groups: Mapping[str, Sequence[Row]], columns: Columns, notes: Sequence[str] = (), *, first: str = "",
    wide: bool = False,
) -> Table:  # fmt: skip
    """A line for each group of rows, a column for each figure of it."""
    lines: list[Line] = [[name, *(figure(own) for figure in columns.values())] for name, own in groups.items()]
    return Table(title, (first, *columns), lines, notes, wide)


def crossed(title: str, column: str, groups: Mapping[str, Sequence[Row]], figure: Figure) -> Table:
    """A line for each value of `column`, a column for each group of rows."""
    found = distinct([row for own in groups.values() for row in own], column)
    lines: list[Line] = [
        [str(value), *(figure(where(own, column, value)) for own in groups.values())] for value in found
    ]
    return Table(title, (column, *groups), lines, wide=True)
