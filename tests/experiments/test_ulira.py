"""U-LiRA as an experiment: the untouched models are told from those that never saw R, a second set of such is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedforget.audit.distributions import klom
from fedforget.errors import InputError
from fedforget.experiments import EXPERIMENTS, engine
from fedforget.experiments.configurations import CONFIGURATIONS
from fedforget.experiments.engine import Row, reproduce
from fedforget.experiments.options import Options, parse_methods
from fedforget.experiments.pages import write_pages
from fedforget.experiments.scenario import Bench, Scenario
from fedforget.experiments.ulira import MEMORISED, compare, remarks, subjects, tables

ULIRA = EXPERIMENTS["ulira"]


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 digits, of which 37 are R."""
    small = replace(CONFIGURATIONS["digits"][MEMORISED], rounds=10, quick_samples=(300, 60))
    monkeypatch.setitem(CONFIGURATIONS["digits"], MEMORISED, small)


def made(method: str, mean: float, seed: int, *, unseen: float = 0.0, models: int = 6, n: int = 40) -> list[Row]:
    """Rows of models whose margins on R are about `mean` above an oracle's, and `unseen` above on other samples."""
    generator = torch.Generator().manual_seed(seed)
    difficulty = torch.linspace(-2, 2, n)
    rows = []
    for shadow in range(models):
        noise = torch.randn(2, n, generator=generator)
        rows.append(
            {
                "method": method, "preset": "default", "target": "samples", "setting": 0, "seed": shadow, "note": None,
                "margins": (difficulty + mean + noise[0]).tolist(), "unseen_margins": (unseen + noise[1]).tolist(),
                "test_acc": 90.0, "bd_acc": 50.0, "paper": None, "dataset": "digits", "quick": False,
                "rounds": 10, "lr": 0.05, "batch_size": 16,
            }
        )  # fmt: skip
    return rows


def test_the_cells(options: Options):
    whole = replace(options, quick=False, methods=parse_methods("retrain,fedquit"))
    specs = ULIRA.specs(whole)
    assert len(specs) == 16 * 2 * 4, "16 shadows, two targets; Retrain is a subject anyway and is not there twice"
    assert [spec.method for spec in specs[:4]] == ["before", "oracle", "retrain", "fedquit"]
    assert {spec.scenario.seed for spec in specs} == set(range(16))
    assert len(ULIRA.specs(replace(whole, quick=True))) == 8 * 2 * 4
    assert len(ULIRA.specs(replace(whole, trials=5, targets=("samples",)))) == 5 * 4


def test_shadows_of_another_partition_are_other_cells(options: Options):
    """--seed 0 and --seed 4 both have a shadow of seed 5, but not the same clients."""
    keys = [
        {ULIRA.key(spec, chosen) for spec in ULIRA.specs(chosen)}
        for chosen in (replace(options, seed=0), replace(options, seed=4))
    ]
    assert len(keys[0]) == len(keys[1]) > 0
    assert not keys[0] & keys[1]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"trials": 3}, "U-LiRA needs 4 models of each kind, so --trials must be that or larger."),
        ({"targets": ("class",)}, "Experiment 'ulira' takes the targets samples and clean-samples."),
        ({"dataset": "cifar10"}, "Experiment 'ulira' has federations of its own, for mnist and digits in the "),
        ({"dataset": "mnist", "configuration": "paper"}, "has federations of its own, for mnist and digits in the "),
    ],
)
def test_what_it_cannot_do_is_refused_before_any_work(options: Options, changed: dict[str, Any], sentence: str):
    with pytest.raises(InputError) as refused:
        reproduce(ULIRA, replace(options, **changed))
    assert sentence in str(refused.value)
    assert not options.out.exists()


def test_the_shadows_share_the_clients_and_the_target(options: Options):
    bench = Bench(options)
    poisoned, clean = (
        [bench.scenario(spec.scenario) for spec in ULIRA.specs(replace(options, targets=(target,)))[::5][:2]]
        for target in ("samples", "clean-samples")
    )
    assert poisoned[0].spec.seed != poisoned[1].spec.seed
    made = [(scenario.federation, *scenario.requests) for scenario in (*poisoned, *clean)]
    for federation, request in made:
        assert request == made[0][1]
        assert torch.equal(federation.client(0).samples.ids, made[0][0].client(0).samples.ids)
        assert len(request.sample_ids) == len(federation.client(0).samples) // 2
    labels = [federation.client(0).target([request]).labels for federation, request in made]
    assert len(labels[0].unique()) == 1, "one wrong label"
    assert torch.equal(labels[0], labels[1])
    assert len(labels[2].unique()) > 5, "clean"
    assert bench.scenario(replace(poisoned[0].spec, data_seed=1)).requests[0] != made[0][1]


