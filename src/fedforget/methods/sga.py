"""SGA, stochastic gradient ascent (Wu et al., IEEE Network 36(5), 2022): the target's client climbs its own loss.

On batches of the target R the client minimises, by plain SGD,

    L = - CE(theta; R) + (lambda/2) sum_j F_j (theta_j - theta*_j)^2

and its model replaces the global one: no averaging, hence no dilution. theta* is the model before, F the diagonal of
the Fisher information: elastic weight consolidation, which holds what the retained data needs. lambda = 0 is the
paper's plain ascent. The paper writes CE + penalty and "applies SGA" to the sum; climbing it literally would climb the
penalty too, so the signs are as above. - CE has no lower bound, and the climb becomes steeper as it goes: it is stopped
at a loss of `stop_above`, and without that it diverges.

The paper does not say what data F is measured on. Here it is the client's retained data: on the target it would guard
the very weights that should go. Where a client retains nothing, the others measure theirs, and their mean, weighted by
samples, travels to it.

Left open and decided: one client after another where several ask; running statistics of normalisations stay as they
are, since those of R alone would take the place of everybody's; all numbers (see `SGASettings`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import DivergedError, InputError
from fedforget.federation.aggregation import average
from fedforget.federation.client import Client
from fedforget.federation.cost import Meter
from fedforget.federation.rounds import Schedule, participants
from fedforget.federation.sgd import SGD
from fedforget.federation.tasks import Reply, TargetTask, Task
from fedforget.federation.training import minibatches, set_training_mode
from fedforget.methods.checks import check_settings, finite, own
from fedforget.methods.fedaf.sketch import Jacobian
from fedforget.methods.fisher import fisher_diagonal
from fedforget.params import State, first_non_finite, state_of, trainable, weight_count
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, derive_seed, seeded_globally

FISHER_KEY = "sga.fisher"
"""Under this name the others' Fisher diagonal travels beside the model."""


