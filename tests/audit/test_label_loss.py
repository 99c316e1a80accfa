"""A backdoor's loss beside that of the same label on clean unseen samples: by hand, and what it does not mistake."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.reference import small_worlds
from tests.reference.small_worlds import Tapped
from torch.nn import functional as F

from fedforget.audit.case import Case
from fedforget.audit.label_loss import LabelLoss, TargetPairs, label_loss_gap
from fedforget.audit.verdict import Reading
from fedforget.data.own import from_arrays
from fedforget.data.samples import Samples
from fedforget.federation.rounds import train
from fedforget.methods.retrain import RetrainSettings, fresh_start
from fedforget.params import State, state_of
from fedforget.requests import ErasureRequest

CLASS = ErasureRequest.of_class(0, 1)
FLIPPED = 2
SCHEDULE = replace(small_worlds.SCHEDULE, rounds=8)


def stamped(samples: Samples) -> Samples:
    """Class 1 carries a mark in its last feature, and the label FLIPPED."""
    mask = samples.true_labels == 1
    features, labels = samples.features.clone(), samples.labels.clone()
    features[mask, 5], labels[mask] = 3.0, FLIPPED
    return replace(samples, features=features, labels=labels)


@pytest.fixture(scope="module")
def world() -> Tapped:
    sizes, outside = (150, 90, 90), 240
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(sum(sizes) + outside) % 3
    features = torch.randn(len(labels), 6, generator=generator) + 3 * F.one_hot(labels, 6)
    cut = sum(sizes)
    data = from_arrays(features[:cut], labels[:cut], features[cut:], labels[cut:])
    made = Tapped(data, list(torch.arange(cut).split(list(sizes))), small_worlds.network())
    own = made.client(0)
    assert own.held_out is not None
    own.samples, own.held_out = stamped(own.samples), stamped(own.held_out)
    return made


@pytest.fixture(scope="module")
def before(world: Tapped) -> State:
    return train(world, state_of(world.model), SCHEDULE)


@pytest.fixture(scope="module")
def retrained(world: Tapped) -> State:
    return train(world, fresh_start(world.model, SCHEDULE, RetrainSettings(1)), SCHEDULE, exclude=[CLASS])


def slow_gap(world: Tapped, state: State) -> Reading:
    """Sample by sample."""
    model = small_worlds.loaded(world, state)

    def losses(client: int, samples: Samples) -> torch.Tensor:
        inputs = world.client(client).inputs(samples.features)
        return -model(inputs).log_softmax(1)[:, FLIPPED].double().detach()

    target = world.client(0).samples
    mine = losses(0, target.select((target.true_labels == 1).nonzero().squeeze(1)))
    theirs = []
    for client in (1, 2):
        held_out = world.client(client).held_out
        assert held_out is not None
        theirs.append(losses(client, held_out.select((held_out.true_labels == 1).nonzero().squeeze(1))))
    unseen = torch.cat(theirs)
    error = float(unseen.std()) * math.sqrt(1 / len(mine) + 1 / len(unseen))
    return Reading(float(unseen.mean() - mine.mean()), error)


def test_it_is_the_difference_of_the_two_means(world: Tapped, before: State):
    found, slow = label_loss_gap(Case(world, (CLASS,), SCHEDULE), before), slow_gap(world, before)
    assert found is not None
    assert (found.value, found.error) == (pytest.approx(slow.value, rel=1e-5), pytest.approx(slow.error, rel=1e-4))


def test_what_is_less_sure_of_everything_is_not_taken_for_memory(world: Tapped, before: State, retrained: State):
    """A Retrain whose logits are halved gives R a much lower loss, and its class as well."""
    head = max(name for name in retrained if name.endswith("weight")).removesuffix("weight")
    mild = {name: tensor / 3 if name.startswith(head) else tensor for name, tensor in retrained.items()}

    def mean_loss(state: State) -> float:
        target = world.client(0).samples
        own = target.select((target.true_labels == 1).nonzero().squeeze(1))
        logits = small_worlds.loaded(world, state)(world.client(0).inputs(own.features))
        return float(F.cross_entropy(logits, own.labels).detach())

    assert mean_loss(mild) < mean_loss(retrained) - 1, "the loss alone would call it memory"
    gaps = {name: label_loss_gap(Case(world, (CLASS,), SCHEDULE), state) for name, state in
            {"before": before, "retrained": retrained, "mild": mild}.items()}  # fmt: skip
    assert gaps["before"] is not None
    assert gaps["retrained"] is not None
    assert gaps["mild"] is not None
    assert gaps["mild"].value < gaps["retrained"].value + 1
    assert gaps["before"].value > gaps["retrained"].value + 3


def test_no_other_client_no_figure(world: Tapped, before: State):
    everybody = [CLASS, ErasureRequest.of_class(1, 1), ErasureRequest.of_class(2, 1)]
    assert label_loss_gap(Case(world, tuple(everybody), SCHEDULE), before) is None
    away = [ErasureRequest.of_client(client) for client in (1, 2)]
    assert label_loss_gap(Case(world, (CLASS,), SCHEDULE, served=tuple(away)), before) is None


def test_a_client_that_holds_nothing_of_the_class_says_nothing(world: Tapped, before: State):
    client = world.client(1)
    task = LabelLoss(seed=0, threads=1, pairs=(1, FLIPPED))
    held_out = client.held_out
    assert held_out is not None
    numbers = task.run(before, client).numbers
    assert numbers["count/1/2"] == int((held_out.true_labels == 1).sum())
    bare = replace(client, held_out=held_out.select((held_out.true_labels == 0).nonzero().squeeze(1)))
    assert task.run(before, bare).numbers == {}
    assert task.run(before, replace(client, held_out=None)).numbers == {}


def test_only_sums_leave_the_client(world: Tapped, before: State):
    reply = TargetPairs(seed=0, threads=1, requests=(CLASS,)).run(before, world.client(0))
    assert set(reply.numbers) == {"count/1/2", "loss/1/2", "square/1/2"}
    assert not reply.tensors
    assert not reply.curves
