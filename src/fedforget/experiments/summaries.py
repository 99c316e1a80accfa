"""What the tables of several experiments have in common: rows by method, columns of figures, pairs with Retrain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fedforget.experiments.drawing import Bars
from fedforget.experiments.engine import Row
from fedforget.experiments.tables import Entry, Table

RETRAIN = "retrain"
Pairs = Sequence[tuple[Row, Row]]
Figure = Callable[[Sequence[Row]], Entry]
"""What is shown of some rows."""
Columns = Mapping[str, Callable[[Sequence[Row]], str | Entry]]
"""A table's columns, by what stands above them."""
Line = list[str | Entry]


def method_name(row: Mapping[str, Any]) -> str:
    """`overwrite`, or `fedaf-c replace` where it is not the preset `default`."""
    return row["method"] if row["preset"] == "default" else f"{row['method']} {row['preset']}"


def grouped(rows: Iterable[Row], name: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """The rows of each name, in the order they come in."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return found


def by_method(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows of each method and preset, in the table's order."""
    return grouped(rows, method_name)


def by_setting(rows: Iterable[Row]) -> dict[Any, list[Row]]:
    """Rows of each varied setting, such as the target."""
    return grouped(rows, lambda row: row["setting"])


def where(rows: Iterable[Row], column: str, value: object) -> list[Row]:
    """The rows that have this value there."""
    return [row for row in rows if row[column] == value]


def distinct(rows: Iterable[Row], column: str) -> list[Any]:
    """The values there, sorted."""
    return sorted({row[column] for row in rows})


def untouched(rows: Iterable[Row]) -> list[Row]:
    """One row of each scenario, as if a method had left the model before unlearning as it was."""
    figures = ("bd_acc", "test_acc")
    return [
        row | {name: row[f"{name}_before"] for name in figures} | {
            "note": None, "paper": {name: (row["paper"] or {}).get(f"{name}_before") for name in figures}
        }
        for row in {(row["class"], row["seed"]): row for row in rows}.values()
    ]  # fmt: skip


def values(rows: Iterable[Row], column: str) -> list[float | None]:
    return [row.get(column) for row in rows]


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


def bars(
    title: str, up: str, groups: Mapping[str, Sequence[Row]], column: str, values: Mapping[Any, str], figure: Figure
) -> Bars:
    """A bar for each group of rows at each value of `column`; `values` are named on the horizontal axis."""
    series = {name: [figure(where(own, column, value)) for value in values] for name, own in groups.items()}
    return Bars(title, list(values.values()), series, up)


def paired_with_retrain(
    rows: Sequence[Row], every: Sequence[Row], alike: Sequence[str] = ("class", "seed", "setting")
) -> list[tuple[Row, Row]]:
    """(row, Retrain's row of the same class and seed); rows without figures or without a partner are left out."""

    def place(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in alike)

    oracle = {place(row): row for row in every if row["method"] == RETRAIN and row["note"] is None}
    return [(row, oracle[place(row)]) for row in rows if row["note"] is None and place(row) in oracle]


def _printed(pairs: Pairs, column: str) -> list[tuple[float, float]]:
    """The paper's values of the pairs for which it has both."""
    both = [((a["paper"] or {}).get(column), (b["paper"] or {}).get(column)) for a, b in pairs]
    return [(a, b) for a, b in both if a is not None and b is not None]


def difference(pairs: Pairs, column: str) -> Entry:
    """Mean of row - Retrain with its 95 % interval, beside the difference of the paper's means."""
    both = [(a, b) for a, b in pairs if a[column] is not None and b[column] is not None]
    if not both:
        return Entry()
    theirs = [a - b for a, b in _printed(both, column)]
    paper = sum(theirs) / len(theirs) if theirs else None
    return Entry.of_differences([a[column] - b[column] for a, b in both], paper)


def against_retrain(rows: Sequence[Row], title: str, notes: Sequence[str] = (), *, wide: bool = False) -> Table:
    """Each method minus Retrain in the paper's two figures."""
    pairs = {name: paired_with_retrain(own, rows) for name, own in by_method(rows).items() if name != RETRAIN}
    body = [(name, difference(p, "bd_acc"), difference(p, "test_acc"), str(len(p))) for name, p in pairs.items()]
    return Table(title, ("", "BD Acc", "Test Acc", "pairs"), body, notes, wide)


def ratio(pairs: Pairs, column: str) -> Entry:
    """Mean of Retrain / row: how many times cheaper, beside the paper's."""
    ours = [(row[column], oracle[column]) for row, oracle in pairs if row[column] and oracle[column] is not None]
    both = (ours, _printed(pairs, column))
    return Entry.of(*([theirs / mine for mine, theirs in each if mine] for each in both), digits=1)
