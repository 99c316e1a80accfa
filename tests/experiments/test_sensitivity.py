"""Epochs, lambda and Q: every cell carries its value, and the value is what the method works with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedforget.experiments import EXPERIMENTS, scenario
from fedforget.experiments.engine import reproduce
from fedforget.experiments.options import Options
from fedforget.federation.evaluation import FORWARD_COST

VALUES = {"epochs": (1, 2, 3, 4, 5), "lambda": (0.1, 0.5, 1, 10, 50), "teachers": (5, 10, 15, 20)}


@pytest.fixture
def settings_used(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings of every request that was served, in order."""
    used: list[Any] = []

    def watched(*values: Any, **more: Any) -> Any:
        result = real(*values, **more)
        used.append(result.settings)
        return result

    real = scenario.forget
    monkeypatch.setattr(scenario, "forget", watched)
    return used


@pytest.mark.parametrize("name", VALUES)
def test_the_cells(name: str, options: Options):
    whole = replace(options, quick=False, methods=(("fedaf", "paper"), ("overwrite", "default")))
    specs = EXPERIMENTS[name].specs(whole)
    assert len(specs) == 3 * 2 * len(VALUES[name]), "three trials of the first class, both methods"
    assert {spec.label for spec in specs} == {0}
    for method in ("fedaf", "overwrite"):
        assert [s.setting for s in specs if s.method == method and s.trial == 0] == list(VALUES[name])


@pytest.mark.real
def test_lambda_is_the_papers_strength_and_in_ours_without_the_n(options: Options, settings_used: list[Any]):
    rows = reproduce(EXPERIMENTS["lambda"], replace(options, methods=None, classes=(0,)))
    worked = [row for row in rows if row["note"] is None]
    assert [s.strength for s in settings_used] == [row["setting"] for row in worked]
    assert len(worked) >= 5
    assert [s.normalise for s in settings_used] == [row["method"] == "fedaf" for row in worked]
    assert all(row["overrides"]["strength"] == row["setting"] for row in rows)


def bills(rows: list[dict[str, Any]], method: str) -> dict[Any, float]:
    return {row["setting"]: row["gradient_evaluations"] for row in rows if row["method"] == method}


@pytest.mark.real
def test_epochs_are_passes_over_the_target(options: Options, settings_used: list[Any]):
    rows = reproduce(EXPERIMENTS["epochs"], replace(options, methods=None, classes=(0,)))
    target = sum(1 for _ in target_samples(options))
    bill = bills(rows, "overwrite")
    for epochs in VALUES["epochs"]:
        assert bill[epochs] - bill[1] == pytest.approx((epochs - 1) * target), "and nothing else changes"
    assert all(s.stop_below is None and s.min_steps == 0 for s in settings_used)
    assert bill[1] < bills(rows, "overwrite")[5]


@pytest.mark.real
def test_teachers_are_asked_about_every_target_sample(options: Options, settings_used: list[Any]):
    rows = reproduce(EXPERIMENTS["teachers"], replace(options, methods=None, classes=(0,)))
    target = sum(1 for _ in target_samples(options))
    bill = bills(rows, "fedaf")
    assert bill[20] - bill[5] == pytest.approx(15 * FORWARD_COST * target)
    assert {s.memory for s in settings_used} == {"debiased"}
    assert {s.teachers for s in settings_used} == set(VALUES["teachers"])


def target_samples(options: Options) -> list[int]:
    built = scenario.Bench(options).scenario(scenario.ScenarioSpec((0,), 0))
    return built.federation.client(0).positions(built.requests)[0].tolist()


@pytest.mark.real
def test_what_left_no_model_is_a_word_in_the_table_and_a_sentence_below(options: Options):
    rows = reproduce(EXPERIMENTS["lambda"], replace(options, methods=None, classes=(0,)))
    for row in rows:
        if row["preset"] == "paper":
            row |= {"note": "It diverged.", "bd_acc": None, "test_acc": None, "retained_acc": None, "true_acc": None}
    table = EXPERIMENTS["lambda"].tables(rows)[0]
    assert [line[1].text() for line in table.rows] == ["no model"] * 5
    assert any("It diverged." in note for note in table.notes)
    said = EXPERIMENTS["lambda"].remarks(rows)
    assert "fedaf paper: no value of lambda left a model." in said
    assert (
        "The paper prints no numbers here; its text says: Target accuracy is almost 0 % for lambda up to 10" in said[0]
    )
