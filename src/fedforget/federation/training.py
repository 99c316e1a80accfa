"""Local training: minibatch SGD on the client's own data (FedAvg's inner loop, the paper's section 2.1)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import DivergedError
from fedforget.federation.captured import can_capture, captured_step
from fedforget.federation.client import Client
from fedforget.federation.sgd import SGD, momentum_step
from fedforget.federation.tasks import Reply, Train
from fedforget.params import first_non_finite, state_of
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, seeded_globally

_NORMALISERS = (nn.modules.batchnorm._NormBase,)
"""Every layer that keeps running statistics: batch and instance normalisation."""


def minibatches(n: int, batch_size: int, generator: torch.Generator, device: torch.device) -> Iterator[Tensor]:
    """Positions 0..n-1 in a random order, `batch_size` at a time. A lone last sample joins the batch before it,
    since batch statistics of one sample do not exist."""
    order = torch.randperm(n, generator=generator).to(device)
    pieces = list(order.split(batch_size))
    if len(pieces) > 1 and len(pieces[-1]) == 1:
        pieces[-2:] = [torch.cat(pieces[-2:])]
    yield from pieces


def set_training_mode(model: nn.Module, freeze_normalisation: bool) -> None:
    """Training mode; with `freeze_normalisation`, layers with running statistics use and keep the ones they have."""
    model.train()
    if freeze_normalisation:
        for module in model.modules():
            if isinstance(module, _NORMALISERS):
                module.eval()


def train_at_client(
    task: Train, state: Mapping[str, Tensor], client: Client, being_forgotten: Sequence[ErasureRequest] = ()
) -> Reply:
    """One client's round: theta_{k,t+1} from theta_t (the step before Eq. 2)."""

    def share(n: int) -> Tensor:
        generator = derive_generator(task.seed, task.purpose, task.round, "client", client.index, "share")
        count = max(1, math.ceil(task.share * n), task.min_samples)
        return torch.randperm(n, generator=generator)[:count].sort().values

    samples = client.retained(task.exclude, being_forgotten, share if task.share < 1.0 else None)
    if len(samples) == 0:
        return Reply(client.index, numbers={"samples": 0.0})

    if can_capture(client.model, client.device) and len(samples) >= task.batch_size > 1:
        total = _train_captured(task, state, client, samples)
    else:
        total = _train_plainly(task, state, client, samples)

    trained = state_of(client.model)
    broken = first_non_finite(trained)
    if broken is not None:
        raise DivergedError(
            f"Training in round {task.round} at client {client.index}",
            f"parameter '{broken}' is no longer finite; lower the learning rate ({task.lr:g}).",
        )
    evaluations = float(len(samples) * task.epochs)
    return Reply(
        client.index,
        tensors=trained,
        numbers={"samples": float(len(samples)), "loss": float(total) / evaluations},
        gradient_evaluations=evaluations,
    )


def _order(task: Train, client: Client) -> torch.Generator:
    return derive_generator(task.seed, task.purpose, task.round, "client", client.index, "order")


def _train_plainly(task: Train, state: Mapping[str, Tensor], client: Client, samples: Samples) -> Tensor:
    """The loop as one would write it; the sum of the losses."""
    model = client.load(state)
    alone = min(len(samples), task.batch_size) == 1
    set_training_mode(model, task.freeze_normalisation or alone)
    optimiser = SGD(model.parameters(), task.lr, task.momentum)
    generator = _order(task, client)
    features, labels = samples.features.to(client.device), samples.labels.to(client.device)
    total = torch.zeros((), device=client.device)
    with seeded_globally(client.device, task.seed, task.purpose, task.round, "client", client.index, "dropout"):
        for _ in range(task.epochs):
            for batch in minibatches(len(samples), task.batch_size, generator, client.device):
                loss = F.cross_entropy(model(client.inputs(features[batch])), labels[batch])
                optimiser.step(loss)
                total += loss.detach() * len(batch)
    return total


def _train_captured(task: Train, state: Mapping[str, Tensor], client: Client, samples: Samples) -> Tensor:
    """The same loop on a GPU, each full batch as one replayed graph, the rest of an epoch plainly."""
    model = client.model
    set_training_mode(model, task.freeze_normalisation)
    features, labels = samples.features, samples.labels.to(client.device)
    mode = "frozen" if task.freeze_normalisation else "training"
    step = captured_step(model, client.normalisation, features, labels, task.batch_size, task.lr, task.momentum, mode)
    client.load(state)
    step.reset()
    generator = _order(task, client)
    parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    for _ in range(task.epochs):
        for batch in minibatches(len(samples), task.batch_size, generator, client.device):
            if len(batch) == task.batch_size:
                step(features, labels, batch)
                continue
            loss = F.cross_entropy(model(client.inputs(features[batch])), labels[batch])
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
            momentum_step(parameters, step.velocity, gradients, task.lr, task.momentum)
            step.loss += loss.detach() * len(batch)
    return step.loss.clone()
