"""Rows, grouped and chosen: by method, by what was varied, by their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedforget.experiments.engine import Row


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
