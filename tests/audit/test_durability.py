"""Durability against ordinary rounds done by hand, and on digits: what was only suppressed comes back."""

from __future__ import annotations

import json

import pytest
import small_worlds
import torch

from fedforget import Backdoor, LocalFederation, Schedule, Trigger, build_model, load_dataset, train
from fedforget.audit.case import Case
from fedforget.audit.durability import durability, knowledge_of
from fedforget.audit.measures import measure, measure_now_and_later
from fedforget.audit.membership import KEPT_BY_AUDIT, attack_membership
from fedforget.data.partition import partition
from fedforget.errors import FedForgetError, InputError
from fedforget.federation.rounds import further_round, run_round
from fedforget.models import fresh_copy
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest

SCHEDULE = small_worlds.SCHEDULE
CLASS = ErasureRequest.of_class(0, 1)
SAMPLES = ErasureRequest.of_samples(0, [0, 2, 3, 7, 8, 9, 11, 20, 21])
CLIENT = ErasureRequest.of_client(1)


@pytest.mark.daily(2)
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("request_", [CLASS, SAMPLES, CLIENT], ids=["class", "samples", "client"])
def test_it_lasts_as_in_ordinary_rounds_without_the_target(normalised: bool, request_: ErasureRequest):
    world, before, _ = small_worlds.trained(normalised)
    untouched, test = digest(before), world.client(2).samples
    curve = durability(Case(world, (request_,), SCHEDULE), before, (3, 1))
    _, later = measure_now_and_later(Case(world, (request_,), SCHEDULE), before, test)
    assert curve.known[1].target_loss == later.target_loss, "the first further round is the audit's own"
    state, rows = before, []
    for done in range(4):
        figures = measure(world, state, [request_], test)
        rows.append((figures.bd_acc, figures.true_acc, figures.target_loss))
        state = run_round(world, state, further_round(SCHEDULE, SCHEDULE.rounds + done, [request_]))
    assert curve.rounds == (0, 1, 3)
    told = [(at.bd_acc, at.true_acc, at.target_loss) for at in curve.known]
    assert told == [rows[0], rows[1], rows[3]]
    assert digest(before) == untouched
    assert durability(Case(world, (request_,), SCHEDULE), before, (1, 3)) == curve
    assert durability(Case(world, (request_,), SCHEDULE), before, ()).rounds == (0,)
    assert json.loads(json.dumps(curve.to_json())) == curve.to_json()
    assert curve.to_json()["target_loss"] == [rows[0][2], rows[1][2], rows[3][2]]


def test_a_further_round_has_draws_of_its_own():
    """Not those of the round before, nor those of an ordinary round of its number."""
    world, before, _ = small_worlds.trained()
    done = SCHEDULE.rounds
    tasks = (further_round(SCHEDULE, done, [CLASS]), further_round(SCHEDULE, done + 1, [CLASS]))
    models = [run_round(world, before, task) for task in (*tasks, SCHEDULE.train_task(done, [CLASS]))]
    assert len({digest(model) for model in models}) == 3


def test_without_any_retained_data_there_are_no_further_rounds():
    world, before, _ = small_worlds.trained()
    last, *served = (ErasureRequest.of_client(k) for k in world.clients)
    with pytest.raises(FedForgetError, match="nothing to average"):
        durability(Case(world, (last,), SCHEDULE, served=tuple(served)), before)


def test_rounds_are_counted_from_one():
    world, before, _ = small_worlds.trained()
    with pytest.raises(InputError, match="counted from 1, but 0"):
        durability(Case(world, (CLASS,), SCHEDULE), before, (0, 1))


@pytest.mark.real
def test_a_backdoor_comes_back_without_the_target_if_only_the_last_layer_was_cleared():
    """Measured: 0 % right after, 89 % after one round without R, 24 % after three; Retrain 0, 0 and 0."""
    digits = load_dataset("digits").first(1000)
    request = ErasureRequest.of_class(0, 3)
    model, parts = build_model("mlp", digits.shape, 10, 0), partition("iid", digits.train.labels, 3, 0)
    world = LocalFederation(digits, parts, model, backdoors=[Backdoor(request, Trigger(2, margin=0), 8)])
    schedule = Schedule(rounds=6, epochs=2, lr=0.03, batch_size=16, threads=1)
    before = train(world, state_of(model), schedule)
    retrain = train(world, state_of(fresh_copy(model, 77)), schedule, exclude=[request])
    cleared = {**before, **{name: torch.zeros_like(before[name]) for name in list(before)[-2:]}}
    suppressed, gone = (
        [at.bd_acc for at in durability(Case(world, (request,), schedule), state).known] for state in (cleared, retrain)
    )
    assert suppressed[0] == 0.0
    assert suppressed[1] > 60
    assert max(gone) < 10


def test_the_gap_and_the_area_are_those_of_the_attack_and_clients_keep_nothing_for_it():
    """A network that knows 60 digits by heart, beside digits it never saw."""
    digits = load_dataset("digits").first(300)
    model, parts = build_model("mlp", digits.shape, 10, 0), [torch.arange(60), torch.arange(60, 120)]
    world = LocalFederation(digits, parts, model)
    schedule = Schedule(rounds=3, epochs=15, lr=0.05, batch_size=16, threads=1)
    state, request = train(world, state_of(model), schedule), ErasureRequest.of_samples(0, list(range(40)))
    known = knowledge_of(Case(world, (request,), schedule), state)
    kept = world.client(0).kept
    assert not any(name.startswith(KEPT_BY_AUDIT) for name in kept)
    attacked = attack_membership(Case(world, (request,), schedule), state)
    assert attacked.gap is not None
    assert attacked.loss_gap is not None
    assert any(name.startswith(KEPT_BY_AUDIT) for name in kept)
    assert (known.memory_gap, known.loss_gap) == (attacked.gap.value, attacked.loss_gap.value)
    assert known.auc == attacked.areas["loss"].value > 0.5
    assert known.memory_gap > 0
