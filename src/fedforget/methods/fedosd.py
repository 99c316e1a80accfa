"""FedOSD: descend on the target's bounded loss along what is orthogonal to every client's retained gradient, then train
on without going back (Pan et al., AAAI 2025, arXiv 2412.20200).

Unlearning, in every round:
    UCE = - log(1 - p_y / 2)                          on R: falls to 0 as the trained label's probability p_y does
    g_u = mean gradient of UCE over R                 A: one row for each client, the mean gradient of its retained data
    d   = g_u - A^T (A A^T)^+ A g_u                   orthogonal to every row, and the nearest such to g_u
    theta <- theta - lr ||g_u|| d/||d||

Post-training, ordinary rounds on the retained data, in which every client's update u is
    u - (u g_a)/||g_a||^2 g_a,  at u's own length,    g_a = theta - theta*: no step leads back to the old model

All gradients are taken in evaluation mode over a random part of the data, anew in each round (`samples`); where several
clients ask, g_u is the mean of theirs. The pseudo-inverse drops singular values below 1e-6 of the largest, since the
gradients of a trained model are small. The published example takes 100 rounds at 4e-4 and 100 more at 1e-6, and its
steps are those of a local epoch; here a step is one gradient, hence the larger rate, and a tenth of the rounds does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.federation.aggregation import average
from fedforget.federation.client import Client
from fedforget.federation.cost import Meter
from fedforget.federation.rounds import Schedule, participants
from fedforget.federation.tasks import Reply, TargetTask
from fedforget.methods.checks import check_numbers, finite
from fedforget.params import State, copy_state, flatten, trainable, unflatten
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator


@dataclass(frozen=True)
class FedOSDSettings:
    rounds: int = 10
    """Rounds of unlearning."""
    lr: float = 0.1
    samples: int | None = 1000
    """At most so many samples behind a client's gradient. None: all."""
    batch_size: int = 500
    recovery_rounds: int = 1
    """Rounds of post-training."""

    def __post_init__(self) -> None:
        check_numbers("FedOSD", self, above_zero=["rounds", "lr", "samples", "batch_size"])


def unlearning_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean UCE. It is bounded by log 2, and its gradient vanishes with p_y.

    >>> unlearning_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor(0.2877)
    """
    p = F.softmax(logits, dim=1).gather(1, labels[:, None])
    return -torch.log1p(-0.5 * p).mean()


def orthogonal_direction(target: Tensor, retained: Tensor) -> Tensor | None:
    """d at the length of g_u = `target`, for the rows A = `retained`; None where nothing of g_u is orthogonal to A."""
    a, g = retained.double(), target.double()
    d = g - a.T @ (torch.linalg.pinv(a @ a.T, rtol=1e-6, hermitian=True) @ (a @ g))
    if float(d.norm()) <= 1e-6 * float(g.norm()):
        return None
    direction: Tensor = d * (g.norm() / d.norm())
    return direction.to(target.dtype)


def without_reverting(update: Tensor, drift: Tensor) -> Tensor:
    """`update` without its part along g_a = `drift`, at its own length."""
    u, g = update.double(), drift.double()
    if not float(g.norm()):
        return update
    kept = u - (u @ g) / g.square().sum() * g
    rescaled: Tensor = kept * (u.norm() / kept.norm().clamp(min=1e-30))
    return rescaled.to(update.dtype)


def forget_with_fedosd(
    federation: Meter,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: FedOSDSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
) -> tuple[State, dict[str, list[float]]]:
    """(the global model without the target, the target's UCE by round)."""
    exclude = (*served, *requests)
    names = list(trainable(federation.model))
    original = copy_state(state, federation.device)
    current = dict(original)
    losses: list[float] = []
    with federation.stage("forgetting"):
        for round in range(settings.rounds):
            task = schedule.about(MeanGradient, requests, served, of="target", round=round, settings=settings)
            asking = sorted({request.client for request in requests})
            wanted, loss = _gradients(federation, task, current, asking)
            kept, _ = _gradients(federation, replace(task, of="retained"), current, participants(federation, exclude))
            losses.append(loss)
            direction = orthogonal_direction(wanted.mean(dim=0), kept)
            if direction is None:
                break
            current = _moved(current, names, -settings.lr * direction)
    with federation.stage("recovery"):
        for round in range(settings.recovery_rounds):
            ordinary = replace(schedule.train_task(round, exclude), purpose="recovery")
            replies = federation.ask(ordinary, current, participants(federation, exclude))
            current = average(_anti_reverting(replies, current, original, names))
    return current, {"unlearning_loss": losses}


def _gradients(federation: Meter, task: MeanGradient, state: State, to: Sequence[int]) -> tuple[Tensor, float]:
    """(one row for each client that has such data, the mean of their losses)."""
    rows, losses = [], []
    for reply in federation.ask(task, state, to):
        if reply.numbers["samples"]:
            rows.append(flatten(finite(reply, "FedOSD")))
            losses.append(reply.numbers["loss"])
    return torch.stack(rows), sum(losses) / len(losses)


def _moved(state: State, names: Sequence[str], step: Tensor) -> State:
    """theta + step on the named parameters."""
    parts = unflatten(step, {name: state[name] for name in names})
    return {name: tensor + parts[name] if name in parts else tensor for name, tensor in state.items()}


def _anti_reverting(
    replies: Iterator[Reply], current: State, original: Mapping[str, Tensor], names: Sequence[str]
) -> Iterator[Reply]:
    """The replies with every update orthogonal to where the model has come from."""
    here = flatten({name: current[name] for name in names})
    drift = here - flatten({name: original[name] for name in names})
    for reply in replies:
        if reply.numbers["samples"]:
            trained = finite(reply, "FedOSD")
            update = without_reverting(flatten({name: trained[name] for name in names}) - here, drift)
            kept = {name: current[name] if name in names else tensor for name, tensor in trained.items()}
            reply = replace(reply, tensors=_moved(kept, names, update))
        yield reply


@dataclass(frozen=True, kw_only=True)
class MeanGradient(TargetTask):
    """The mean gradient over the client's target (of UCE) or over its retained data (of the cross entropy)."""

    returns = "tensors"

    of: Literal["target", "retained"]
    round: int
    settings: FedOSDSettings

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        if self.of == "target":
            samples = client.target(self.requests, self.served)
        else:
            samples = client.retained((*self.served, *self.requests))
        limit = self.settings.samples
        if limit is not None and limit < len(samples):
            generator = derive_generator(self.seed, "fedosd", self.round, "client", client.index, self.of)
            samples = samples.select(torch.randperm(len(samples), generator=generator)[:limit].sort().values)
        if len(samples) == 0:
            return Reply(client.index, numbers={"samples": 0.0})

        model = client.load(state).eval()
        parameters = trainable(model)
        sums = {name: torch.zeros_like(parameter) for name, parameter in parameters.items()}
        total = 0.0
        features, labels = samples.features.to(client.device), samples.labels.to(client.device)
        size = self.settings.batch_size
        for part, its_labels in zip(features.split(size), labels.split(size), strict=True):
            logits = model(client.inputs(part))
            loss = (unlearning_loss if self.of == "target" else F.cross_entropy)(logits, its_labels)
            gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
            for name, gradient in zip(parameters, gradients, strict=True):
                sums[name].add_(gradient, alpha=len(part) / len(samples))
            total += float(loss.detach()) * len(part)
        return Reply(
            client.index,
            tensors=sums,
            numbers={"samples": float(len(samples)), "loss": total / len(samples)},
            gradient_evaluations=float(len(samples)),
        )
