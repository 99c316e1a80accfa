"""How well a model knows the target beside unseen data: who is asked, what is counted, and on which half."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedforget.audit.check import CheckBeside
from fedforget.data import load_dataset
from fedforget.data.partition import partition
from fedforget.errors import ClientError
from fedforget.federation.beside import (
    ELSEWHERE,
    MOST_CLIENTS,
    CountBeside,
    CountElsewhere,
    Share,
    Sight,
    difference_error,
    half_of,
    look,
)
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.tasks import Reply, Task
from fedforget.models import build_model
from fedforget.params import State, state_of
from fedforget.requests import ErasureRequest

SCHEDULE = Schedule(rounds=2, lr=0.05, batch_size=16, threads=1)
CLASS = ErasureRequest.of_class(0, 3)


class Tapped(LocalFederation):
    """Writes down who was asked what, and what came back; a reply may be another by then."""

    lies: Mapping[int, Mapping[str, float]] = {}

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        for reply in super().ask(task, state, to):
            told = replace(reply, numbers=reply.numbers | dict(self.lies.get(reply.client, {})))
            self.log.append((task, told))
            yield told

    @property
    def log(self) -> list[tuple[Task, Reply]]:
        return self.__dict__.setdefault("_log", [])

    def asked(self, kind: type[Task]) -> list[int]:
        return [reply.client for task, reply in self.log if isinstance(task, kind)]


def make(clients: int = 4, apart: bool = False) -> tuple[Tapped, State]:
    """All hold out the test data; `apart`: each has its own part of it."""
    data = load_dataset("digits")
    own = [data.test.select(part) for part in partition("iid", data.test.labels, clients, 0)] if apart else None
    network = build_model("mlp", data.shape, 10, 0)
    world = Tapped(data, partition("iid", data.train.labels, clients, 0), network, held_out=own)
    state = train(world, state_of(world.model), SCHEDULE)
    world.log.clear()
    return world, state


def seen(world: Tapped, state: State, *requests: ErasureRequest, served: tuple[ErasureRequest, ...] = ()) -> Sight:
    world.log.clear()
    task = CountBeside(seed=0, threads=1, requests=requests or (CLASS,), served=served)
    return look(world, state, task, SCHEDULE)


def right(world: Tapped, state: State, features: Tensor, labels: Tensor) -> list[bool]:
    """Whether each sample gets its label, one sample at a time."""
    world.model.load_state_dict(state)
    world.model.eval()
    with torch.no_grad():
        said = [int(world.model(world.normalisation(one[None])).argmax()) for one in features]
    return [a == int(b) for a, b in zip(said, labels, strict=True)]


# Halves.


def test_the_halves_are_apart_and_everything_and_the_same_for_who_holds_the_same():
    world, _ = make()
    client = world.client(0)
    assert client.held_out is not None
    steer, judge = half_of(client, "steer", 0), half_of(client, "judge", 0)
    assert abs(len(steer) - len(judge)) <= 1
    assert sorted([*steer.ids.tolist(), *judge.ids.tolist()]) == sorted(client.held_out.ids.tolist())
    assert half_of(client, "steer", 0).ids.tolist() == steer.ids.tolist()
    assert half_of(client, "steer", 1).ids.tolist() != steer.ids.tolist()
    other = world.client(1)
    assert other.held_out is not None
    assert other.held_out.ids.tolist() == client.held_out.ids.tolist()
    assert half_of(other, "steer", 0).ids.tolist() == steer.ids.tolist(), "or one would steer by what another judges by"
    assert len(half_of(replace(client, held_out=None), "judge", 0)) == 0


# Counts.


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("half", ["steer", "judge"])
def test_the_counts_are_those_of_a_loop_over_the_samples_each_once(half: str, apart: bool):
    world, state = make(apart=apart)
    sight = look(world, state, CountBeside(seed=0, threads=1, requests=(CLASS,), half=half), SCHEDULE)  # type: ignore[arg-type]
    own = world.client(0).samples
    target = own.select((own.true_labels == 3).nonzero().squeeze(1))
    hits = right(world, state, target.features, target.labels)
    assert sight.target == Share(sum(hits), len(hits))
    unseen = half_of(world.client(0), half, 0)  # type: ignore[arg-type]
    kind = unseen.select((unseen.true_labels == 3).nonzero().squeeze(1))
    hits = right(world, state, kind.features, kind.labels)
    assert sight.kind == Share(sum(hits), len(hits))
    assert sight.labels == tuple(len(target) if label == 3 else 0 for label in range(10))
    by_label = {label: [0, 0] for label in range(10)}
    for index in (1, 2, 3) if apart else (1,):
        others = half_of(world.client(index), half, 0)  # type: ignore[arg-type]
        for label, hit in zip(others.labels.tolist(), right(world, state, others.features, others.labels), strict=True):
            by_label[label][0] += hit
            by_label[label][1] += 1
    assert sight.elsewhere == tuple(Share(*by_label[label]) for label in range(10))
    assert sight.area is None, "nobody attacked"


def test_a_share_has_the_error_of_agresti_and_coull():
    for hits, count in [(0, 0), (0, 5), (5, 5), (30, 100), (1999, 2000)]:
        p = (hits + 2) / (count + 4)
        assert Share(hits, count).error == pytest.approx(math.sqrt(p * (1 - p) / (count + 4)))


def test_two_models_cannot_differ_by_more_than_both_of_them_miss():
    assert difference_error(Share(200, 500), Share(300, 500)) == pytest.approx(0.02), "a fifth of 500 changes sides"
    assert difference_error(Share(490, 500), Share(485, 500)) == pytest.approx(math.sqrt(26) / 500)
    assert difference_error(Share(5, 5), Share(5, 5)) == pytest.approx(0.2)


def test_what_is_known_elsewhere_counts_each_label_as_often_as_the_target_does():
    elsewhere = (Share(1, 10), Share(9, 10), Share(0, 0))
    assert Sight(Share(1, 4), Share(), (3, 1, 0), elsewhere).known == pytest.approx((3 * 0.1 + 1 * 0.9) / 4)
    assert Sight(Share(1, 4), Share(), (3, 1, 0), elsewhere).gap is None
    assert Sight(Share(1, 4), Share(), (3, 0, 1), elsewhere).known is None, "nobody else has the third label"
    assert Sight(Share(), Share(), (0, 0, 0), elsewhere).known is None
    assert Sight(Share(), Share(), (0, 0, 0), elsewhere).accuracy == Share(10, 20)


# Who is asked.


def test_accuracy_is_measured_at_clients_that_did_not_ask():
    world, state = make()
    served = (ErasureRequest.of_class(1, 0), ErasureRequest.of_client(2))
    seen(world, state, CLASS, served=served)
    assert world.asked(CountBeside) == [0]
    assert world.asked(CountElsewhere) == [1, 3], "who withdrew a class before still uses the model, who left does not"


def test_an_askers_answers_change_nothing_of_the_accuracy():
    world, state = make()
    honest = seen(world, state)
    world.lies = {0: {"target/hits": 0.0, "kind/hits": 0.0, "hits/3": 0.0, "count/3": 10.0**6}}
    lied = seen(world, state)
    assert (lied.accuracy, lied.elsewhere) == (honest.accuracy, honest.elsewhere)
    assert (lied.target.hits, lied.kind.hits) == (0, 0)


@pytest.mark.parametrize(
    ("client", "lie"),
    [
        (0, {"target/hits": 10.0**6}),
        (0, {"kind/hits": -1.0}),
        (0, {"label/3": -5.0}),
        (0, {"area": math.nan}),
        (2, {"hits/3": 10.0**6}),
        (2, {"count/3": -5.0}),
        (2, {"count/3": 10.0**6}),
        (2, {"held/size": -5.0}),
    ],
)
def test_counts_that_cannot_be_are_refused_by_name(client: int, lie: dict[str, float]):
    world, state = make()
    world.lies = {client: lie}
    with pytest.raises(ClientError, match=rf"^Client {client} sent counts of samples that cannot be\.$"):
        seen(world, state)


def test_of_many_clients_ten_are_drawn_and_look_at_a_thousand_samples_together():
    world, state = make(40)
    sight = seen(world, state)
    asked = world.asked(CountElsewhere)
    assert len(asked) == len(set(asked)) == MOST_CLIENTS
    assert 0 not in asked
    seen(world, state)
    assert world.asked(CountElsewhere) == asked, "the same ones at every look, or looks could not be compared"
    per_client = {reply.client: reply.gradient_evaluations for task, reply in world.log if type(task) is CountElsewhere}
    assert set(per_client.values()) == {0.4 * ELSEWHERE / MOST_CLIENTS}
    assert sight.accuracy.count == 180, "all that they hold in common, and no thousand"


def test_clients_that_hold_the_same_samples_look_at_different_ones():
    world, state = make(40)
    told = [
        next(iter(world.ask(CountElsewhere(seed=0, threads=1, most=60), state, [index]))).numbers for index in range(3)
    ]
    held = half_of(world.client(0), "steer", 0).labels.bincount(minlength=10).tolist()
    assert [sum(numbers[f"count/{label}"] for numbers in told) for label in range(10)] == held, "three times 60 of 180"


def test_who_claims_to_hold_what_another_holds_silences_nobody():
    """Client 1 sends client 2's fingerprint and says that it knows nothing."""
    world, state = make(apart=True)
    (other,) = world.ask(CountElsewhere(seed=0, threads=1, most=334), state, [2])
    nothing = {name: 0.0 for name in other.numbers if name.startswith("hits/")}
    world.lies = {1: {**nothing, "held": other.numbers["held"]}}
    sight = seen(world, state)
    world.lies = {1: nothing}
    openly = seen(world, state)
    assert sight.accuracy.count < openly.accuracy.count, "the two count as one"
    assert sight.accuracy.value > openly.accuracy.value, "so the lie weighs less, and client 2 is heard"


