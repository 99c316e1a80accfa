"""PGD: the client that asks climbs its own loss, but stays near what the others know (Halimi et al. 2022, arXiv
2207.05521).

    w_ref = (W theta* - n_i w_i) / (W - n_i) = theta* + n_i/(W - n_i) (theta* - w_i)      the others' mean, W = sum n_k
    maximise the mean cross entropy on R   subject to   ||w - w_ref|| <= delta
    delta = sqrt(1/3 mean_q ||w_ref - w_q||^2)                          w_q: 10 random initialisations

From w_ref by SGD with clipped gradients, projected onto the ball after every step, until ||w - w_i||^2 > 2.2 or for 5
epochs. The result becomes the global model, then ordinary rounds on the retained data.

w_i is the client's last local model. A client here keeps none, so it makes one anew: one ordinary local epoch from
theta* on all it holds, R included. w_ref is then the others' mean only as far as that epoch resembles the last one.
The ball holds parameters; running statistics and counters stay those of theta*. Where several clients ask, each starts
from the model of the one before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.federation.cost import Meter
from fedforget.federation.rounds import Schedule, participants, recover
from fedforget.federation.tasks import CountSamples, Reply, TargetTask, Train
from fedforget.federation.training import minibatches, set_training_mode, train_at_client
from fedforget.methods.checks import check_numbers, finite
from fedforget.models import fresh_copy
from fedforget.params import State, flatten, state_of, trainable, unflatten
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, derive_seed, seeded_globally


@dataclass(frozen=True)
class PGDSettings:
    lr: float = 0.01
    momentum: float = 0.9
    batch_size: int = 128
    epochs: int = 5
    clip: float = 5.0
    """The longest gradient."""
    random_models: int = 10
    stop_distance: float | None = 2.2
    """Stop once ||w - w_i||^2 is larger. None: never."""
    recovery_rounds: int = 2
    """Ordinary rounds after it. The published example makes 10 of 50 steps each."""

    def __post_init__(self) -> None:
        positive = ["lr", "batch_size", "epochs", "clip", "random_models", "stop_distance"]
        check_numbers("PGD", self, above_zero=positive, below_one=["momentum"])


def reference(theta: Tensor, last: Tensor, own: float, others: float) -> Tensor:
    """w_ref: the mean of the others, weighted by their samples, where theta is everybody's and `last` the client's.

    >>> reference(torch.tensor([2.0]), torch.tensor([5.0]), own=1.0, others=3.0)
    tensor([1.])
    """
    return theta + own / others * (theta - last)


def project(point: Tensor, centre: Tensor, radius: float) -> Tensor:
    """The nearest point of the ball ||w - centre|| <= radius.

    >>> project(torch.tensor([4.0, 1.0]), torch.tensor([1.0, 1.0]), 2.0)
    tensor([3., 1.])
    """
    offset = point - centre
    return centre + offset * min(1.0, radius / max(float(offset.norm()), 1e-30))


def ball_radius(centre: Tensor, model: nn.Module, count: int, seed: int) -> float:
    """delta: sqrt of a third of the mean squared distance to `count` untrained copies of the network."""
    copies = (fresh_copy(model, derive_seed(seed, q)) for q in range(count))
    squares = [float((centre - flatten(trainable(copy))).square().sum()) for copy in copies]
    return math.sqrt(sum(squares) / count / 3.0)


def forget_with_pgd(
    federation: Meter,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: PGDSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
) -> tuple[State, dict[str, list[float]]]:
    """(the global model without the target, the target's loss and the squared distance from w_i by step)."""
    asking = sorted({request.client for request in requests})
    everybody = participants(federation, served)
    empty = {client for client, size in federation.check(served).items() if not size.retained} if served else set()
    for client in asking:
        if not set(everybody) - empty - {client}:
            raise InputError(f"PGD needs the mean of the others, but only client {client} has data left; use retrain.")
    current = dict(state)
    curves: dict[str, list[float]] = {"target_loss": [], "squared_distance": []}
    with federation.stage("forgetting"):
        count = CountSamples(
            seed=schedule.seed, threads=schedule.threads, exclude=tuple(served), requests=tuple(requests)
        )
        held = {reply.client: reply.numbers["samples"] for reply in federation.ask(count, {}, everybody)}
        for client in asking:
            last = replace(schedule.train_task(schedule.rounds, served), epochs=1, purpose="last local model")
            task = schedule.about(
                Climb, requests, served, last=last, others=sum(held.values()) - held[client], settings=settings
            )
            (reply,) = federation.ask(task, current, [client])
            current = finite(reply, "PGD")
            for name, values in reply.curves.items():
                curves[name] += values
    with federation.stage("recovery"):
        recovered = recover(federation, current, schedule, settings.recovery_rounds, (*served, *requests))
    return recovered, curves


@dataclass(frozen=True, kw_only=True)
class Climb(TargetTask):
    """The projected ascent at the client that asks. `last` makes w_i; `others` is W - n_i."""

    at_target = True
    returns = "model"

    last: Train
    others: float
    settings: PGDSettings

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        settings, name = self.settings, ("pgd", "client", client.index)
        target = client.target(self.requests, self.served)
        epoch = train_at_client(self.last, state, client, self.requests)
        last = flatten(trainable(client.model))
        model = client.load(state)
        parameters = trainable(model)
        centre = reference(flatten(parameters), last, epoch.numbers["samples"], self.others)
        radius = ball_radius(centre, model, settings.random_models, derive_seed(self.seed, *name, "random model"))

        _assign(parameters, centre)
        set_training_mode(model, freeze_normalisation=True)
        optimiser = torch.optim.SGD(parameters.values(), lr=settings.lr, momentum=settings.momentum)
        generator = derive_generator(self.seed, *name, "order")
        features, labels = target.features.to(client.device), target.labels.to(client.device)
        curves: dict[str, list[float]] = {"target_loss": [], "squared_distance": []}
        seen = 0
        with seeded_globally(client.device, self.seed, *name, "dropout"):
            for batch in (
                batch
                for _ in range(settings.epochs)
                for batch in minibatches(len(target), settings.batch_size, generator, client.device)
            ):
                loss = F.cross_entropy(model(client.inputs(features[batch])), labels[batch])
                optimiser.zero_grad(set_to_none=True)
                (-loss).backward()
                nn.utils.clip_grad_norm_(parameters.values(), settings.clip)
                optimiser.step()
                _assign(parameters, project(flatten(parameters), centre, radius))
                seen += len(batch)
                curves["target_loss"].append(float(loss.detach()))
                curves["squared_distance"].append(float((flatten(parameters) - last).square().sum()))
                if settings.stop_distance is not None and curves["squared_distance"][-1] > settings.stop_distance:
                    break
        return Reply(
            client.index,
            tensors=state_of(model),
            numbers={"samples": float(len(target))},
            curves=curves,
            gradient_evaluations=epoch.gradient_evaluations + seen,
        )


@torch.no_grad()
def _assign(parameters: Mapping[str, nn.Parameter], values: Tensor) -> None:
    for name, value in unflatten(values, parameters).items():
        parameters[name].copy_(value)
