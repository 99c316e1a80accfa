"""Federations of four small clients with points of three classes, for tests of single methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from fedforget.data.own import from_arrays
from fedforget.federation.history import MemoryHistory
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.tasks import Reply, Task, Withdraw
from fedforget.models import xavier_initialise
from fedforget.params import State, state_of

SIZES = (30, 20, 25, 15)
SCHEDULE = Schedule(rounds=5, lr=0.05, batch_size=8, threads=1)


class Tapped(LocalFederation):
    """Writes down every task, the model that went with it, and the reply; not the withdrawal, which comes before the
    first task of every method."""

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        for reply in super().ask(task, state, to):
            if not isinstance(task, Withdraw):
                self.log.append((task, dict(state), reply))
            yield reply

    @property
    def log(self) -> list[tuple[Task, State, Reply]]:
        return self.__dict__.setdefault("_log", [])


World = TypeVar("World", bound=Tapped)


def network(normalised: bool = False) -> nn.Module:
    middle = [nn.BatchNorm1d(10)] if normalised else []
    return xavier_initialise(nn.Sequential(nn.Linear(6, 10), *middle, nn.ReLU(), nn.Linear(10, 3)), 0)


def federation(sizes: tuple[int, ...] = SIZES, normalised: bool = False, kind: Callable[..., World] = Tapped) -> World:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(sum(sizes)) % 3
    features = torch.randn(sum(sizes), 6, generator=generator) + 2 * torch.nn.functional.one_hot(labels, 6)
    data = from_arrays(features, labels, features[:9], labels[:9])
    parts = list(torch.arange(sum(sizes)).split(list(sizes)))
    return kind(data, parts, network(normalised))


def trained(normalised: bool = False, interval: int = 2) -> tuple[Tapped, State, MemoryHistory]:
    """(the federation, its model after SCHEDULE, what was kept of the training)."""
    world, history = federation(normalised=normalised), MemoryHistory(interval)
    before = train(world, state_of(world.model), SCHEDULE, history=history)
    world.log.clear()
    return world, before, history


def inputs_and_labels(world: Tapped, client: int, positions: Tensor) -> tuple[Tensor, Tensor]:
    own = world.client(client)
    return own.inputs(own.samples.features[positions]), own.samples.labels[positions]


def loaded(world: Tapped, state: Mapping[str, Tensor]) -> nn.Module:
    model = network(any("running_mean" in name for name in state))
    model.load_state_dict(dict(state))
    return model
