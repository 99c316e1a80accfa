"""Who takes part in a round: seeded draws, short rounds whose cost does not grow with the federation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedforget import ErasureRequest, LocalFederation, Schedule, build_model, forget, load_dataset, partition, state_of
from fedforget.errors import InputError
from fedforget.federation.aggregation import average
from fedforget.federation.rounds import drawn, run_round, run_short_round, train
from fedforget.federation.tasks import Reply, Task
from fedforget.params import digest

SCHEDULE = Schedule(rounds=2, participation=0.3, threads=1, batch_size=16)


class Watched(LocalFederation):
    """Notes down who was asked what."""

    asked: list[tuple[str, list[int]]]

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        clients = list(self.clients if to is None else to)
        self.asked.append((type(task).__name__, clients))
        return super().ask(task, state, clients)


def federation(clients: int, scheme: str = "iid") -> Watched:
    dataset = load_dataset("digits")
    model = build_model("mlp", dataset.shape, 10, 0)
    made = Watched(dataset, partition(scheme, dataset.train.labels, clients, 0), model)
    made.asked = []
    return made


def test_a_draw_is_seeded_and_differs_from_round_to_round():
    clients = range(20)
    first = [drawn(clients, SCHEDULE.train_task(number)) for number in range(30)]
    assert first == [drawn(clients, SCHEDULE.train_task(number)) for number in range(30)]
    assert {len(set(chosen)) for chosen in first} == {6}
    assert len({tuple(sorted(chosen)) for chosen in first}) > 20
    assert set(Counter(client for chosen in first for client in chosen)) == set(clients)
    other = replace(SCHEDULE, seed=1)
    assert drawn(clients, other.train_task(0)) != first[0]


def test_everybody_is_drawn_evenly():
    counts = Counter(c for number in range(2000) for c in drawn(range(10), SCHEDULE.train_task(number)))
    assert all(500 < counts[client] < 700 for client in range(10))  # 600 each; 5 standard deviations are 102


def test_who_withdrew_is_passed_over_and_the_others_keep_their_turns():
    before = drawn(range(20), SCHEDULE.train_task(0))
    gone = ErasureRequest.of_client(before[0])
    after = drawn(range(20), SCHEDULE.train_task(0, [gone]))
    assert after[:-1] == before[1:]
    assert len(after) == len(before)
    assert before[0] not in after
    kept = ErasureRequest.of_class(before[0], 3)
    assert drawn(range(20), SCHEDULE.train_task(0, [kept])) == before


def test_at_least_one_client_trains():
    assert len(drawn(range(4), replace(SCHEDULE, participation=0.01).train_task(0))) == 1


@pytest.mark.parametrize("participation", [0.0, -0.1, 1.5, float("nan")])
def test_a_part_that_is_none_is_refused(participation: float):
    with pytest.raises(InputError, match="participation"):
        replace(SCHEDULE, participation=participation)


def test_only_the_drawn_train_and_the_model_is_their_mean():
    world = federation(10)
    start = state_of(world.model)
    trained = train(world, start, replace(SCHEDULE, rounds=1))
    chosen = drawn(world.clients, SCHEDULE.train_task(0))
    assert world.asked == [("Train", chosen)]
    alone = [next(iter(world.ask(SCHEDULE.train_task(0), start, [client]))) for client in sorted(chosen)]
    assert digest(average(alone)) == digest(trained)


def test_a_short_round_with_few_clients_is_a_round_with_all_of_them():
    world = federation(6)
    start, task = state_of(world.model), replace(SCHEDULE, participation=1.0).train_task(0)
    short = run_short_round(world, start, task, clients=6, samples=0)
    assert digest(short) == digest(run_round(world, start, task))


def test_a_short_round_asks_more_clients_until_the_samples_suffice():
    world = federation(100)  # about 14 samples each
    task = SCHEDULE.train_task(0)
    run_short_round(world, state_of(world.model), task, clients=10, samples=600)
    asked = [client for _, clients in world.asked for client in clients]
    samples = sum(len(world.client(client).samples) for client in asked)
    assert len(asked) == len(set(asked))
    assert len(world.asked) <= 3
    assert 600 <= samples < 700


def test_a_short_round_ends_when_everybody_was_asked():
    world = federation(12)
    run_short_round(world, state_of(world.model), SCHEDULE.train_task(0), clients=5, samples=10**9)
    assert sorted(client for _, clients in world.asked for client in clients) == list(range(12))


def test_clients_with_nothing_left_do_not_stop_a_short_round():
    world = federation(30)
    gone = [ErasureRequest.of_samples(k, world.client(k).samples.ids.tolist()) for k in range(29)]
    start, task = state_of(world.model), SCHEDULE.train_task(0, gone)
    state = run_short_round(world, start, task, clients=2, samples=10)
    (alone,) = world.ask(task, start, [29])
    assert digest(state) == digest(alone.tensors)


def test_a_request_asks_as_many_clients_in_a_large_federation_as_in_a_small_one():
    evaluations = {}
    for clients in (10, 200):
        world = federation(clients)
        ids = world.client(0).samples.ids[:5].tolist()
        schedule = replace(SCHEDULE, participation=1.0)
        world.asked.clear()
        result = forget(
            world, state_of(world.model), ErasureRequest.of_samples(0, ids), schedule, "overwrite",
            recovery_clients=5, recovery_min_samples=14, recovery_share=0.01,
        )  # fmt: skip
        rounds = [len(asked) for kind, asked in world.asked if kind == "Train"]
        evaluations[clients] = result.cost.gradient_evaluations
        assert sum(rounds) <= 2 * 15
    assert evaluations[200] < 1.5 * evaluations[10]
    assert torch.isfinite(torch.tensor(list(evaluations.values()))).all()
