"""A small federation twice: in one process, and as Flower nodes behind an in-process Grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context
from in_process_grid import Change, InProcessGrid
from torch import Tensor

from fedforget.data import Dataset, load_dataset
from fedforget.data.partition import partition
from fedforget.federation.client import Client
from fedforget.federation.history import MemoryHistory
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.shards import Ensemble
from fedforget.flower import FlowerFederation, build_client_app
from fedforget.flower.client_app import client_number
from fedforget.models import build_model
from fedforget.params import State, state_of

SCHEDULE = Schedule(rounds=3, lr=0.05, batch_size=16, threads=1)


@dataclass
class World:
    """240 digits, four clients, and what they know after three rounds."""

    dataset: Dataset
    parts: list[Tensor]
    model: str = "cnn"
    shards: int = 1
    before: State = field(default_factory=dict)
    history: MemoryHistory = field(default_factory=lambda: MemoryHistory(interval=1))

    def network(self) -> Any:
        network = build_model(self.model, self.dataset.shape, len(self.dataset.classes), SCHEDULE.seed)
        return network if self.shards == 1 else Ensemble(network, self.shards, SCHEDULE.seed)

    def local(self, **more: Any) -> LocalFederation:
        return LocalFederation(self.dataset, self.parts, self.network(), **more)

    def load_client(self, context: Context) -> Client:
        return self.local().client(client_number(context))

    def grid(
        self, folder: Path | None = None, change: Change = lambda _, reply: [reply],
        load: Callable[[Context], Client] | None = None,
    ) -> InProcessGrid:  # fmt: skip
        return InProcessGrid(build_client_app(load or self.load_client), len(self.parts), folder, change=change)

    def flower(self, grid: InProcessGrid, **more: Any) -> FlowerFederation:
        settings = {"clients": len(self.parts), "poll_s": 0.001, "join_timeout_s": 0.05, "timeout_s": 0.05, **more}
        return FlowerFederation(grid, self.network(), len(self.dataset.classes), self.dataset.normalisation, **settings)


def make_world(model: str, shards: int = 1) -> World:
    dataset = load_dataset("digits").first(240, 60)
    world = World(dataset, partition("iid", dataset.train.labels, 4, 0), model, shards)
    history = world.history if shards == 1 else None
    world.before = train(world.local(), state_of(world.network()), SCHEDULE, history=history)
    return world
