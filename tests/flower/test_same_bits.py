"""One seed, one digest: in one process, and over Flower's messages with the nodes' state in files."""

from __future__ import annotations

from pathlib import Path

import pytest
from flower_worlds import SCHEDULE, World, make_world

from fedforget.audit.examine import Case, Examination, examine, examine_oracles, judge
from fedforget.audit.feature_sensitivity import measure_sensitivity
from fedforget.audit.measures import measure
from fedforget.audit.membership import AttackMembership
from fedforget.audit.oracles import oracle_models
from fedforget.errors import InputError
from fedforget.federation.history import MemoryHistory
from fedforget.federation.rounds import train
from fedforget.federation.seam import Federation
from fedforget.flower.messages import read_task
from fedforget.methods import DEFAULT_METHOD, METHODS, RUNGS
from fedforget.params import State, digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.ladder import forget

pytestmark = pytest.mark.real

CASES = [(method, preset) for method, row in METHODS.items() for preset in row.presets]
CLASS = ErasureRequest.of_class(0, 3)
TARGETS = {
    "class": [CLASS],
    "client": [ErasureRequest.of_client(2)],
    "two clients": [CLASS, ErasureRequest.of_class(1, 5)],
    "feature": [ErasureRequest.of_feature(0, (2, 2, 3, 3)), ErasureRequest.of_feature(2, (2, 2, 3, 3))],
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


@pytest.fixture(scope="module")
def sharded() -> World:
    return make_world("cnn", shards=2)


@pytest.mark.parametrize("kind", ["class", "client"])
def test_shards(sharded: World, tmp_path: Path, kind: str):
    """Members travel, and the ensemble for what measures it; a node trains the member of its shard alone."""
    again = train(sharded.flower(sharded.grid()), state_of(sharded.network()), SCHEDULE)
    assert digest(again) == digest(sharded.before)
    expected = forget(sharded.local(), sharded.before, TARGETS[kind], SCHEDULE)
    result = forget(sharded.flower(sharded.grid(tmp_path)), sharded.before, TARGETS[kind], SCHEDULE)
    assert digest(result.state) == digest(expected.state)
    assert result.exact
    figures = [
        measure(federation, result.state, TARGETS[kind], sharded.dataset.test)
        for federation in (sharded.local(), sharded.flower(sharded.grid(tmp_path)))
    ]
    assert figures[0] == figures[1]


@pytest.mark.parametrize("kind", ["class", *(pytest.param(k, marks=pytest.mark.slow) for k in TARGETS if k != "class")])
@pytest.mark.parametrize(("method", "preset"), CASES, ids=[":".join(case) for case in CASES])
def test_every_method(world: World, tmp_path: Path, method: str, preset: str, kind: str):
    requests = TARGETS[kind]
    if method == "cdp" and kind == "client":
        pytest.skip("it knows classes alone")
    if kind == "feature" and METHODS[method].no_feature:
        pytest.skip("it knows no features")
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


def test_sensitivities(world: World, tmp_path: Path):
    requests = TARGETS["feature"]
    figures = [
        measure_sensitivity(Case(federation, tuple(requests), SCHEDULE), world.before)
        for federation in (world.local(), world.flower(world.grid(tmp_path)))
    ]
    assert figures[0] == figures[1]


def test_a_node_that_withdrew_a_feature_never_trains_on_it_again(world: World, tmp_path: Path):
    """No round names it any more, and it stays away all the same."""
    requests = TARGETS["feature"]
    forget(world.flower(world.grid(tmp_path)), world.before, requests, SCHEDULE, "not")
    expected = train(world.local(), world.before, SCHEDULE, exclude=requests)
    assert digest(train(world.flower(world.grid(tmp_path)), world.before, SCHEDULE)) == digest(expected)
    assert digest(train(world.local(), world.before, SCHEDULE)) != digest(expected)


def half_a_client(world: World) -> ErasureRequest:
    """So many that there are attacks."""
    return ErasureRequest.of_samples(2, world.local().client(2).samples.ids[:30].tolist())


@pytest.fixture(scope="module")
def oracles(world: World) -> list[State]:
    return oracle_models(world.local(), [half_a_client(world)], SCHEDULE, 2, data="digits")


def examined(federation: Federation, world: World, oracles: list[State]) -> list[Examination]:
    """The oracles and the model before."""
    case = Case(federation, (half_a_client(world),), SCHEDULE, "quick")
    return [*examine_oracles(case, oracles, lambda *_: None), examine(case, world.before, oracles)]


def test_an_audit(world: World, oracles: list[State], tmp_path: Path):
    """Attacks, and the margins that a node keeps in files from one message to the next."""
    expected = examined(world.local(), world, oracles)
    grid = world.grid(tmp_path)
    assert examined(world.flower(grid), world, oracles) == expected
    assert all(found.notes == () for found in expected)
    sent = {type(read_task(message.content)[0]) for _, message in grid.sent if "fedforget" in message.content}
    assert AttackMembership in sent
    assert all("membership by rmia" in found.readings for found in expected)
    assert list((tmp_path / "site-2").glob("kept-*.safetensors"))


def test_an_audit_of_nodes_that_keep_nothing_lacks_what_needs_references(world: World, oracles: list[State]):
    expected = examined(world.local(), world, oracles)
    for found, whole in zip(examined(world.flower(world.grid()), world, oracles), expected, strict=True):
        assert found.readings.keys() == whole.readings.keys() - {
            "membership by rmia", "membership by calibrated margin", "loss spared, beside unseen data",
        }  # fmt: skip
        assert all(found.readings[name] == whole.readings[name] for name in found.readings)
        (note,) = found.notes
        assert "(a Flower node needs a state-dir for it), so there is no attack with references." in note
        assert judge(found, found, [found, found])[1].word == "not enough evidence"


@pytest.mark.parametrize(
    "requests",
    [
        [],
        [ErasureRequest.of_class(0, 10)],
        [ErasureRequest.of_class(4, 3)],
        [ErasureRequest.of_samples(1, [10**6])],
        [ErasureRequest.of_feature(1, 3)],
        [ErasureRequest.of_feature(1, (7, 7, 2, 2))],
        [ErasureRequest.of_client(k) for k in range(4)],
        [ErasureRequest.of_class(2, 0), ErasureRequest.of_class(3, 12)],
    ],
)
@pytest.mark.parametrize("method", [DEFAULT_METHOD, *RUNGS])
def test_what_cannot_be_served_is_refused_in_the_same_words(world: World, requests: list[ErasureRequest], method: str):
    sentences = []
    for federation in (world.local(), world.flower(world.grid())):
        with pytest.raises(InputError) as refusal:
            forget(federation, world.before, requests, SCHEDULE, method)
        sentences.append(str(refusal.value))
    assert sentences[0] == sentences[1]
