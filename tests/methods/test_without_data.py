"""Forgetting a class whose samples are gone: what is kept, what is drawn, what is refused, and that it works."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedforget import ErasureRequest, LocalFederation, Schedule, build_model, forget, load_dataset, partition, state_of
from fedforget.audit.measures import measure
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import InputError
from fedforget.federation.client import STATISTICS
from fedforget.federation.embedding import find_head
from fedforget.federation.rounds import train
from fedforget.methods.fedaf.settings import WITHOUT_DATA
from fedforget.methods.fedaf.without_data import FEWEST, ForgetFromStatistics, KeepStatistics, keep_statistics
from fedforget.params import State, digest, trainable, weight_count

SCHEDULE = Schedule(rounds=12, lr=0.05, batch_size=16, threads=1)
REQUEST = ErasureRequest.of_class(0, 3)


class World:
    """A small federation with a backdoored class, trained; the class's samples can be lost."""

    def __init__(self) -> None:
        self.dataset = load_dataset("digits")
        self.parts = partition("iid", self.dataset.train.labels, 3, 0)
        self.model = build_model("cnn", self.dataset.shape, 10, 0)
        self.backdoor = Backdoor.draw(REQUEST, Trigger(2, margin=0), 10, 0)
        self.federation = self._federation(self.parts)
        self.before = train(self.federation, state_of(self.model), SCHEDULE)

    def _federation(self, parts: list[Tensor]) -> LocalFederation:
        return LocalFederation(self.dataset, parts, self.model, backdoors=[self.backdoor])

    def without_samples(self, *, statistics: bool = True) -> LocalFederation:
        """The same federation after client 0 lost its class 3."""
        keep_statistics(self.federation, self.before, SCHEDULE, to=[0])
        lost = self.dataset.train.labels[self.parts[0]] == 3
        found = self._federation([self.parts[0][~lost], *self.parts[1:]])
        if statistics:
            found.client(0).kept[STATISTICS] = self.federation.client(0).kept[STATISTICS]
        return found

    def bd_acc(self, state: State) -> float:
        figure = measure(self.federation, state, [REQUEST], self.dataset.test, backdoor=self.backdoor, threads=1).bd_acc
        assert figure is not None
        return figure


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def test_what_is_kept_is_the_mean_and_deviation_of_each_class_and_label(world: World):
    (reply,) = world.federation.ask(KeepStatistics(seed=0, threads=1), world.before, [0])
    assert not reply.tensors
    assert set(reply.numbers) == {"rows"}
    client = world.federation.client(0)
    kept = client.kept[STATISTICS]
    model = client.load(world.before).eval()
    for row, (label, trained) in enumerate(zip(kept.labels.tolist(), kept.trained.tolist(), strict=True)):
        assert trained == (world.backdoor.flipped_label if label == 3 else label)
        own = client.samples.true_labels == label
        with torch.no_grad():
            by_hand = nn.Sequential(*list(model)[:-1])(client.inputs(client.samples.features[own])).double()
        assert int(kept.counts[row]) == len(by_hand)
        assert torch.allclose(kept.means[row].double(), by_hand.sum(0) / len(by_hand), atol=1e-5)
        spread = ((by_hand - by_hand.mean(0)) ** 2).sum(0) / len(by_hand)
        assert torch.allclose(kept.deviations[row].double() ** 2, spread, atol=1e-4)


def test_no_statistic_is_kept_of_a_few_samples(world: World):
    few = world.federation.client(0).samples.ids[:0].tolist()
    client = world.federation.client(0)
    positions = (client.samples.true_labels == 5).nonzero().squeeze(1)
    few = client.samples.ids[positions[FEWEST - 1 :]].tolist()
    served = (ErasureRequest.of_samples(0, few),)
    list(world.federation.ask(KeepStatistics(seed=0, threads=1, served=served), world.before, [0]))
    assert 5 not in client.kept[STATISTICS].labels.tolist()
    assert 4 in client.kept[STATISTICS].labels.tolist()


@pytest.mark.real
def test_a_class_is_forgotten_when_its_samples_are_gone(world: World):
    federation = world.without_samples()
    assert not bool(REQUEST.matches(federation.client(0).samples).any())
    result = forget(federation, world.before, REQUEST, SCHEDULE, preset="without-data")
    retrained = forget(world.federation, world.before, REQUEST, SCHEDULE, "retrain")
    before, after, oracle = map(world.bd_acc, (world.before, result.state, retrained.state))
    assert before > 60
    assert before - after > 0.8 * (before - oracle)
    test = [
        measure(world.federation, state, [REQUEST], world.dataset.test, threads=1).test_acc
        for state in (result.state, retrained.state)
    ]
    assert test[0] > test[1] - 3


