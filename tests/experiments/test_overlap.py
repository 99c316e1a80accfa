"""Overlapping validation: what is relabelled where, what a model learns from it, and which setting is the paper's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedforget.experiments import EXPERIMENTS
from fedforget.experiments.configurations import CONFIGURATIONS
from fedforget.experiments.engine import reproduce
from fedforget.experiments.options import Options
from fedforget.experiments.overlap import mixed_labels, paper_values, remarks, whose_data
from fedforget.experiments.paper_numbers import LABELS, OVERLAP_NON_TARGET
from fedforget.experiments.scenario import Bench, Scenario, ScenarioSpec

OVERLAP = EXPERIMENTS["overlap"]


@pytest.fixture
def scenario(options: Options) -> Scenario:
    return Bench(options).scenario(ScenarioSpec((3,), 0, poisoned=False))


def test_the_cells(options: Options):
    whole = replace(options, quick=False, methods=None)
    assert len(OVERLAP.specs(whole)) == 3 * 10 * 2 * 4
    quick = OVERLAP.specs(replace(whole, quick=True))
    assert {(spec.preset, spec.setting) for spec in quick} == {(w, k) for w in ("client", "pooled") for k in LABELS}
    assert {spec.label for spec in quick} == {0, 1}
    assert not any(spec.scenario.poisoned for spec in quick)


@pytest.mark.parametrize("kind", LABELS)
def test_only_the_target_class_is_relabelled(scenario: Scenario, kind: Any):
    for where in ("client", "pooled"):
        client = whose_data(where, scenario)
        labels, _ = mixed_labels(kind, client, scenario)
        target = client.samples.labels == 3
        assert 0 < int(target.sum()) < len(target)
        assert torch.equal(labels[~target].argmax(1), client.samples.labels[~target])
        assert torch.equal(labels[~target].sum(1), torch.ones(int((~target).sum())))
        assert float(labels[~target].max(1).values.min()) == 1.0
        assert torch.allclose(labels[target].sum(1), torch.ones(int(target.sum())))
        assert float(labels[target].max()) < 1.0, "no target sample keeps a label it is sure of"
        if kind == "uniform":
            assert torch.allclose(labels[target], torch.full((1, 10), 0.1))
        if kind == "debiased":
            teacher, _ = mixed_labels("teacher", client, scenario)
            assert bool((labels[target][:, 3] <= teacher[target][:, 3] + 1e-6).all()), "never more than the teachers'"
            assert float((teacher - labels)[target].abs().max()) > 0


def test_whose_data(scenario: Scenario):
    own, pooled = whose_data("client", scenario), whose_data("pooled", scenario)
    assert torch.equal(pooled.samples.ids, scenario.dataset.train.ids)
    assert set(own.samples.ids.tolist()) < set(pooled.samples.ids.tolist())
    assert len(own.samples) * 4 == pytest.approx(len(pooled.samples), abs=4)


@pytest.mark.real
def test_a_model_learns_the_rest_and_not_the_target(options: Options, monkeypatch: pytest.MonkeyPatch):
    configuration = replace(CONFIGURATIONS["digits"]["default"], rounds=8, quick_samples=(1000, 300))
    monkeypatch.setitem(CONFIGURATIONS["digits"], "default", configuration)
    rows = reproduce(OVERLAP, replace(options, methods=None, classes=(0,)))
    for row in rows:
        assert row["non_target_acc"] > 75, row["setting"]
        assert row["target_class_test_acc"] < 40, row["setting"]
        assert row["epochs"] == 8
        assert row["test_acc"] < row["non_target_acc"]
    pooled = [row for row in rows if row["preset"] == "pooled"]
    assert {row["samples"] for row in pooled} == {1000}
    assert {row["samples"] for row in rows} == {1000, 250}
    evaluations = {row["setting"]: row["gradient_evaluations"] for row in pooled}
    assert evaluations["uniform"] == 8 * 1000
    assert evaluations["teacher"] == evaluations["debiased"] > evaluations["uniform"], "teachers are not for free"


def fake(where: str, kind: str, non_target: float) -> dict[str, Any]:
    row = {"dataset": "mnist", "class": 0, "preset": where, "setting": kind, "non_target_acc": non_target,
           "target_class_test_acc": 5.0, "note": None}  # fmt: skip
    return row | {"paper": paper_values(row)}


@pytest.mark.parametrize(("client", "pooled", "near"), [(98.0, 99.0, "pooled"), (98.8, 95.0, "client")])
def test_the_page_says_which_setting_is_nearer_to_the_paper(client: float, pooled: float, near: str):
    printed = OVERLAP_NON_TARGET["mnist", "0"]
    assert {printed[kind] for kind in LABELS} == {98.9}
    rows = [fake(where, kind, value) for where, value in (("client", client), ("pooled", pooled)) for kind in LABELS]
    said = remarks(rows)[0]
    assert f"{abs(client - 98.9):.2f} points in the setting client" in said
    assert f"{abs(pooled - 98.9):.2f} points in the setting pooled" in said
    assert f"the setting {near} resembles it more" in said
    assert "none is closer" in remarks([row | {"paper": None} for row in rows])[0]
