"""A client that withdrew a feature: what it still gives away of it, which is nothing."""

from __future__ import annotations

import pytest
import torch
from small_worlds import SCHEDULE, SIZES, Tapped, federation, network

from fedforget.data.own import from_arrays
from fedforget.errors import InputError
from fedforget.federation.rounds import train
from fedforget.federation.tasks import CheckRequests, Withdraw
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest

COLUMN = ErasureRequest.of_feature(0, 2)


def blanked_world(clients: tuple[int, ...]) -> Tapped:
    """The same federation, whose clients never had column 2."""
    world = federation()
    features = torch.cat([world.client(k).samples.features for k in world.clients]).clone()
    labels = torch.cat([world.client(k).samples.labels for k in world.clients])
    parts = list(torch.arange(sum(SIZES)).split(list(SIZES)))
    for client in clients:
        features[parts[client], 2] = 0.0
    return Tapped(from_arrays(features, labels, features[:9], labels[:9]), parts, network())


def test_the_sample_stays_and_the_feature_goes():
    client = federation().client(0)
    target, retained = client.positions([COLUMN])
    assert len(target) == len(retained) == SIZES[0]
    assert client.check(COLUMN) == SIZES[0]
    assert torch.equal(client.target([COLUMN]).features, client.samples.features)
    left = client.retained([COLUMN])
    assert left.features[:, 2].tolist() == [0.0] * SIZES[0]
    assert torch.equal(left.features[:, 3:], client.samples.features[:, 3:])
    assert torch.equal(left.ids, client.samples.ids)
    assert client.retained([]) is client.samples, "nothing is copied for nothing"
    assert client.retained([ErasureRequest.of_feature(1, 2)]) is client.samples, "another client's"


def test_with_a_class_as_well():
    client = federation().client(0)
    both = [COLUMN, ErasureRequest.of_class(0, 1)]
    left = client.retained(both)
    assert not (left.true_labels == 1).any()
    assert left.features[:, 2].abs().max() == 0
    gone = client.target([ErasureRequest.of_class(0, 1)], served=[COLUMN])
    assert len(gone) == int((client.samples.true_labels == 1).sum()), "it is still to be forgotten"
    assert gone.features[:, 2].abs().max() == 0, "but not looked at with what was served"


def test_what_was_erased_stays_blanked_but_for_the_task_that_forgets_it():
    client = federation().client(0)
    client.withdraw([COLUMN])
    assert client.retained([]).features[:, 2].abs().max() == 0
    assert client.retained([], being_forgotten=[COLUMN]).features[:, 2].abs().max() > 0
    assert client.target([COLUMN]).features[:, 2].abs().max() > 0
    assert client.target([ErasureRequest.of_class(0, 1)]).features[:, 2].abs().max() == 0


def test_training_without_a_feature_is_training_of_who_never_had_it():
    world, never = federation(), blanked_world((0, 3))
    requests = [COLUMN, ErasureRequest.of_feature(3, 2)]
    start = state_of(world.model)
    expected = train(never, start, SCHEDULE)
    assert digest(train(world, start, SCHEDULE, exclude=requests)) == digest(expected)


def test_a_feature_that_is_not_there_is_refused():
    world = federation()
    for task in (CheckRequests, Withdraw):
        with pytest.raises(InputError, match="Column 6 does not exist; the table has columns 0 to 5"):
            list(world.ask(task(seed=0, threads=1, requests=(ErasureRequest.of_feature(0, 6),)), {}, [0]))
    with pytest.raises(InputError, match="no images"):
        world.check([ErasureRequest.of_feature(0, (0, 0, 2, 2))])