def test_two_that_ask_are_counted_together():
    world, state = make()
    other = ErasureRequest.of_class(1, 5)
    one, two, both = seen(world, state, CLASS), seen(world, state, other), seen(world, state, CLASS, other)
    for name in ("target", "kind"):
        first, second, together = (getattr(sight, name) for sight in (one, two, both))
        assert together == Share(first.hits + second.hits, first.count + second.count)
    assert both.labels == tuple(a + b for a, b in zip(one.labels, two.labels, strict=True))
    assert world.asked(CountElsewhere) == [2, 3]


def test_the_area_of_two_is_weighed_by_the_sizes_of_their_targets():
    world, state = make()
    task = CheckBeside(seed=0, threads=1, requests=(ErasureRequest.of_client(0), ErasureRequest.of_client(1)))
    both = look(world, state, task, SCHEDULE)
    (a, b) = (next(iter(world.ask(task, state, [client]))).numbers for client in (0, 1))
    weights = [numbers["target/count"] / (a["target/count"] + b["target/count"]) for numbers in (a, b)]
    assert both.area is not None
    assert both.area[0] == pytest.approx(weights[0] * a["area"] + weights[1] * b["area"])
    assert both.area[1] == pytest.approx(math.hypot(weights[0] * a["area/error"], weights[1] * b["area/error"]))


def test_where_everybody_asks_nobody_is_left_to_say_how_it_is_served():
    world, state = make()
    everybody = [ErasureRequest.of_class(client, 3) for client in range(4)]
    sight = seen(world, state, *everybody)
    assert world.asked(CountElsewhere) == []
    assert (sight.accuracy.count, sight.known) == (0, None)
