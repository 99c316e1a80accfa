"""Requests on noise, in a process of their own, since peak memory is asked for."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import torch

from fedforget.data.own import from_arrays
from fedforget.errors import FedForgetError
from fedforget.experiments.configurations import ASKING_CLIENT
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule
from fedforget.federation.tasks import Train
from fedforget.methods import forget
from fedforget.models import MLP, build_model, xavier_initialise
from fedforget.params import state_of, weight_count
from fedforget.requests import ErasureRequest

CLASSES = 10


@dataclass(frozen=True)
class NoiseWorld:
    """A client that asks, with `target` samples to forget and `retained` ones to keep, and `clients` - 1 others who
    share `others` samples: images of nothing, since what a step takes does not depend on what they show."""

    hidden: int = 0
    """Units of an MLP; 0: the CNN."""
    side: int = 28
    clients: int = 4
    target: int = 600
    retained: int = 900
    others: int = 4500
    device: str = "cpu"
    threads: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    requests: int = 3

    def federation(self) -> LocalFederation:
        shape, own = (1, self.side, self.side), self.target + self.retained
        samples = own + self.others
        images = torch.randint(0, 256, (samples, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        labels = torch.arange(samples) % CLASSES
        data = from_arrays(images, labels, images[:CLASSES], labels[:CLASSES])
        mlp = xavier_initialise(MLP(shape, CLASSES, self.hidden), 0) if self.hidden else None
        parts = [torch.arange(own), *torch.arange(own, samples).tensor_split(self.clients - 1)]
        return LocalFederation(data, parts, mlp or build_model("cnn", shape, CLASSES, 0), device=self.device)


def measured_alone(world: NoiseWorld) -> dict[str, Any]:
    """What `measured` finds in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        try:
            return process.submit(measured, world).result()
        except Exception as error:
            raise FedForgetError(f"The benchmark failed in its process: {error}") from error


def measured(world: NoiseWorld) -> dict[str, Any]:
    """Some requests, and one epoch over the target beside each; the first of both does not count."""
    torch.set_num_threads(world.threads)
    federation = world.federation()
    state = state_of(federation.model)
    request = ErasureRequest.of_samples(ASKING_CLIENT, range(world.target))
    share = world.target / (world.target + world.retained)
    epoch = Train(seed=0, threads=world.threads, round=0, share=share, purpose="bench")
    epochs, costs = [], []
    for _ in range(1 + world.requests):
        start = time.perf_counter()
        list(federation.ask(epoch, state, [ASKING_CLIENT]))
        epochs.append(time.perf_counter() - start)
        schedule = Schedule(rounds=5, threads=world.threads)
        result = forget(federation, state, request, schedule, "overwrite", None, **world.settings)
        costs.append(result.cost)
    return {
        "parameters": weight_count(federation.model), "epoch": epochs[1:],
        "request": [cost.total_seconds for cost in costs[1:]],
        **{name: getattr(costs[0], name) for name in ("bytes", "stored_bytes", "peak_bytes", "gradient_evaluations")},
    }  # fmt: skip