def ascent_loss(
    logits: Tensor, labels: Tensor, parameters: Tensor, anchor: Tensor, fisher: Tensor | None, strength: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(L, CE, the penalty) for one batch; theta, theta* and F as flat vectors."""
    cross_entropy = F.cross_entropy(logits, labels)
    penalty = torch.zeros_like(cross_entropy)
    if fisher is not None:
        penalty = 0.5 * strength * (fisher * (parameters - anchor).square()).sum()
    return penalty - cross_entropy, cross_entropy, penalty


@dataclass(frozen=True)
class SGASettings:
    """SGA's knobs. The defaults are the preset `ewc`. The paper gives no numbers: epochs and lambda are a public
    re-implementation's; rate and stop end near the accuracy that is reported of SGA on MNIST, on any network."""

    lr: float = 0.001
    epochs: int = 5
    """Passes over the target."""
    min_steps: int = 100
    """A small target is passed over more often, until so many steps are made."""
    stop_above: float | None = 30.0
    """Stop once a batch's loss is this high, be it after a few steps or after a hundred; None climbs on."""
    batch_size: int = 64
    strength: float = 5000.0
    """lambda; 0 is plain ascent."""
    fisher_samples: int | None = 1500
    """At most so many samples, drawn at random."""
    freeze_normalisation: bool = True

    def __post_init__(self) -> None:
        check_settings("SGA", self, above_zero=["lr", "stop_above", "batch_size", "fisher_samples"])
        if self.epochs + self.min_steps == 0:
            raise InputError("SGA settings 'epochs' and 'min_steps' are both 0, so nothing would be forgotten.")


EWC = SGASettings()
PLAIN = replace(EWC, strength=0.0)


def ascend(
    federation: Meter,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: SGASettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
) -> tuple[State, dict[str, list[float]]]:
    """(the model of the last client that climbed, the curves of the climbing)."""
    current = dict(state)
    exclude = (*served, *requests)
    sizes = federation.check(exclude)
    curves: dict[str, list[float]] = {}
    for client in sorted({request.client for request in requests}):
        message = dict(current)
        if settings.strength > 0 and sizes[client].retained == 0:
            with federation.stage("fisher"):
                measure = MeasureFisher(
                    seed=schedule.seed, threads=schedule.threads, exclude=exclude, settings=settings
                )
                message |= average(federation.ask(measure, current, participants(federation, exclude)))
        task = schedule.about(Ascend, own(requests, client), own(served, client), settings=settings)
        with federation.stage("forgetting"):
            (reply,) = federation.ask(task, message, [client])
        current = finite(reply, "Gradient ascent")
        for name, values in reply.curves.items():
            curves.setdefault(name, []).extend(values)
    return current, curves


@dataclass(frozen=True, kw_only=True)
class Ascend(TargetTask):
    """The climb at the target's client; the reply is its whole model."""

    at_target = True
    returns = "model"

    settings: SGASettings

    def beside(self, name: str, tensor: Tensor, model: nn.Module) -> Tensor | None:
        return torch.empty(weight_count(model), device="meta") if name == FISHER_KEY else None

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        target = client.target(self.requests, self.served)
        model = client.load({name: tensor for name, tensor in state.items() if name != FISHER_KEY})
        fisher, measured = self._fisher(state, client)
        with seeded_globally(client.device, self.seed, "sga", "client", client.index, "dropout"):
            curves = self._climb(client, target, fisher)
        others = FISHER_KEY in state
        return Reply(
            client.index,
            tensors=state_of(model),
            numbers={"target": float(len(target))},
            curves=curves,
            gradient_evaluations=measured + sum(curves["samples"]),
            stored_bytes=0 if fisher is None else 2 * fisher.numel() * fisher.element_size(),
            notes=(f"Client {client.index} keeps no data, so the other clients' Fisher was used.",) if others else (),
        )

    def _fisher(self, state: Mapping[str, Tensor], client: Client) -> tuple[Tensor | None, float]:
        """(F at theta*, how many samples were looked at for it)."""
        if self.settings.strength == 0:
            return None, 0.0
        if FISHER_KEY in state:
            return state[FISHER_KEY].to(client.device), 0.0
        return fisher_at_client(client, client.retained((*self.served, *self.requests)), self.settings, self.seed)

    def _climb(self, client: Client, target: Samples, fisher: Tensor | None) -> dict[str, list[float]]:
        settings, model = self.settings, client.model
        parameters = list(trainable(model).values())
        anchor = torch.cat([parameter.detach().reshape(-1) for parameter in parameters]).clone()
        features, labels = target.features.to(client.device), target.labels.to(client.device)
        set_training_mode(model, settings.freeze_normalisation or min(len(target), settings.batch_size) == 1)
        optimiser = SGD(parameters, settings.lr)
        generator = derive_generator(self.seed, "sga", "client", client.index, "order")
        curves: dict[str, list[float]] = {"samples": [], "target_loss": [], "penalty": []}
        steps = max(settings.min_steps, settings.epochs * -(-len(target) // settings.batch_size))
        while len(curves["samples"]) < steps:
            for batch in minibatches(len(target), settings.batch_size, generator, client.device):
                logits = model(client.inputs(features[batch]))
                theta = torch.cat([parameter.reshape(-1) for parameter in parameters])
                loss, climbed, penalty = ascent_loss(logits, labels[batch], theta, anchor, fisher, settings.strength)
                optimiser.step(loss)
                seen = torch.stack([climbed.detach(), penalty.detach()]).tolist()
                for name, value in zip(curves, [float(len(batch)), *seen], strict=True):
                    curves[name].append(value)
                if not math.isfinite(sum(seen)):
                    self._diverged(client, len(curves["samples"]), fisher)
                if settings.stop_above is not None and seen[0] >= settings.stop_above:
                    return curves
        if first_non_finite(dict(model.named_parameters())) is not None:
            self._diverged(client, len(curves["samples"]), fisher)
        return curves

    def _diverged(self, client: Client, step: int, fisher: Tensor | None) -> None:
        lr, strength = self.settings.lr, self.settings.strength
        steepest = 0.0 if fisher is None else strength * float(fisher.max())
        why = "ascent has no bound; set stop_above or lower the learning rate"
        if lr * steepest >= 2:
            why = f"the penalty is stable only below a learning rate of {2 / steepest:.2g}, and it is {lr:g}"
        raise DivergedError(
            f"Gradient ascent at client {client.index}", f"the loss is no longer finite after step {step}: {why}."
        )


@dataclass(frozen=True, kw_only=True)
class MeasureFisher(Task):
    """The Fisher diagonal of a client's retained data, for a client that has none."""

    returns = "tensors"

    exclude: tuple[ErasureRequest, ...]
    settings: SGASettings

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        pool = client.retained(self.exclude)
        if len(pool) == 0:
            return Reply(client.index, numbers={"samples": 0.0})
        client.load(state)
        fisher, measured = fisher_at_client(client, pool, self.settings, self.seed)
        return Reply(
            client.index, tensors={FISHER_KEY: fisher}, numbers={"samples": float(len(pool))},
            gradient_evaluations=measured,
        )  # fmt: skip


def fisher_at_client(client: Client, pool: Samples, settings: SGASettings, seed: int) -> tuple[Tensor, float]:
    """(F at the model's weights over `pool` or a seeded random part of it, how many samples that was)."""
    limit = settings.fisher_samples
    if limit is not None and limit < len(pool):
        generator = derive_generator(seed, "sga", "client", client.index, "subsample")
        pool = pool.select(torch.randperm(len(pool), generator=generator)[:limit].sort().values)
    j = Jacobian(client.model, pool, client.inputs, seed=derive_seed(seed, "sga", "fisher"))
    return fisher_diagonal(j), float(len(pool))
