"""The ablation: one thing at a time around `overwrite`, PCA in place of the sketch, and bills that stand alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedforget.experiments import EXPERIMENTS
from fedforget.experiments.ablation import BASE, FACTORS, variants
from fedforget.experiments.engine import Row, reproduce
from fedforget.experiments.options import Options
from fedforget.methods.fedaf.settings import OVERWRITE

ABLATION = EXPERIMENTS["ablation"]


@pytest.fixture
def chosen(options: Options) -> Options:
    return replace(options, methods=None, classes=(0,))


def only(*settings: str) -> object:
    """The experiment with these variants alone."""
    return replace(ABLATION, specs=lambda options: [s for s in ABLATION.specs(options) if s.setting in settings])


def test_every_variant_is_a_valid_change_of_one_factor():
    found = variants(tuple(FACTORS))
    assert found[BASE] == {}
    settings = [replace(OVERWRITE.opened(), **changes) for changes in found.values()]
    assert len(set(settings)) == len(found), "no two are the same, and none but the first is the base"
    assert {
        "strength=0.0", "preserver=pca", "preserver=diagonal", "penalty=gradient", "memory=debiased",
        "sketch_labels=data", "sketch_labels=mas", "sketch_data=all", "recovery_rounds=0", "aggregation=average-idle",
    } <= set(found)  # fmt: skip
    rows = {changes["sketch_rows"] for changes in FACTORS["rows s"]}
    assert {OVERWRITE.for_network(size).sketch_rows for size in (10**4, 10**7)} <= rows
    assert all({"preserver": kind, "sketch_rows": s} in FACTORS["rows s"] for s in rows for kind in ("sketch", "pca"))


def test_the_cells(chosen: Options):
    whole = replace(chosen, quick=False, classes=None, methods=(("overwrite", "default"),))
    specs = ABLATION.specs(whole)
    assert len(specs) == 3 * len(variants(tuple(FACTORS)))
    assert all(dict(spec.overrides) == variants(tuple(FACTORS))[str(spec.setting)] for spec in specs)
    assert len(ABLATION.specs(replace(whole, quick=True))) < len(specs) / 3


def of(rows: list[Row], setting: str) -> Row:
    (row,) = (row for row in rows if row["setting"] == setting)
    return row


@pytest.mark.real
def test_pca_has_the_smaller_error_and_no_more_rows(chosen: Options):
    rows = reproduce(only(BASE, "preserver=pca", "strength=0.0", "preserver=diagonal"), chosen)
    base, pca, off = (of(rows, name) for name in (BASE, "preserver=pca", "strength=0.0"))
    assert 0 <= pca["sketch_error"] < base["sketch_error"]
    assert off["sketch_error"] == base["sketch_error"], "the sketch is made, and not used"
    assert of(rows, "preserver=diagonal")["sketch_error"] is None
    assert pca["method_settings"]["preserver"] == "pca"
    assert 0 < pca["stored_bytes"] <= base["stored_bytes"], "as many rows, or one for each sample"
    assert (off["bd_acc"], off["retained_acc"], off["target_loss"]) != tuple(
        base[name] for name in ("bd_acc", "retained_acc", "target_loss")
    )
    said = ABLATION.remarks(rows)
    assert "The paper: compared with PCA" in said[0]
    assert said[1].startswith(f"s = {OVERWRITE.for_network(10**4).sketch_rows}: sketch eps ")
    table = ABLATION.tables(rows)[0]
    assert [line[0] for line in table.rows] == [BASE, "strength=0.0", "preserver=diagonal", "preserver=pca"]


@pytest.mark.real
def test_what_auto_stands_for_is_not_shown_twice(chosen: Options):
    s = OVERWRITE.for_network(10**4).sketch_rows
    rows = reproduce(only(BASE, f"sketch_rows={s}", "sketch_rows=10"), replace(chosen, quick=False, trials=1))
    assert len(rows) == 3
    (table,) = ABLATION.tables(rows)
    assert [(line[0], line[-1]) for line in table.rows] == [
        ("preserver=sketch sketch_rows=10", "1"), (f"preserver=sketch sketch_rows={s} (as it is)", "1"),
    ]  # fmt: skip
    assert of(rows, BASE)["method_settings"] == of(rows, f"sketch_rows={s}")["method_settings"]
    assert of(rows, BASE)["test_acc"] == of(rows, f"sketch_rows={s}")["test_acc"]


@pytest.mark.real
def test_a_bill_does_not_depend_on_the_cell_before(chosen: Options):
    """A forgetting that diverged leaves a sketch at the client; the next cell must make its own."""
    together = reproduce(only("penalty=gradient", "strength=1.0"), chosen)
    alone = reproduce(only("strength=1.0"), replace(chosen, out=chosen.out / "alone"))
    assert of(together, "penalty=gradient")["note"] is not None
    assert of(together, "strength=1.0")["gradient_evaluations"] == alone[0]["gradient_evaluations"]
    assert of(together, "strength=1.0")["test_acc"] == alone[0]["test_acc"]


def test_a_plain_gradient_step_says_why_it_diverged(chosen: Options):
    rows = reproduce(only(BASE, "penalty=gradient"), chosen)
    note = of(rows, "penalty=gradient")["note"]
    assert "stable only below a learning rate of" in note
    table = next(t for t in ABLATION.tables(rows) if t.title.startswith("penalty's step"))
    assert table.rows[1][1].text() == "no model"
    assert any(note in said for said in table.notes)


@pytest.mark.real
def test_a_factor_that_was_not_run_has_no_table(chosen: Options):
    rows = reproduce(only(BASE, "memory=uniform"), chosen)
    assert [table.title.partition(":")[0] for table in ABLATION.tables(rows)] == ["memory"]
    (memory,) = ABLATION.tables(rows)
    assert [line[0] for line in memory.rows] == ["memory=uniform", "memory=reminded (as it is)"]
