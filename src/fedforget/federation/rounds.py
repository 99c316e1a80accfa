"""Federated training: rounds of local training and averaging (FedAvg, the paper's section 2.1)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedforget.errors import InputError
from fedforget.federation.aggregation import average, mean_of
from fedforget.federation.history import History, recorded
from fedforget.federation.ridge import Ridge
from fedforget.federation.seam import Federation
from fedforget.federation.shards import ROUNDS, TRAINED, Ensemble, as_member, member_of, shard_seed
from fedforget.federation.sums import solve_again
from fedforget.federation.tasks import Reply, TargetTask, Train
from fedforget.params import State, copy_state
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator

AnyTask = TypeVar("AnyTask", bound=TargetTask)

FEWEST_ROUNDS = 3
"""A part of the training takes at least so many rounds, each over a part of the data: what clients train apart averages
badly."""


@dataclass(frozen=True)
class Schedule:
    """How the federation trains. The defaults work on MNIST; the paper leaves batch size and momentum open."""

    rounds: int = 5
    epochs: int = 1
    lr: float = 0.01
    momentum: float = 0.9
    batch_size: int = 64
    seed: int = 0
    threads: int = os.cpu_count() or 1
    decay: float = 1.0
    """The learning rate of the last round as a part of the first's; it falls by the same factor from round to round."""
    participation: float = 1.0
    """The part of the clients that train in a round, drawn anew for each."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            whole = item.type == "int"
            if not isinstance(value, int if whole else int | float):
                kind = "whole number" if whole else "number"
                raise InputError(f"Training setting '{item.name}' is {value!r}, but it must be a {kind}.")
            may_be_0 = item.name in ("momentum", "seed", "rounds")
            if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_0):
                need = "0 or larger" if may_be_0 else "above 0"
                raise InputError(f"Training setting '{item.name}' is {value}, but it must be a finite number {need}.")
        if self.momentum >= 1:
            raise InputError(f"Training setting 'momentum' is {self.momentum}, but it must be below 1.")
        for name in ("decay", "participation"):
            if getattr(self, name) > 1:
                raise InputError(f"Training setting '{name}' is {getattr(self, name)}, but it must be at most 1.")

    def lr_of(self, round: int) -> float:
        """The learning rate of a round, counted from 0; after the last one it stays.

        >>> schedule = Schedule(rounds=3, lr=0.1, decay=0.01)
        >>> [round(schedule.lr_of(number), 4) for number in range(4)]
        [0.1, 0.01, 0.001, 0.001]
        """
        last = max(1, self.rounds - 1)
        return self.lr * float(self.decay ** (min(round, last) / last))

    def about(
        self,
        task: type[AnyTask],
        requests: Sequence[ErasureRequest],
        served: Sequence[ErasureRequest] = (),
        **more: Any,
    ) -> AnyTask:
        """A task about what is being forgotten."""
        return task(seed=self.seed, threads=self.threads, requests=tuple(requests), served=tuple(served), **more)

    def train_task(self, round: int, exclude: Sequence[ErasureRequest] = ()) -> Train:
        """The task of one ordinary round."""
        return Train(
            seed=self.seed, threads=self.threads, round=round, epochs=self.epochs, lr=self.lr_of(round),
            momentum=self.momentum, batch_size=self.batch_size, exclude=tuple(exclude),
            participation=self.participation,
        )  # fmt: skip


def participants(federation: Federation, exclude: Sequence[ErasureRequest]) -> list[int]:
    """Everybody but the clients that withdrew altogether."""
    return _present(federation.clients, exclude)


def _present(clients: Sequence[int], exclude: Sequence[ErasureRequest]) -> list[int]:
    gone = {request.client for request in exclude if request.kind == "client"}
    return [client for client in clients if client not in gone]


def drawn(clients: Sequence[int], task: Train) -> list[int]:
    """Which of all `clients` train in the round of `task`, in a random order where not everybody does."""
    if task.participation == 1.0:
        return _present(clients, task.exclude)
    return _shuffled(clients, task)[: max(1, round(task.participation * len(clients)))]


def _shuffled(clients: Sequence[int], task: Train) -> list[int]:
    """A random order. Who withdrew is passed over: the others' order stays the same."""
    generator = derive_generator(task.seed, task.purpose, task.round, "participants")
    order = torch.randperm(len(clients), generator=generator).tolist()
    return _present([clients[position] for position in order], task.exclude)


def run_round(
    federation: Federation, state: Mapping[str, Tensor], task: Train, history: History | None = None
) -> State:
    """One round: who is drawn trains `task` from `state`, the server averages (Eq. 2) and, with a `history`, keeps what
    was sent and what came back. Where there are shards, each has a round of its own; a ridge head is not averaged but
    solved, from everybody's sums."""
    if isinstance(federation.model, Ensemble):
        return run_round_of(range(federation.model.shards), federation, federation.model, state, task)
    if isinstance(federation.model, Ridge):
        return solve_again(federation, federation.model, state, task, participants(federation, task.exclude))
    replies = federation.ask(task, state, drawn(federation.clients, task))
    return average(recorded(replies, history, task.round, state))


