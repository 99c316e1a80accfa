"""Intervals on the committed pages, worked out again from the cells by code that shares nothing with the pages'."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

RESULTS = Path(__file__).parents[2] / "docs" / "results"
T = {1: 12.706204736, 2: 4.302652730, 3: 3.182446305}
"""Student's 97.5 % quantile, from a printed table, by degrees of freedom."""


@pytest.mark.parametrize(
    ("page", "method", "preset"),
    [
        ("mnist", "overwrite", "default"), ("cifar10", "overwrite", "default"), ("cifar10", "cdp", "paper"),
        ("cifar10", "sga", "ewc"), ("celeba", "overwrite", "default"), ("celeba", "fedaf", "paper"),
        ("celeba-paper", "fedaf-c", "default"), ("celeba-paper", "cdp", "code"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("column", ["bd_acc", "test_acc"])
def test_an_interval_on_a_page_is_that_of_its_cells(page: str, method: str, preset: str, column: str):
    cells = [json.loads(line) for line in (RESULTS / f"completeness-{page}.jsonl").read_text().splitlines()]
    of = {(c["method"], c["preset"], c["class"], c["seed"]): c[column] for c in cells if c["note"] is None}
    gaps = defaultdict(list)
    for (name, kind, label, seed), value in of.items():
        if (name, kind) == (method, preset) and ("retrain", "default", label, seed) in of:
            gaps[seed].append(value - of["retrain", "default", label, seed])
    draws = np.array([np.mean(own) for own in gaps.values()])
    half = T[len(draws) - 1] * np.std(draws, ddof=1) / np.sqrt(len(draws))

    tables = json.loads((RESULTS / f"completeness-{page}.json").read_text())["tables"]
    (against,) = (table for table in tables if "minus Retrain" in table["title"])
    (line,) = (row for row in against["rows"] if row[0] == (method if preset == "default" else f"{method} {preset}"))
    shown = line[1 if column == "bd_acc" else 2]
    assert shown["count"] == len(draws)
    assert [shown["mean"], *shown["interval"]] == pytest.approx(
        [draws.mean(), draws.mean() - half, draws.mean() + half]
    )
