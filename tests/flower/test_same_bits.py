"""One seed, one digest: in one process, and over Flower's messages with the nodes' state in files."""

from __future__ import annotations

from pathlib import Path

import pytest
from flower_worlds import SCHEDULE, World, make_world

from fedforget.audit.measures import measure
from fedforget.errors import InputError
from fedforget.federation.history import MemoryHistory
from fedforget.federation.rounds import train
from fedforget.methods import METHODS, forget
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest

pytestmark = pytest.mark.real

CASES = [(method, preset) for method, row in METHODS.items() for preset in row.presets]
CLASS = ErasureRequest.of_class(0, 3)
TARGETS = {
    "class": [CLASS],
    "client": [ErasureRequest.of_client(2)],
    "two clients": [CLASS, ErasureRequest.of_class(1, 5)],
}


def test_training(world: World):
    history = MemoryHistory(interval=1)
    federation = world.flower(world.grid())
    assert digest(train(federation, state_of(world.network()), SCHEDULE, history=history)) == digest(world.before)
    assert history.rounds == world.history.rounds
    for round in history.rounds:
        ours, theirs = (dict(kept.returned(round)) for kept in (history, world.history))
        assert {k: digest(state) for k, state in ours.items()} == {k: digest(state) for k, state in theirs.items()}


def test_training_with_batch_normalisation_and_its_counters():
    world = make_world("resnet10")
    world.parts = world.parts[:2]
    expected = train(world.local(), state_of(world.network()), SCHEDULE, start=2)
    again = train(world.flower(world.grid()), state_of(world.network()), SCHEDULE, start=2)
    assert digest(again) == digest(expected)


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize(("method", "preset"), CASES, ids=[":".join(case) for case in CASES])
def test_every_method(world: World, tmp_path: Path, method: str, preset: str, kind: str):
    requests = TARGETS[kind]
    if method == "cdp" and kind == "client":
        pytest.skip("it prunes classes")
    expected = forget(world.local(), world.before, requests, SCHEDULE, method, preset, history=world.history)
    for again in ("the first time", "once more, on nodes that have withdrawn it already"):
        federation = world.flower(world.grid(tmp_path))
        result = forget(federation, world.before, requests, SCHEDULE, method, preset, history=world.history)
        assert digest(result.state) == digest(expected.state), again
        assert result.curves == expected.curves
        assert result.notes == expected.notes
        assert result.cost.gradient_evaluations == expected.cost.gradient_evaluations
        assert (result.cost.bytes, result.cost.stored_bytes) == (expected.cost.bytes, expected.cost.stored_bytes)


def test_measures(world: World):
    figures = [
        measure(federation, world.before, [CLASS], world.dataset.test)
        for federation in (world.local(), world.flower(world.grid()))
    ]
    assert figures[0] == figures[1]


@pytest.mark.parametrize(
    "requests",
    [
        [],
        [ErasureRequest.of_class(0, 10)],
        [ErasureRequest.of_class(4, 3)],
        [ErasureRequest.of_samples(1, [10**6])],
        [ErasureRequest.of_client(k) for k in range(4)],
        [ErasureRequest.of_class(2, 0), ErasureRequest.of_class(3, 12)],
    ],
)
def test_what_cannot_be_served_is_refused_in_the_same_words(world: World, requests: list[ErasureRequest]):
    sentences = []
    for federation in (world.local(), world.flower(world.grid())):
        with pytest.raises(InputError) as refusal:
            forget(federation, world.before, requests, SCHEDULE)
        sentences.append(str(refusal.value))
    assert sentences[0] == sentences[1]