def test_the_samples_are_not_looked_at_where_statistics_are_kept(world: World):
    """The client that has the samples still comes to the same bits as the one that lost them."""
    lost = world.without_samples()
    task = ForgetFromStatistics(
        seed=0, threads=1, requests=(REQUEST,), settings=WITHOUT_DATA.for_network(weight_count(world.model))
    )
    (with_samples,) = world.federation.ask(task, world.before, [0])
    (without,) = lost.ask(task, world.before, [0])
    assert digest(with_samples.tensors) == digest(without.tensors)


def test_only_the_head_moves_before_the_recovery(world: World):
    federation = world.without_samples()
    result = forget(federation, world.before, REQUEST, SCHEDULE, preset="without-data", recovery_rounds=0)
    changed = {name for name, tensor in result.state.items() if not torch.equal(tensor, world.before[name])}
    head = find_head(world.model, world.federation.normalisation(world.dataset.test.features[:2]))
    assert changed == {f"{head}.weight", f"{head}.bias"}


def test_a_client_with_samples_and_no_statistics_makes_them_first(world: World):
    world.federation.client(0).kept.clear()
    result = forget(world.federation, world.before, REQUEST, SCHEDULE, preset="without-data")
    assert world.bd_acc(result.state) < 20


def test_neither_samples_nor_statistics_is_refused(world: World):
    federation = world.without_samples(statistics=False)
    with pytest.raises(InputError, match="holds no sample of class 3"):
        forget(federation, world.before, REQUEST, SCHEDULE, preset="without-data")


def test_statistics_of_another_model_are_refused(world: World):
    federation = world.without_samples()
    moved = {name: tensor + 0.01 if name in trainable(world.model) else tensor for name, tensor in world.before.items()}
    with pytest.raises(InputError, match="no statistics of class 3 for this model"):
        forget(federation, moved, REQUEST, SCHEDULE, preset="without-data")


@pytest.mark.parametrize("kind", ["samples", "client"])
def test_only_classes_can_be_forgotten_so(world: World, kind: str):
    ids = world.federation.client(0).samples.ids[:5].tolist()
    request = ErasureRequest.of_client(0) if kind == "client" else ErasureRequest.of_samples(0, ids)
    with pytest.raises(InputError, match="only a class"):
        forget(world.federation, world.before, request, SCHEDULE, preset="without-data")


def test_a_memory_that_needs_the_samples_is_refused():
    with pytest.raises(InputError, match="looks at the target's samples"):
        replace(WITHOUT_DATA, memory="reminded")


def test_two_classes_of_which_one_was_served_before(world: World):
    first = forget(world.federation, world.before, REQUEST, SCHEDULE, preset="without-data")
    second = ErasureRequest.of_class(0, 4)
    keep_statistics(world.federation, first.state, SCHEDULE, [REQUEST], [0])
    kept = world.federation.client(0).kept[STATISTICS]
    assert 3 not in kept.labels.tolist()
    result = forget(
        world.federation, first.state, second, SCHEDULE, preset="without-data", served=[REQUEST]
    )  # fmt: skip
    assert world.bd_acc(result.state) < 20


class GoesOn(nn.Module):
    """Its last linear layer is not its last."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * self.head(x)


def test_a_head_that_is_not_the_last_word_is_refused():
    with pytest.raises(InputError, match="goes on after its last"):
        find_head(GoesOn(), torch.randn(5, 4))
    with pytest.raises(InputError, match=r"no nn\.Linear"):
        find_head(nn.Sequential(nn.Flatten()), torch.randn(5, 4))


def test_the_head_is_the_linear_layer_that_runs_last():
    assert find_head(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), torch.randn(7, 4)) == "2"


def test_a_client_that_keeps_nothing_takes_everybodys_sketch(world: World):
    served = [ErasureRequest.of_class(0, label) for label in range(10) if label != 3]
    result = forget(world.federation, world.before, REQUEST, SCHEDULE, preset="without-data", served=served)
    assert world.bd_acc(result.state) < 20
