"""What a method's rows are worth beside Retrain's of the same class and seed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from fedforget.experiments.engine import Row
from fedforget.experiments.summaries import by_method, grouped
from fedforget.experiments.tables import Entry, Table

RETRAIN = "retrain"
Pairs = Sequence[tuple[Row, Row]]


def paired(
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
    """Mean of row - Retrain, beside the difference of the paper's means.

    Its 95 % interval is clustered by seed: the classes of one seed share partition, initial weights and schedule, so a
    seed counts as one draw, the mean of its pairs."""
    both = [(a, b) for a, b in pairs if a[column] is not None and b[column] is not None]
    if not both:
        return Entry()
    theirs = [a - b for a, b in _printed(both, column)]
    paper = sum(theirs) / len(theirs) if theirs else None
    by_seed = grouped([{"seed": a["seed"], "gap": a[column] - b[column]} for a, b in both], lambda row: row["seed"])
    return Entry.of_differences([fmean(row["gap"] for row in own) for own in by_seed.values()], paper)


def against_retrain(rows: Sequence[Row], title: str, notes: Sequence[str] = (), *, wide: bool = False) -> Table:
    """Each method minus Retrain in the paper's two figures."""
    pairs = {name: paired(own, rows) for name, own in by_method(rows).items() if name != RETRAIN}
    body = [(name, difference(p, "bd_acc"), difference(p, "test_acc"), str(len(p))) for name, p in pairs.items()]
    return Table(title, ("", "BD Acc", "Test Acc", "pairs"), body, notes, wide)


def ratio(pairs: Pairs, column: str) -> Entry:
    """Mean of Retrain / row: how many times cheaper, beside the paper's."""
    ours = [(row[column], oracle[column]) for row, oracle in pairs if row[column] and oracle[column] is not None]
    both = (ours, _printed(pairs, column))
    return Entry.of(*([theirs / mine for mine, theirs in each if mine] for each in both), digits=1)
