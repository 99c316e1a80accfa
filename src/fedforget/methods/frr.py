"""FRR, federated rapid retraining (Liu et al., INFOCOM 2022): train afresh without the target, in second-order steps.

From a fresh start (Retrain's), every client takes, for each batch of its retained data with mean gradient g, the step

    m <- beta1 m + (1 - beta1) g                     m^ = m / (1 - beta1^t)
    v <- beta2 v + (1 - beta2) D^2                   v^ = v / (1 - beta2^t)
    theta <- theta - lr m^ / (v^^(power/2) + damping)

and the server averages (FedAvg). D is an estimate of the Hessian's diagonal, in one of two forms:

    fisher    D = Gamma = (1/B) sum_i g_i^2, the empirical Fisher diagonal of the batch                       the paper
    hessian   D = mean over Rademacher z of z * (H z), Hutchinson's estimate (AdaHessian, Yao et al. 2021)    its code

The paper's rule is theta - Gamma^-1 g, smoothed by "first and second moments" and with lr 0.001; its signs contradict
each other in print, and the minus is meant. It leaves open and we decide: the second moment is that of D, as in its
code; moments begin anew in each round, since a client keeps nothing; and the damping. Gamma is a squared gradient, so
it vanishes faster than g as training succeeds, and Gamma^-1 g has no bound. 0.001 bounds the step by that of gradient
descent with a rate of lr / damping = 1; with 0.0001 a ResNet with batch normalisation no longer learns. The code's
damping of 1e-8 lets a weight jump whose curvature estimate happens to be near 0 (a vision transformer does not learn),
so the preset `code` takes the 1e-4 of AdaHessian's authors.

Where a batch normalisation ties the samples of a batch together, a sample has no gradient of its own. So g comes from
the ordinary pass in training mode, and the g_i of Gamma from a second one in evaluation mode: with the running
statistics, without dropout.

The code's schedule is kept: plain SGD in the first j0 rounds and then in every T0-th. Published were j0 = 10 and T0 = 5
of 200 rounds, 24 % of them SGD; j0 = 0 and T0 = 5 is the nearest for 5 to 20 rounds (20 %), and round 0 is still SGD.

The bill: 2 gradient evaluations a sample for `fisher` (the pass for g, the pass for g_i), and 1 + 2 for each z for
`hessian`, since differentiating the gradient is a backward pass through both forward and backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedforget.data.samples import Samples
from fedforget.errors import DivergedError
from fedforget.federation.client import Client
from fedforget.federation.cost import Checkpoints, Meter
from fedforget.federation.rounds import Schedule, run_round
from fedforget.federation.tasks import Reply, Train
from fedforget.federation.training import minibatches, set_training_mode
from fedforget.methods.checks import check_settings
from fedforget.methods.fedaf.sketch import Jacobian
from fedforget.methods.fisher import fisher_diagonal
from fedforget.methods.retrain import RetrainSettings, fresh_start
from fedforget.params import State, first_non_finite, flatten, move, state_of, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, seeded_globally


@dataclass(frozen=True)
class FRRSettings:
    """FRR's knobs; rounds, epochs and batch size are the federation's own. The defaults are the preset `paper`."""

    curvature: Literal["fisher", "hessian"] = "fisher"
    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    damping: float = 0.001
    power: float = 1.0
    """The Hessian power: 1 divides by the curvature, 0 not at all."""
    hutchinson_samples: int = 1
    """How many z for each batch; for `hessian` alone."""
    sgd_first: int = 0
    """j0: plain SGD in so many rounds at the start."""
    sgd_every: int = 0
    """T0: and then in every so-manieth round, beginning with round j0; 0 is never."""

    def __post_init__(self) -> None:
        positive = ["lr", "damping", "hutchinson_samples"]
        check_settings("FRR", self, above_zero=positive, below_one=["beta1", "beta2"])

    def first_order(self, round: int) -> bool:
        """Whether this round is one of plain SGD."""
        return round < self.sgd_first or (self.sgd_every > 0 and (round - self.sgd_first) % self.sgd_every == 0)


PAPER = FRRSettings()
CODE = FRRSettings(curvature="hessian", lr=0.01, damping=1e-4, sgd_first=0, sgd_every=5)


def retrain_rapidly(
    federation: Meter,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: FRRSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
    checkpoints: Checkpoints | None = None,
) -> tuple[State, dict[str, list[float]]]:
    """The schedule once more, without the target, from Retrain's fresh start and in second-order steps."""
    with federation.stage("training"):
        saved = None if checkpoints is None else checkpoints.load()
        start, current = saved or (0, fresh_start(federation.model, schedule, RetrainSettings()))
        for round in range(start, schedule.rounds):
            task = schedule.train_task(round, (*served, *requests))
            if not settings.first_order(round):
                task = TrainSecondOrder(
                    seed=task.seed, threads=task.threads, round=round, epochs=task.epochs,
                    batch_size=task.batch_size, exclude=task.exclude, purpose="frr", settings=settings,
                )  # fmt: skip
            current = run_round(federation, current, task)
            if checkpoints is not None:
                checkpoints.save(round + 1, current)
    return current, {}


