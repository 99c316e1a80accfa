"""The price list: every figure on it is a method minus Retrain of the same scenario."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedforget.experiments.cells import read_cells
from fedforget.experiments.durability import DURABILITY, prices
from fedforget.experiments.engine import ordered_rows, reproduce
from fedforget.experiments.options import Options, parse_methods
from fedforget.experiments.pages import write_overview
from fedforget.experiments.tables import Entry


@pytest.mark.real
def test_the_page_is_made_of_the_cells(options: Options):
    chosen = replace(options, methods=parse_methods("retrain,overwrite"), targets=("class",), classes=(0,))
    rows = reproduce(DURABILITY, chosen)
    retrain, overwrite = (next(row for row in rows if row["method"] == name) for name in ("retrain", "overwrite"))
    table = prices("class", {"digits": rows})
    line = next(line for line in table.rows if line[1] == "overwrite")
    cost, bd, bd_later, test, _ = (entry for entry in line if isinstance(entry, Entry))
    assert cost.mean == pytest.approx(100 * overwrite["gradient_evaluations"] / retrain["gradient_evaluations"])
    assert bd.mean == pytest.approx(overwrite["later"]["3"]["bd_acc"] - retrain["later"]["3"]["bd_acc"])
    assert test.mean == pytest.approx(overwrite["later"]["3"]["test_acc"] - retrain["later"]["3"]["test_acc"])
    assert bd_later.mean is None, "a quick run ends after 3 rounds"
    assert "retrain" not in [line[1] for line in table.rows]

    (page,) = write_overview(DURABILITY, DURABILITY.cell_file(chosen).parent)
    assert "overwrite" in page.read_text()
    assert "digits-quick" in page.read_text()


def test_of_an_honest_target_the_accuracy_on_it_stands_first():
    """The gap to unseen data alone does not show that a whole class was lost."""
    committed = Path(__file__).parents[2] / "docs" / "results" / "durability-cifar10.jsonl"
    rows = [row for row in ordered_rows(DURABILITY, read_cells(committed)) if row["target"] == "clean-class"]
    first, *_ = DURABILITY.tables(rows)
    assert first.title == "accuracy on the target (%), target clean-class, after further rounds"
    (before,) = (row for row in rows if row["method"] == "before")
    line = next(line for line in first.rows if line[0] == "before")
    assert [e.mean for e in line if isinstance(e, Entry)] == [later["bd_acc"] for later in before["later"].values()]


def test_no_cells_no_page(tmp_path: Path):
    assert write_overview(DURABILITY, tmp_path) == []
