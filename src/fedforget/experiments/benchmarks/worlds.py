"""The federations that are measured: real data where what it shows decides how long a request takes, else noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from fedforget.data import load_dataset
from fedforget.data.own import from_arrays
from fedforget.data.partition import partition
from fedforget.data.samples import Dataset
from fedforget.experiments.configurations import ASKING_CLIENT, find_configuration
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.models import MLP, build_model, xavier_initialise
from fedforget.params import State, state_of
from fedforget.requests import ErasureRequest

CLASSES = 10


def noise(shape: Sequence[int], samples: int, seed: int = 0) -> Dataset:
    """Images of nothing: what a step takes does not depend on what they show."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (samples, *shape), dtype=torch.uint8, generator=generator)
    return from_arrays(images, torch.arange(samples) % CLASSES, images[:CLASSES], torch.arange(CLASSES))


def network(name: str, shape: Sequence[int], hidden: int = 0) -> nn.Module:
    """A shipped network, or the MLP with so many hidden units."""
    if hidden:
        return xavier_initialise(MLP(shape, CLASSES, hidden), 0)
    return build_model(name, shape, CLASSES, 0)


@dataclass(frozen=True)
class NoiseWorld:
    """A client that asks, with `target` samples to forget and `retained` ones to keep, and `clients` - 1 others who
    share `others` samples."""

    name: str = "cnn"
    hidden: int = 0
    shape: tuple[int, ...] = (1, 28, 28)
    clients: int = 4
    target: int = 600
    retained: int = 900
    others: int = 4500
    device: str = "cpu"
    threads: int = 1
    rounds: int = 5
    method: str = "overwrite"
    preset: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    requests: int = 3

    def federation(self) -> LocalFederation:
        own = self.target + self.retained
        data = noise(self.shape, own + self.others)
        places = torch.arange(own, own + self.others)
        parts = [torch.arange(own), *(places.tensor_split(self.clients - 1) if self.clients > 1 else ())]
        return LocalFederation(data, parts, network(self.name, self.shape, self.hidden), device=self.device)

    @property
    def request(self) -> ErasureRequest:
        if self.retained == 0:
            return ErasureRequest.of_client(ASKING_CLIENT)
        return ErasureRequest.of_samples(ASKING_CLIENT, range(self.target))

    @property
    def schedule(self) -> Schedule:
        return Schedule(rounds=self.rounds, threads=self.threads)


@dataclass(frozen=True)
class TrainedWorld:
    """A federation of an experiment's configuration, trained, whose client 0 withdraws class 3."""

    configuration: str
    data: Dataset
    federation: LocalFederation
    schedule: Schedule
    request: ErasureRequest = field(default_factory=lambda: ErasureRequest.of_class(ASKING_CLIENT, 3))

    @classmethod
    def make(cls, configuration: str, device: str, threads: int, quick: bool) -> TrainedWorld:
        found = find_configuration(configuration)
        data = noise(found.shape, 400) if quick else load_dataset(found.dataset)
        schedule = found.schedule(0, threads)
        model = build_model("cnn" if quick else found.model, data.shape, len(data.classes), 0)
        parts = partition(found.partition, data.train.labels, found.clients, 0)
        return cls(configuration, data, LocalFederation(data, parts, model, device=device), schedule)

    def train(self) -> State:
        return train(self.federation, state_of(self.federation.model), self.schedule)

    @property
    def target(self) -> int:
        return self.federation.check([self.request])[ASKING_CLIENT].target