@dataclass(frozen=True, kw_only=True)
class TrainSecondOrder(Train):
    """One client's round of second-order steps. Learning rate and momentum are the settings', not the task's."""

    settings: FRRSettings

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        retained = client.retained(self.exclude)
        if len(retained) == 0:
            return Reply(client.index, numbers={"samples": 0.0})
        model = client.load(state)
        with (
            seeded_globally(client.device, self.seed, self.purpose, self.round, "client", client.index, "dropout"),
            sdpa_kernel(SDPBackend.MATH),  # the fused attentions cannot be differentiated twice
        ):
            total = self._train(model, client, retained)
        trained = state_of(model)
        broken = first_non_finite(trained)
        if broken is not None:
            raise DivergedError(
                f"Second-order training in round {self.round} at client {client.index}",
                f"parameter '{broken}' is no longer finite; raise the damping ({self.settings.damping:g}) or lower "
                f"the learning rate ({self.settings.lr:g}).",
            )
        samples = len(retained) * self.epochs
        passes = 2 if self.settings.curvature == "fisher" else 1 + 2 * self.settings.hutchinson_samples
        return Reply(
            client.index,
            tensors=trained,
            numbers={"samples": float(len(retained)), "loss": float(total) / samples},
            gradient_evaluations=float(samples * passes),
        )

    def _train(self, model: nn.Module, client: Client, retained: Samples) -> Tensor:
        """The epochs; the sum of the losses."""
        parameters = trainable(model)
        moments = Moments(flatten(parameters), self.settings)
        names = (self.seed, self.purpose, self.round, "client", client.index)
        order, signs = derive_generator(*names, "order"), derive_generator(*names, "signs")
        lone = min(len(retained), self.batch_size) == 1
        total = torch.zeros((), device=client.device)
        for _ in range(self.epochs):
            for batch in minibatches(len(retained), self.batch_size, order, torch.device("cpu")):
                samples = retained.select(batch)
                set_training_mode(model, lone)
                loss = F.cross_entropy(model(client.inputs(samples.features)), samples.labels.to(client.device))
                total += loss.detach() * len(batch)
                if self.settings.curvature == "hessian":
                    gradient, diagonal = hutchinson(loss, parameters, self.settings.hutchinson_samples, signs)
                else:
                    gradient = _flat_gradient(loss, parameters)
                    j = Jacobian(model, samples, client.inputs, labels="data")
                    diagonal = fisher_diagonal(j, _rows_at_once(len(gradient)))
                move(parameters, moments.step(gradient, diagonal))
        return total


class Moments:
    """m and v: running means of the gradient and of the squared curvature."""

    def __init__(self, like: Tensor, settings: FRRSettings) -> None:
        self._first, self._second = torch.zeros_like(like), torch.zeros_like(like)
        self._steps = 0
        self._settings = settings

    def step(self, gradient: Tensor, diagonal: Tensor) -> Tensor:
        """- lr m^ / (v^^(power/2) + damping), after one more gradient and curvature."""
        s = self._settings
        self._steps += 1
        self._first.lerp_(gradient, 1.0 - s.beta1)
        self._second.lerp_(diagonal.square(), 1.0 - s.beta2)
        first = self._first / (1.0 - s.beta1**self._steps)
        second = self._second / (1.0 - s.beta2**self._steps)
        return -s.lr * first / (second.pow(s.power / 2) + s.damping)


def hutchinson(
    loss: Tensor, parameters: Mapping[str, nn.Parameter], samples: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """(gradient, mean over z of z * (H z)): unbiased for the Hessian's diagonal, and exact if H is diagonal."""
    gradient = _flat_gradient(loss, parameters, create_graph=True)
    total = torch.zeros_like(gradient)
    for _ in range(samples):
        z = torch.randint(0, 2, gradient.shape, generator=generator).to(gradient).mul_(2).sub_(1)
        total += z * _flat_gradient(gradient @ z, parameters, retain_graph=True)
    return gradient.detach(), total.detach() / samples


def _flat_gradient(
    value: Tensor, parameters: Mapping[str, nn.Parameter], *, create_graph: bool = False, retain_graph: bool = False
) -> Tensor:
    gradients = torch.autograd.grad(
        value, list(parameters.values()), create_graph=create_graph, retain_graph=retain_graph or create_graph,
        allow_unused=True, materialize_grads=True,
    )  # fmt: skip
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def _rows_at_once(size: int) -> int:
    """So many samples' gradients of this size fit into 256 MiB."""
    return max(1, 2**26 // size)
