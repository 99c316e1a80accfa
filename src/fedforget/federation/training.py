"""Local training: minibatch SGD on the client's own data (FedAvg's inner loop, the paper's section 2.1)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import DivergedError
from fedforget.federation.captured import can_capture, in_half, recorded
from fedforget.federation.client import Client
from fedforget.federation.layout import for_convolutions
from fedforget.federation.sgd import momentum_step
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

    total = _train(task, state, client, samples)
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


def _train(task: Train, state: Mapping[str, Tensor], client: Client, samples: Samples) -> Tensor:
    """The loop, v <- momentum v + g, theta <- theta - lr v; the sum of the losses. On a GPU each full batch is one
    replayed graph, the rest of an epoch goes plainly."""
    model, size = client.model, task.batch_size
    set_training_mode(model, min(len(samples), size) == 1)
    features, labels = samples.features.to(client.device), samples.labels.to(client.device)
    parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    velocity, total = [torch.zeros_like(p) for p in parameters], torch.zeros((), device=client.device)

    def step(x: Tensor, y: Tensor, graph: bool = False) -> tuple[list[Tensor], Tensor]:
        inputs = client.inputs(x)
        with in_half(graph):
            loss = F.cross_entropy(model(for_convolutions(model, inputs) if graph else inputs).float(), y)
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        momentum_step(parameters, velocity, gradients, task.lr, task.momentum)
        total.add_(loss.detach() * len(x))
        return velocity, total

    replayed = None
    if can_capture(model, client.device) and len(samples) >= size > 1:
        key = ("train", task.lr, task.momentum)
        replayed = recorded(model, key, partial(step, graph=True), (features[:size], labels[:size]))
        velocity, total = replayed.made  # those of the graph, from the round in which it was recorded
        torch._foreach_zero_([*velocity, total])
    client.load(state)  # only now: recording trains
    generator = derive_generator(task.seed, task.purpose, task.round, "client", client.index, "order")
    with seeded_globally(client.device, task.seed, task.purpose, task.round, "client", client.index, "dropout"):
        for _ in range(task.epochs):
            for batch in minibatches(len(samples), size, generator, client.device):
                work = replayed if replayed is not None and len(batch) == size else step
                work(features[batch], labels[batch])
    return total.clone()
