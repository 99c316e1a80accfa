"""FedAF's rebuilding: the broken weights against their equations, and the rounds that follow."""

from __future__ import annotations

import math

import pytest
import torch
from fedforget.methods.fedaf.extensions.rebuilding import rebuild
from small_worlds import SCHEDULE, trained

from fedforget.errors import InputError
from fedforget.federation.cost import Meter
from fedforget.federation.rounds import FEWEST_ROUNDS, run_round
from fedforget.federation.tasks import Train
from fedforget.methods import forget
from fedforget.methods.fedaf.settings import EFFORTS, LASTING, OVERWRITE, THOROUGH, PaperSettings
from fedforget.models import fresh_copy
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_seed

REQUEST = ErasureRequest.of_class(0, 1)
SETTINGS = PaperSettings(recovery_rounds=0, shrink=0.3, rebuilding=0.4, recovery_min_samples=0)


@pytest.mark.parametrize("normalised", [False, True])
def test_rebuilding_starts_from_a_turned_kernel_and_shrunk_weights_and_leaves_buffers(normalised: bool):
    world, before, _ = trained(normalised)
    rebuild(Meter(world), before, SETTINGS, SCHEDULE, (REQUEST,))
    sent = world.log[0][1]
    fresh = state_of(fresh_copy(world.model, derive_seed(SCHEDULE.seed, "fedaf", "fresh")))
    first, *others = [name for name, _ in world.model.named_parameters()]
    assert first.endswith("weight"), "the first kernel"
    for name, tensor in before.items():
        slow = -tensor if name == first else 0.3 * tensor + 0.7 * fresh[name] if name in others else tensor
        assert torch.allclose(sent[name], slow), name


def test_rebuilding_is_ordinary_rounds_over_parts_of_what_is_retained():
    """0.4 of five rounds are two passes: three rounds, each over two thirds of everybody's retained samples."""
    world, before, _ = trained()
    state = rebuild(Meter(world), before, SETTINGS, SCHEDULE, (REQUEST,))
    tasks = [task for task, _, _ in world.log]
    assert all(isinstance(task, Train) and task.exclude == (REQUEST,) for task in tasks)
    assert len(tasks) == FEWEST_ROUNDS * len(world.clients)
    retained = {k: len(world.client(k).positions([REQUEST])[1]) for k in world.clients}
    for task, _, reply in world.log:
        assert isinstance(task, Train)
        assert (task.lr, task.momentum, task.batch_size) == (SCHEDULE.lr, SCHEDULE.momentum, SCHEDULE.batch_size)
        assert reply.numbers["samples"] == math.ceil(2 / 3 * retained[reply.client])
    twin = dict(world.log[0][1])
    for round in range(FEWEST_ROUNDS):
        twin = run_round(world, twin, next(t for t in tasks if isinstance(t, Train) and t.round == round))
    assert digest(twin) == digest(state)


def test_an_effort_is_a_preset_and_costs_what_it_says():
    world, before, _ = trained()
    whole = forget(world, before, REQUEST, SCHEDULE, "retrain").cost.gradient_evaluations
    quick = forget(world, before, REQUEST, SCHEDULE, "fedaf", EFFORTS["quick"][0], recovery_rounds=0)
    for effort, settings in (("lasting", LASTING), ("thorough", THOROUGH)):
        preset, _ = EFFORTS[effort]
        few = {"recovery_min_samples": 0}
        result = forget(world, before, REQUEST, SCHEDULE, "fedaf", preset, **few)
        same = forget(world, before, REQUEST, SCHEDULE, "fedaf", "recommended", recovery_rounds=0, **few)
        assert result.settings.shrink == settings.shrink < OVERWRITE.shrink == 1.0
        rebuilt = result.cost.gradient_evaluations - same.cost.gradient_evaluations
        rounding = FEWEST_ROUNDS * len(world.clients)
        assert rebuilt == pytest.approx(settings.rebuilding * whole, abs=rounding)
    assert digest(quick.state) != digest(result.state)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"shrink": 0.2}, "takes the weights apart; set 'rebuilding'"),
        ({"shrink": 1.2, "rebuilding": 0.1}, "'shrink' is 1.2, but it must be at most 1"),
        ({"rebuilding": 2.0}, "'rebuilding' is 2.0, but it must be at most 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, float], sentence: str):
    with pytest.raises(InputError, match=sentence):
        PaperSettings(**change)  # type: ignore[arg-type]
