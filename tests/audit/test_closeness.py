"""How near a model is to the oracles, against plain loops; and what cannot be compared has no figure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import small_worlds
import torch
from scipy import stats
from torch import Tensor, nn

from fedforget.audit.closeness import (
    MOST,
    ClassGap,
    Compared,
    Look,
    class_gaps,
    closeness,
    compare_with_oracles,
    look_at,
)
from fedforget.audit.distributions import Accuracies, proportion_error, tow
from fedforget.data.own import from_arrays
from fedforget.data.samples import Samples
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import train
from fedforget.params import State, digest, state_of


def world_and_models(count: int) -> tuple[small_worlds.Tapped, list[State], Samples]:
    """(a world, models after 1, 2, ... rounds, points as test data)."""
    world = small_worlds.federation()
    start = state_of(world.model)
    models = [train(world, start, replace(small_worlds.SCHEDULE, rounds=done)) for done in range(1, count + 1)]
    labels = torch.arange(41) % 3
    points = torch.randn(41, 6, generator=torch.Generator().manual_seed(5)) + 2 * nn.functional.one_hot(labels, 6)
    return world, models, Samples.of(points, labels)


def looks_of(world: small_worlds.Tapped, models: list[State], test: Samples) -> list[Look]:
    found = [look_at(world, model, test, 10.0 * k, 90.0 - k) for k, model in enumerate(models)]
    assert all(look is not None for look in found)
    return [look for look in found if look is not None]


def rows(look: Look, layer: nn.Linear) -> Tensor:
    """Logits from activations."""
    assert look.activations is not None
    with torch.no_grad():
        return layer(look.activations.float())


def test_one_pass_gives_the_answers_and_what_the_last_layer_gets():
    world, (model,), test = world_and_models(1)
    kept = digest(model)
    world.log.clear()
    (look,) = looks_of(world, [model], test)
    network = small_worlds.loaded(world, model).eval()
    with torch.no_grad():
        expected = network(world.normalisation(test.features))
    assert torch.allclose(look.logits, expected, atol=1e-6)
    head = network[-1]
    assert isinstance(head, nn.Linear)
    assert torch.allclose(rows(look, head), expected, atol=1e-5)
    right = sum(int(row.argmax()) == int(label) for row, label in zip(expected, test.labels, strict=True))
    assert look.accuracies == pytest.approx((0.0, 90.0, 100 * right / 41))
    assert digest(model) == kept
    assert not world.model._forward_hooks
    assert world.log == [], "nobody is asked"


def test_the_figures_are_means_over_the_oracles_and_over_their_pairs():
    world, models, test = world_and_models(4)
    subject, *oracles = looks_of(world, models, test)
    found = closeness(subject, oracles)
    pairs = [(a, b) for a in oracles for b in oracles if a is not b]

    def weights(a: Look, b: Look) -> float:
        return math.sqrt(sum(float((a.state[n] - b.state[n]).double().square().sum()) for n in a.state))

    def activations(a: Look, b: Look) -> float:
        assert a.activations is not None
        assert b.activations is not None
        return sum(math.dist(x, y) for x, y in zip(a.activations.tolist(), b.activations.tolist(), strict=True)) / 41

    def divergence(a: Look, b: Look) -> float:
        p, q = (look.logits.double().softmax(1) for look in (b, a))
        return float((p * (p / q).log()).sum() / 41)

    def tug(a: Look, b: Look) -> float:
        assert a.accuracies is not None
        assert b.accuracies is not None
        return tow(a.accuracies, b.accuracies)

    for name, between in (
        ("weight distance", weights), ("activation distance", activations), ("prediction divergence", divergence),
        ("ToW", tug),
    ):  # fmt: skip
        mine = sum(between(subject, oracle) for oracle in oracles) / 3
        theirs = sum(between(a, b) for a, b in pairs) / 6
        assert found[name].to_oracles == pytest.approx(mine, rel=1e-5), name
        assert found[name].between_oracles == pytest.approx(theirs, rel=1e-5), name
        if name == "ToW":
            assert found[name].ratio is None, "it is no distance"
        else:
            assert found[name].ratio == pytest.approx(mine / theirs, rel=1e-5)


def test_what_cannot_be_compared_has_no_figure():
    world, models, test = world_and_models(3)
    subject, one, two = looks_of(world, models, test)
    alone = closeness(subject, [one])
    assert all(figure.between_oracles is None and figure.ratio is None for figure in alone.values())
    assert alone["weight distance"].to_oracles is not None
    blind = replace(one, activations=None, accuracies=None)
    found = closeness(subject, [blind, two])
    assert found["activation distance"] == found["ToW"] == Compared(None, None, None)
    broken = closeness(replace(subject, logits=subject.logits * math.nan), [one, two])
    assert broken["prediction divergence"] == Compared(None, None, None)
    assert broken["weight distance"].ratio is not None
    assert closeness(one, [one, one])["weight distance"] == Compared(0.0, 0.0, None), "no distance to measure by"
    nothing = test.select(torch.zeros(0, dtype=torch.int64))
    assert look_at(world, models[0], nothing, 1.0, 2.0) is None
    unknown = look_at(world, models[0], test, None, 50.0)
    assert unknown is not None
    assert unknown.accuracies is None


def test_a_network_without_a_linear_layer_has_logits_and_no_activations():
    model = nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 3, 6), nn.Flatten())
    x, y = torch.randn(30, 6, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
    world = LocalFederation(from_arrays(x, y, x[:9], y[:9]), list(torch.arange(30).split(15)), model)
    look = look_at(world, state_of(model), Samples.of(x, y), 50.0, 50.0)
    assert look is not None
    assert look.activations is None
    with torch.no_grad():
        assert torch.allclose(look.logits, model.eval()(world.normalisation(x)), atol=1e-6)


def test_of_many_test_samples_some_are_compared(monkeypatch: pytest.MonkeyPatch):
    world, (model,), test = world_and_models(1)
    (whole,) = looks_of(world, [model], test)
    monkeypatch.setattr("fedforget.audit.closeness.MOST", 20)
    (part,) = looks_of(world, [model], test)
    assert MOST == 2000
    assert whole.activations is not None
    assert part.activations is not None
    assert torch.equal(part.activations, whole.activations[::3])
    assert torch.equal(part.logits, whole.logits)


# Class by class


def answers(*guesses: list[int]) -> list[Look]:
    """Models that give these classes."""
    return [
        Look({}, nn.functional.one_hot(torch.tensor(guess), 4).float(), None, Accuracies(0.0, 0.0, 0.0))
        for guess in guesses
    ]


def test_the_gaps_are_those_of_the_equation():
    true = [0] * 8 + [1] * 5 + [3] * 4
    test = Samples.of(torch.zeros(17, 2), torch.tensor(true))
    mine = [1] * 4 + [0] * 4 + [1] * 5 + [3] * 4
    one = [0] * 8 + [1] * 5 + [3] * 4
    two = [0] * 6 + [1] * 2 + [1] * 5 + [3] * 4
    three = [0] * 7 + [1] * 6 + [3] * 4
    subject, *oracles = answers(mine, one, two, three)
    found = class_gaps(subject, oracles, test, 4)
    assert found[2] is None, "there is no test sample of it"
    assert found[3] is None, "there are too few of it"
    values = [100.0, 75.0, 87.5]
    mean, square = sum(values) / 3, stats.tvar(values)
    errors = [100 * proportion_error(hits, 8) for hits in (8, 6, 7)]
    error = max(100 * proportion_error(4, 8), sum(errors) / 3)
    variance = square + error**2
    freedom = int(variance**2 / (square**2 / 2))
    reach = stats.t.ppf(0.975, freedom) * math.sqrt(4 / 3 * variance)
    assert found[0] is not None
    assert (found[0].gap, found[0].low, found[0].high) == pytest.approx(
        (50 - mean, 50 - mean - reach, 50 - mean + reach)
    )
    assert found[1] is not None
    assert found[1].gap == 0.0
    assert found[1].low < 0 < found[1].high, "oracles that agree leave the binomial error"
    assert class_gaps(subject, oracles[:1], test, 4) == [None] * 4, "one oracle has no spread"


def test_for_every_model_that_was_looked_at():
    test = Samples.of(torch.zeros(10, 2), torch.tensor([0, 1] * 5))
    subject, one, two = (
        replace(look, state={"w": torch.tensor([float(k)])})
        for k, look in enumerate(answers([0, 0] * 5, [0, 1] * 5, [0, 1] * 5))
    )
    found: dict[str, Any] = compare_with_oracles({"a": subject, "b": None}, [one, two], test, 2)
    assert found.keys() == {"a"}
    assert found["a"]["closeness"]["weight distance"] == {"to_oracles": 1.5, "between_oracles": 1.0, "ratio": 1.5}
    gaps = class_gaps(subject, [one, two], test, 2)
    assert found["a"]["class_gaps"] == [gap.to_json() for gap in gaps if isinstance(gap, ClassGap)]
    assert compare_with_oracles({"a": subject}, [None, None], test, 2) == {}