def asked_in(federation: Federation, task: Train) -> int:
    """How many clients one round asks."""
    whole, clients = federation.model, federation.clients
    apart = [whole.clients_of(k, clients) for k in range(whole.shards)] if isinstance(whole, Ensemble) else [clients]
    return sum(len(drawn(some, task)) for some in apart)


def run_round_of(
    shards: Iterable[int], federation: Federation, ensemble: Ensemble, state: Mapping[str, Tensor], task: Train
) -> State:
    """One round of these shards, each with draws of its own. One whose clients have no data left stays as it is."""
    new = copy_state(state)
    for shard in shards:
        own = replace(task, seed=shard_seed(task.seed, shard))
        asked = drawn(ensemble.clients_of(shard, federation.clients), own)
        mean = mean_of(federation.ask(own, member_of(state, shard), asked))
        if mean.weight > 0:
            new |= as_member(mean.result(), shard)
            new[TRAINED][shard] += 1
    new[ROUNDS] += 1
    return new


def run_short_round(
    federation: Federation, state: Mapping[str, Tensor], task: Train, *, clients: int, samples: int
) -> State:
    """A round whose cost does not grow with the federation: random clients train `task`, at least `clients` of them
    and as many more as it takes until `samples` samples took part. Nobody's number of samples is asked beforehand: what
    the first replies say tells how many more clients are needed."""
    waiting = participants(federation, task.exclude)
    if len(waiting) > clients:
        waiting = _shuffled(federation.clients, task)

    def replies() -> Iterator[Reply]:
        asked, seen, now = 0, 0.0, clients
        while asked < len(waiting) and now > 0:
            for reply in federation.ask(task, state, waiting[asked : asked + now]):
                seen += reply.numbers["samples"]
                yield reply
            asked += now
            now = math.ceil((samples - seen) / max(1.0, seen / asked))

    return average(replies())


def train(
    federation: Federation,
    state: Mapping[str, Tensor],
    schedule: Schedule,
    *,
    start: int = 0,
    exclude: Sequence[ErasureRequest] = (),
    on_round: Callable[[int, State], None] | None = None,
    history: History | None = None,
) -> State:
    """Rounds `start` to `schedule.rounds` - 1. `on_round(done, state)` is called after each, to save and to show;
    `history` keeps the clients' models for a method that needs them."""
    current = copy_state(state)
    for round in range(start, schedule.rounds):
        current = run_round(federation, current, schedule.train_task(round, exclude), history)
        if on_round is not None:
            on_round(round + 1, current)
    return current


def train_part(
    federation: Federation,
    state: State,
    schedule: Schedule,
    part: float,
    exclude: Sequence[ErasureRequest],
    purpose: str,
    *,
    min_samples: int,
    rate: float = 1.0,
    last_rate: float = 1.0,
) -> State:
    """Rounds over parts of everybody's retained data, together `part` of the training that there once was.

    The learning rate falls in a straight line from `rate` times to `last_rate` times the schedule's."""
    passes = part * schedule.rounds * schedule.epochs
    rounds = max(FEWEST_ROUNDS, math.ceil(passes))
    for round in range(rounds):
        ordinary = schedule.train_task(round, exclude)
        now = rate + (last_rate - rate) * round / (rounds - 1)
        task = replace(
            ordinary, epochs=1, share=min(1.0, passes / rounds), min_samples=min_samples, purpose=purpose,
            lr=ordinary.lr * now,
        )  # fmt: skip
        state = run_round(federation, state, task)
    return state


def further_round(schedule: Schedule, done: int, exclude: Sequence[ErasureRequest]) -> Train:
    """An ordinary round after the schedule's end, for durability: with draws of its own."""
    return replace(schedule.train_task(done, exclude), purpose="further")


def further_rounds(
    federation: Federation, state: State, schedule: Schedule, exclude: Sequence[ErasureRequest], rounds: int
) -> Iterator[tuple[int, State]]:
    """(0, `state`), then (done, the model) after each of `rounds` further ordinary rounds."""
    yield 0, state
    for done in range(rounds):
        state = run_round(federation, state, further_round(schedule, schedule.rounds + done, exclude))
        yield done + 1, state


def recover(
    federation: Federation,
    state: Mapping[str, Tensor],
    schedule: Schedule,
    rounds: int,
    exclude: Sequence[ErasureRequest],
) -> State:
    """Ordinary rounds after forgetting, on the retained data alone, with draws of their own."""
    current = copy_state(state)
    for round in range(rounds):
        current = run_round(federation, current, replace(schedule.train_task(round, exclude), purpose="recovery"))
    return current
