"""The core result: its cells, and forgetting to zero among the clean targets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedforget.experiments.core import CORE, ZERO
from fedforget.experiments.engine import reproduce
from fedforget.experiments.options import Options, parse_methods
from fedforget.experiments.pages import write_pages


def test_the_cells():
    specs = CORE.specs(Options(dataset="mnist", methods=parse_methods(CORE.methods or "")))
    assert len(specs) == 111
    assert {spec.trial for spec in specs if spec.setting in ("samples", "client", "mlp", "vit", "own", "paper")} == {0}
    assert {spec.preset for spec in specs if spec.setting == ZERO} == {"recommended"}
    elsewhere = [spec for spec in specs if spec.scenario.configuration]
    assert all((spec.setting, spec.label) == (spec.scenario.configuration, 3) for spec in elsewhere)


@pytest.mark.real
def test_clean_targets_stand_beside_forgetting_to_zero(options: Options):
    chosen = replace(options, classes=(3,), methods=parse_methods("retrain,fedaf"), targets=("clean-class",))
    rows = reproduce(CORE, chosen)
    assert [row["setting"] for row in rows] == ["clean-class"] * 3 + [ZERO]
    assert all(row["test_acc_after_round"] is not None for row in rows)
    (table,) = CORE.tables(rows)
    assert [line[0] for line in table.rows] == ["before", "retrain", "fedaf recommended", "fedaf to-zero"]
    page = write_pages(CORE, CORE.cell_file(chosen))[0].read_text()
    assert "\n- retrain: meets every line.\n" in page