@pytest.mark.real
def test_untouched_models_are_told_apart_and_retrained_ones_are_not(options: Options, monkeypatch: pytest.MonkeyPatch):
    asked = []

    class Watched(Bench):
        def scenario(self, *arguments: Any, **more: Any) -> Scenario:
            found = super().scenario(*arguments, **more)
            asked.extend(found.requests)
            return found

    monkeypatch.setattr(engine, "Bench", Watched)
    chosen = replace(options, trials=5, targets=("samples",), methods=parse_methods("overwrite,cdp"))
    rows = reproduce(ULIRA, chosen)
    assert (len(asked), len(rows)) == (5, 25)
    assert len(set(asked)) == 1, "one target for all shadows"
    by_name = {name: [row for row in rows if row["method"] == name] for name in ("before", "oracle", "retrain", "cdp")}
    every = [tuple(row["margins"]) for name in ("before", "oracle", "retrain") for row in by_name[name]]
    assert len(set(every)) == 15, "models of their own, all of them"
    assert len({len(phi) for phi in every}) == 1
    assert all(row["note"] and row.get("margins") is None for row in by_name["cdp"])

    found = subjects(rows)
    before, retrain = found["before"].on_target, found["retrain"].on_target
    assert before is not None
    assert retrain is not None
    assert before.lira.accuracy.value > 0.95
    assert before.lira.accuracy.low > 0.5
    assert before.beyond > 2
    assert retrain.lira.accuracy.low < 0.5 < retrain.lira.accuracy.high
    assert abs(retrain.beyond) < 1
    unseen = found["before"].on_unseen
    assert unseen is not None
    assert unseen.lira.accuracy.low < 0.55, "the untouched model differs on R, not on what nobody saw"

    spec = ULIRA.specs(chosen)[3]
    alone = ULIRA.run(spec, Bench(chosen).scenario(spec.scenario))
    assert alone["margins"] == rows[3]["margins"], "a cell does not depend on those before it"

    page = write_pages(ULIRA, ULIRA.cell_file(chosen))[0].read_text()
    assert "No model is worse than the untouched one" in page
    assert "contains 50 %, as it must." in page
    assert "D_KL(unlearned || oracle)" in page
    assert "--targets samples --methods overwrite:default,retrain:default,cdp:paper --trials 5 --seed 0" in page
    assert "cdp paper, 5 of 5 cells without a model" in page


def test_the_divergence_has_the_unlearned_first():
    subject, oracles = made("toy", 1.0, seed=1), made("oracle", 0.0, seed=2, models=9)
    told = compare(subject, oracles)
    phi_u, phi_r = (torch.tensor([row["margins"] for row in rows]).double() for rows in (subject, oracles))
    one, other = klom(phi_u, phi_r), klom(phi_r, phi_u)
    assert told is not None
    assert one is not None
    assert other is not None
    assert told.klom == pytest.approx(float(one.quantile(0.95)), rel=1e-9)
    assert abs(float(one.quantile(0.95) - other.quantile(0.95))) > 0.01
    assert told.beyond == pytest.approx(1.0, abs=0.3)


def test_the_order_is_said_as_it_was_found():
    known = made("oracle", 0.0, seed=1) + made("retrain", 0.0, seed=2) + made("before", 2.0, seed=3)
    (good,) = remarks(known + made("toy", 1.0, seed=4))
    names = ["before", "toy", "retrain"]
    assert sorted(names, key=good.index) == names
    assert "No model is worse than the untouched one. " in good
    assert "Not told beyond chance" not in good
    assert "contains 50 %, as it must." in good

    (changed,) = remarks(known + made("toy", -6.0, seed=4, unseen=-6.0))
    assert "not the worst; above it, with the whole interval: toy (on unseen samples 99." in changed

    (alike,) = remarks(known + made("toy", 0.0, seed=5) + made("other", 2.2, seed=6))
    assert "No model is worse than the untouched one; as bad: other. Not told beyond chance: toy (5" in alike

    (odd,) = remarks(made("oracle", 0.0, seed=1) + made("retrain", 3.0, seed=2) + made("before", 2.0, seed=3))
    assert "does not contain 50 %, though it should." in odd


def test_targets_and_partitions_are_never_mixed():
    """The second partition's margins are of other samples."""
    rows = [row for name, seed in (("oracle", 1), ("retrain", 2), ("before", 3)) for row in made(name, 0.0, seed)]
    other = [{**row, "setting": 7, "margins": row["margins"][:30]} for row in rows]
    clean = [{**row, "target": "clean-samples"} for row in rows]
    titles = [table.title for table in tables(rows + other + clean)]
    assert len(titles) == 6
    assert len(set(titles)) == 6
    assert len(remarks(rows + other + clean)) == 3


def test_too_few_models_say_nothing():
    rows = [row for name, seed in (("oracle", 1), ("retrain", 2), ("before", 3)) for row in made(name, 0.0, seed)]
    broken = [{**row, "margins": None, "note": "It diverged."} if row["seed"] > 2 else row for row in rows]
    first = tables(broken)[0]
    assert [line[1] for line in first.rows] == ["–", "–"]
    assert any("before, 3 of 6 cells without a model" in note for note in first.notes)
    assert remarks(broken)[0].endswith("There are too few models of the known subjects to say anything.")
