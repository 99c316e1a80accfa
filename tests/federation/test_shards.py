"""Shards: disjoint federations served as one model, and requests that retrain one of them, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedforget import Ensemble, LocalFederation, Schedule, build_model, digest, forget, measure, state_of, train
from fedforget.audit.oracles import oracle_models
from fedforget.data import load_dataset
from fedforget.data.partition import partition
from fedforget.errors import InputError
from fedforget.federation.rounds import further_rounds
from fedforget.federation.shards import as_member, member_of, network_for, shard_seed
from fedforget.methods import METHODS
from fedforget.models import fresh_copy, xavier_initialise
from fedforget.params import State
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_seed

SCHEDULE = Schedule(rounds=3, lr=0.05, batch_size=16, threads=1)
DIGITS = load_dataset("digits").first(240, 60)
PARTS = partition("iid", DIGITS.train.labels, 5, 0)
CLASS = ErasureRequest.of_class(1, 3)


def network() -> nn.Module:
    return build_model("cnn", DIGITS.shape, 10, 0)


def normalised() -> nn.Module:
    layers = [nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 10)]
    return xavier_initialise(nn.Sequential(*layers), 0)


def federation(shards: int = 2, parts: Sequence[Tensor] = PARTS, model: nn.Module | None = None) -> LocalFederation:
    return LocalFederation(DIGITS, parts, Ensemble(model or network(), shards, seed=0))


def trained(on: LocalFederation, schedule: Schedule = SCHEDULE) -> State:
    return train(on, state_of(on.model), schedule)


def without(requests: Sequence[ErasureRequest]) -> list[Tensor]:
    """The parts, had the targets never been there."""
    rest = []
    for client, part in enumerate(PARTS):
        own = DIGITS.train.select(part)
        gone = torch.zeros(len(part), dtype=torch.bool)
        for request in requests:
            gone |= request.matches(own) if request.client == client else False
        rest.append(part[~gone])
    return rest


@pytest.fixture(scope="module")
def before() -> State:
    return trained(federation())


def test_it_answers_with_the_mean_of_the_members_probabilities(before: State):
    """Against the slow way: every member loaded into a network of its own."""
    own = federation()
    own.model.load_state_dict(before)
    x = torch.randn(7, *DIGITS.shape, generator=torch.Generator().manual_seed(0))
    total = torch.zeros(7, 10)
    for shard in range(2):
        alone = network()
        alone.load_state_dict(member_of(before, shard))
        total += alone.eval()(x).softmax(1)
    said = own.model.eval()(x)
    assert torch.allclose(said.exp(), total / 2, atol=1e-6)
    assert torch.allclose(said.softmax(1), total / 2, atol=1e-6), "as logits, too"


@pytest.mark.parametrize("participation", [1.0, 0.7])
@pytest.mark.parametrize("model", [network, normalised])
def test_a_member_is_a_federation_of_its_own(model, participation: float):
    """The same bits as an ordinary federation of these clients alone, which keep their numbers."""
    schedule = replace(SCHEDULE, participation=participation)
    together = trained(federation(model=model()), schedule)
    for shard, clients in ((0, [0, 2, 4]), (1, [1, 3])):
        alone = Some(DIGITS, PARTS, model())
        alone.some = clients
        start = state_of(fresh_copy(model(), derive_seed(0, "shard", shard)))
        twin = train(alone, start, replace(schedule, seed=shard_seed(schedule.seed, shard)))
        assert digest(member_of(together, shard)) == digest(twin)
    assert (int(together["rounds"]), together["trained"].tolist()) == (3, [3, 3])


class Some(LocalFederation):
    """A federation in which only some of the clients there are take part."""

    some: Sequence[int] = ()

    @property
    def clients(self) -> Sequence[int]:
        return self.some or range(len(PARTS))


TARGETS = {
    "class": [CLASS],
    "samples": [ErasureRequest.of_samples(2, DIGITS.train.ids[PARTS[2]][:4].tolist())],
    "client": [ErasureRequest.of_client(4)],
    "clients of one shard": [CLASS, ErasureRequest.of_client(3)],
    "clients of both": [CLASS, ErasureRequest.of_class(0, 5)],
    "a whole shard": [ErasureRequest.of_client(1), ErasureRequest.of_client(3)],
}


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("method", ["ladder", "retrain"])
def test_forgetting_is_training_without_the_target_bit_for_bit(before: State, method: str, kind: str):
    requests = TARGETS[kind]
    made = forget(federation(), before, requests, SCHEDULE, method)
    never = trained(federation(parts=without(requests)))
    assert made.exact
    assert digest(made.state) == digest(never)
    assert digest(made.state) != digest(before)


@pytest.mark.parametrize("model", [network, normalised])
def test_with_other_networks_and_only_some_clients_in_a_round(model):
    schedule = replace(SCHEDULE, participation=0.7, rounds=4, decay=0.1)
    full = trained(federation(3, model=model()), schedule)
    made = forget(federation(3, model=model()), full, CLASS, schedule)
    assert digest(made.state) == digest(trained(federation(3, without([CLASS]), model()), schedule))


def test_one_request_after_another_ends_where_both_together_do(before: State):
    first, second = CLASS, ErasureRequest.of_client(3)
    once = forget(federation(), before, first, SCHEDULE)
    twice = forget(federation(), once.state, second, SCHEDULE, served=[first])
    both = forget(federation(), before, [first, second], SCHEDULE)
    assert digest(twice.state) == digest(both.state) == digest(trained(federation(parts=without([first, second]))))


def test_the_other_shards_stay_and_cost_nothing(before: State):
    asked: list[int] = []

    class Tapped(LocalFederation):
        def ask(self, task, state, to=None):
            for reply in super().ask(task, state, to):
                if reply.tensors:
                    asked.append(reply.client)
                yield reply

    own = Tapped(DIGITS, PARTS, Ensemble(network(), 2, seed=0))
    made = forget(own, before, CLASS, SCHEDULE)
    assert digest(member_of(made.state, 0)) == digest(member_of(before, 0))
    assert asked == [1, 3] * SCHEDULE.rounds
    kept = sum(len(part) for part in without([CLASS])[1::2])
    assert made.cost.gradient_evaluations == kept * SCHEDULE.rounds
    assert made.notes == (
        "Trained again without the target: of 2 shards 1 (clients 1, 3). The rest never saw it and stays as it was, "
        "bit for bit.",
    )
    [rung] = made.rungs
    assert (rung.name, rung.word) == ("retrain", "exact")
    assert rung.forecast == pytest.approx(kept / sum(map(len, without([CLASS]))))


def test_a_shard_whose_clients_all_leave_drops_out_of_the_mean(before: State):
    made = forget(federation(), before, TARGETS["a whole shard"], SCHEDULE)
    assert made.notes[1] == "No data is left in shard 1: the mean of the members goes on without it."
    assert made.state["trained"].tolist() == [3, 0]
    own = federation()
    assert digest(member_of(made.state, 1)) == digest(member_of(state_of(own.model), 1)), "its untrained first weights"
    own.model.load_state_dict(made.state)
    alone = network()
    alone.load_state_dict(member_of(before, 0))
    x = torch.randn(5, *DIGITS.shape, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(own.model.eval()(x), alone.eval()(x).log_softmax(1), atol=1e-6)
    inputs = x.requires_grad_()
    own.model(inputs).sum().backward()
    assert bool(torch.isfinite(inputs.grad).all())  # type: ignore[arg-type]


def test_in_the_midst_of_training_the_shard_catches_up(before: State):
    """A request after one round: the shard is trained again for that round, and then all go on."""
    half = train(federation(), state_of(federation().model), replace(SCHEDULE, rounds=1))
    made = forget(federation(), half, CLASS, SCHEDULE)
    rest = train(federation(), made.state, SCHEDULE, start=1, exclude=[CLASS])
    assert digest(rest) == digest(trained(federation(parts=without([CLASS]))))


def test_further_rounds_do_not_bring_it_back(before: State):
    """By construction: not a bit depends on the target, whatever stood there."""
    labels = DIGITS.train.labels.clone()
    place = PARTS[1][CLASS.matches(DIGITS.train.select(PARTS[1]))]
    labels[place] = (labels[place] + 4) % 10
    noisy = replace(DIGITS, train=replace(DIGITS.train, labels=labels))
    ends = []
    for data in (DIGITS, noisy):
        own = LocalFederation(data, PARTS, Ensemble(network(), 2, seed=0))
        made = forget(own, before if data is DIGITS else trained(own), CLASS, SCHEDULE)
        ends.append([digest(state) for _, state in further_rounds(own, made.state, SCHEDULE, [CLASS], 5)])
    assert ends[0] == ends[1]
    assert len(set(ends[0])) == 6


def test_weights_that_were_given_are_not_exact():
    """Nobody knows what they saw."""
    given = state_of(network())
    own = LocalFederation(DIGITS, PARTS, Ensemble(network(), 2, seed=0, initial=given))
    assert {digest(member_of(state_of(own.model), shard)) for shard in (0, 1)} == {digest(given)}
    made = forget(own, trained(own), CLASS, SCHEDULE)
    assert not made.exact
    assert made.rungs[0].word == "not enough evidence"


def test_an_oracle_is_a_whole_ensemble_of_other_draws(before: State):
    own = federation()
    oracles = oracle_models(own, [CLASS], SCHEDULE, 2, data="digits")
    made = forget(own, before, CLASS, SCHEDULE)
    everything = [made.state, before, *oracles]
    for shard in (0, 1):
        members = {digest(member_of(state, shard)) for state in everything}
        assert len(members) == (4 if shard == 1 else 3)
    assert [state["trained"].tolist() for state in oracles] == [[3, 3], [3, 3]]


def test_measures_take_an_ensemble(before: State):
    own = federation()
    found = measure(own, before, [CLASS], DIGITS.test)
    own.model.load_state_dict(before)
    right = (own.model.eval()(own.normalisation(DIGITS.test.features)).argmax(1) == DIGITS.test.labels).sum()
    assert found.test_acc == pytest.approx(100 * int(right) / 60)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "retrain"])
def test_other_methods_are_refused_before_any_work(before: State, method: str):
    with pytest.raises(InputError, match=r"^This federation has shards, so a request retrains the shards"):
        forget(federation(), before, CLASS, SCHEDULE, method)


def test_a_climb_that_may_not_retrain_is_refused(before: State):
    for limits in ({"at_most": "rebuild"}, {"lowest": "overwrite", "at_most": "overwrite"}):
        with pytest.raises(InputError, match="no other method or rung is tried"):
            forget(federation(), before, CLASS, SCHEDULE, **limits)


def test_what_makes_no_ensemble_is_refused():
    for shards in (0, -1, 2.0, True):
        with pytest.raises(InputError, match=r"^The number of shards is .*, but it must be a whole number, 1 or"):
            Ensemble(network(), shards, seed=0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="give the network of one shard"):
        Ensemble(Ensemble(network(), 2, seed=0), 2, seed=0)
    with pytest.raises(InputError, match=re.escape("6 shards need at least as many clients, but shard 5 would have")):
        federation(6)
    with pytest.raises(InputError, match="to the Ensemble, as its `initial`"):
        LocalFederation(DIGITS, PARTS, Ensemble(network(), 2, seed=0), initial=state_of(network()))


def test_a_member_of_any_names_is_told_from_the_ensemble():
    """Also where the network itself has `members`, `rounds` and `trained`."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.members = nn.ModuleList([nn.Linear(4, 3)])
            self.register_buffer("rounds", torch.zeros(()))
            self.register_buffer("trained", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            return self.members[0](x)

    ensemble = Ensemble(Odd, 2, seed=0)
    whole = state_of(ensemble)
    assert network_for(ensemble, whole) is ensemble
    assert network_for(ensemble, member_of(whole, 1)) is ensemble.members[0]
    assert network_for(ensemble, {}) is ensemble
    assert digest({**whole, **as_member(member_of(whole, 1), 1)}) == digest(whole)
