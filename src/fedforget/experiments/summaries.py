"""What the tables of several experiments have in common: rows by method, notes, and pairs with Retrain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fedforget.experiments.engine import Row
from fedforget.experiments.tables import Entry, Table

RETRAIN = "retrain"


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


def values(rows: Iterable[Row], column: str) -> list[float | None]:
    return [row.get(column) for row in rows]


def printed(rows: Iterable[Row], column: str) -> list[float | None]:
    """The paper's values beside these rows."""
    return [(row["paper"] or {}).get(column) for row in rows]


def entry(rows: Sequence[Row], column: str, digits: int = 2) -> Entry:
    """Mean and deviation of a column beside the paper's mean; a word where no row has a figure."""
    remark = "no model" if rows and all(row["note"] for row in rows) else None
    return Entry.of(values(rows, column), printed(rows, column), digits=digits, remark=remark)


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


def paired_with_retrain(
    rows: Sequence[Row], every: Sequence[Row], alike: Sequence[str] = ("class", "seed", "setting")
) -> list[tuple[Row, Row]]:
    """(row, Retrain's row of the same class and seed); rows without figures or without a partner are left out."""

    def place(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in alike)

    oracle = {place(row): row for row in every if row["method"] == RETRAIN and row["note"] is None}
    return [(row, oracle[place(row)]) for row in rows if row["note"] is None and place(row) in oracle]


def difference(pairs: Sequence[tuple[Row, Row]], column: str) -> Entry:
    """Mean of row - Retrain with its 95 % interval, beside the difference of the paper's means."""
    both = [(a, b) for a, b in pairs if a[column] is not None and b[column] is not None]
    if not both:
        return Entry()
    theirs = _differences(both, column)
    paper = sum(theirs) / len(theirs) if theirs else None
    return Entry.of_differences([a[column] - b[column] for a, b in both], paper)


def against_retrain(rows: Sequence[Row], title: str, notes: Sequence[str] = (), *, wide: bool = False) -> Table:
    """Each method minus Retrain in the paper's two figures."""
    pairs = {name: paired_with_retrain(own, rows) for name, own in by_method(rows).items() if name != RETRAIN}
    body = [(name, difference(p, "bd_acc"), difference(p, "test_acc"), str(len(p))) for name, p in pairs.items()]
    return Table(title, ("", "BD Acc", "Test Acc", "pairs"), body, notes, wide)


def _differences(pairs: Sequence[tuple[Row, Row]], column: str) -> list[float]:
    papers = [((a["paper"] or {}).get(column), (b["paper"] or {}).get(column)) for a, b in pairs]
    return [a - b for a, b in papers if a is not None and b is not None]


def ratio(pairs: Sequence[tuple[Row, Row]], column: str, digits: int = 1) -> Entry:
    """Mean of Retrain / row: how many times cheaper, beside the paper's."""

    def over(get: Callable[[Row], float | None]) -> list[float | None]:
        both = [(get(row), get(oracle)) for row, oracle in pairs]
        return [b / a if a and b is not None else None for a, b in both]

    return Entry.of(over(lambda r: r[column]), over(lambda r: (r["paper"] or {}).get(column)), digits=digits)
