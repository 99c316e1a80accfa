"""What happens at the target client: train on new memories, away from the old ones, under the preserver (Algorithm 1).

The loss of a batch from the target R, with memories M (Eq. 13):

    L = L_M - L_R + (lambda/2) ||J^ (theta - theta*)||^2

    L_M = mean over x of CE(theta(x), y~)            towards the new memory
    L_R = mean over x of CE(theta(x), y)             away from the old one; - L_R takes one of four forms:

    ascent = plain     - CE(y)                       the paper; has no lower bound
             capped    - min(CE(y), cap)             a sample that is forgotten enough stops pushing
             bounded   - log(1 - p_y/2)              (Pan et al. 2025) bounded and vanishing as p_y does; descent
             none      0
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import DivergedError, InputError
from fedforget.federation.client import Client
from fedforget.federation.sgd import SGD
from fedforget.federation.tasks import Reply, Task
from fedforget.federation.training import minibatches
from fedforget.methods.fedaf.knowledge_preserver import DiagonalPreserver, Preserver, SketchPreserver, plan_sketch
from fedforget.methods.fedaf.memory_generator import generate_memory, reminded_labels
from fedforget.methods.fedaf.principal import principal_rows
from fedforget.methods.fedaf.settings import FedAFSettings
from fedforget.methods.fedaf.sketch import Sketch, build_sketch
from fedforget.methods.fisher import fisher_diagonal
from fedforget.params import State, digest, first_non_finite, state_of, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, derive_seed, seeded_globally

LONGEST_STEP = 10.0
"""A gradient moves the weights by no more than so many times `step_length`; one that would lowers the learning rate. On
a model that overfits, retained samples' gradients are short, so the rate is high, while the target's are long."""
SKETCH_KEY = "fedaf.sketch"
"""Under this name a federation's merged sketch travels beside the model."""
TEACHER_KEY = "fedaf.teacher."
"""Under names that begin so, the reminded teacher's weights do."""
SAMPLES_PER_ROW = 8
"""Rows that leave a client are sums over at least so many samples on average."""


def forgetting_loss(
    logits: Tensor, memory: Tensor, labels: Tensor, ascent: Literal["none", "plain", "capped", "bounded"], cap: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(L_M - L_R as it is minimised, L_M, L_R) for one batch; the penalty's step is the preserver's."""
    log_p = F.log_softmax(logits, dim=1)
    towards = -(memory * log_p).sum(dim=1)
    old = -log_p.gather(1, labels[:, None])[:, 0]
    if ascent == "plain":
        away = -old
    elif ascent == "capped":
        away = -old.clamp(max=cap)
    elif ascent == "bounded":
        away = -torch.log1p(-0.5 * torch.exp(-old))
    else:
        away = torch.zeros_like(old)
    return (towards + away).mean(), towards.mean(), old.mean()


@dataclass(frozen=True, kw_only=True)
class Forget(Task):
    """The whole local forgetting as one message: memory, sketch (unless one came along) and forgetting.

    With `amnesia` the result is no model to keep but the teacher that is to be reminded: see `memory_generator`."""

    at_target: ClassVar[bool] = True

    requests: tuple[ErasureRequest, ...]
    served: tuple[ErasureRequest, ...] = ()
    settings: FedAFSettings
    amnesia: bool = False

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        weights = {name: tensor for name, tensor in state.items() if not name.startswith((SKETCH_KEY, TEACHER_KEY))}
        target = client.target(self.requests, self.served)
        if len(target) == 0:
            raise InputError(f"Client {client.index} has nothing to forget: the target is empty.")
        clock = _Clock(client.device)
        model = client.load(weights)

        memory, memory_evaluations = self._memory(state, target, client)
        clock.stop("memory")
        preserver, lr, sketch_evaluations, stored = self._preserver(state, client)
        clock.stop("sketch")
        unstable = self._unstable(preserver, lr)
        remedy = unstable or ("" if self.settings.lr else f"its learning rate was {lr:.2g}; set a smaller step_length")
        with seeded_globally(client.device, self.seed, "forget", "client", client.index, "dropout"):
            curves = self._forget(client, target, memory, preserver, lr, remedy)
        forgotten = state_of(model)
        clock.stop("memory" if self.amnesia else "forgetting")

        broken = first_non_finite(forgotten)
        if broken is not None:
            why = f" ({remedy})" if remedy else ""
            raise DivergedError(self._name, f"parameter '{broken}' is no longer finite{why}.")
        return Reply(
            client.index,
            tensors=forgotten,
            numbers={"samples": float(len(client.samples)), "target": float(len(target))},
            curves=curves,
            gradient_evaluations=memory_evaluations + sketch_evaluations + sum(curves["samples"]),
            seconds=clock.seconds,
            stored_bytes=stored,
            notes=(f"It survived, but {unstable}.",) if unstable else (),
        )

    @property
    def _name(self) -> str:
        return "The teacher's amnesia" if self.amnesia else "The forgetting step"

    def _memory(self, state: Mapping[str, Tensor], target: Samples, client: Client) -> tuple[Tensor, float]:
        """New labels for the target, and the gradient evaluations they took."""
        settings = self.settings
        if settings.memory == "reminded":
            teacher = {n.removeprefix(TEACHER_KEY): t for n, t in state.items() if n.startswith(TEACHER_KEY)}
            return reminded_labels(teacher, target, client)
        return generate_memory(
            settings.memory, client.model, target, client,
            teachers=settings.teachers, sigma=settings.sigma, seed=self.seed,
        )  # fmt: skip

    def _preserver(self, state: Mapping[str, Tensor], client: Client) -> tuple[Preserver | None, float, float, int]:
        """The preserver, the learning rate, the gradient evaluations it took, and the bytes it keeps."""
        settings, model = self.settings, client.model
        if settings.preserver == "none":
            assert settings.lr is not None, "settings without a preserver name a learning rate"
            return None, settings.lr, 0.0, 0
        anchor = {name: parameter.detach().clone() for name, parameter in trainable(model).items()}
        if settings.preserver == "diagonal":
            samples = sketch_samples(client, self)
            diagonal = fisher_diagonal(model, samples, client.inputs, labels=settings.sketch_labels, seed=self.seed)
            lr = self._learning_rate(float(diagonal.sum()))
            elastic = DiagonalPreserver(diagonal, anchor, strength=settings.strength, lr=lr)
            return elastic, lr, float(len(samples)), diagonal.numel() * diagonal.element_size()
        sketch, evaluations = self._sketch(state, client, anchor)
        lr = self._learning_rate(sketch.mean_square)
        keep = SketchPreserver(sketch, anchor, strength=settings.strength, lr=lr, normalise=settings.normalise)
        return keep, lr, evaluations, sketch.bytes

    def _sketch(self, state: Mapping[str, Tensor], client: Client, anchor: State) -> tuple[Sketch, float]:
        """The sketch that came along, the one kept from the amnesia, or a new one; and what it took to make.

        The teacher's amnesia and the forgetting start from one anchor, so they share the sketch made there."""
        if SKETCH_KEY in state:
            return Sketch(state[SKETCH_KEY], int(state[f"{SKETCH_KEY}.count"])), 0.0
        known = (digest(anchor), self.served, self.requests, self.settings.sketch, self.seed)
        kept, sketch = client.kept.pop(SKETCH_KEY, (None, None))
        evaluations = 0.0
        if kept != known:
            sketch = sketch_at_client(client, self)
            evaluations = sketch.evaluations
        if self.amnesia:
            client.kept[SKETCH_KEY] = (known, sketch)
        return sketch, evaluations

    def _learning_rate(self, mean_square: float) -> float:
        """The setting's, or step_length / sqrt(tr F): `mean_square` is tr F, a gradient's mean squared length."""
        return self.settings.lr or float(self.settings.step_length) / max(mean_square, 1e-12) ** 0.5

    def _forget(
        self, client: Client, target: Samples, memory: Tensor, preserver: Preserver | None, lr: float, remedy: str
    ) -> dict[str, list[float]]:
        """SGD on the loss above, one step of the preserver after each."""
        settings, model = self.settings, client.model
        parameters = trainable(model)
        features, labels = target.features.to(client.device), target.labels.to(client.device)
        longest = math.inf if settings.lr else LONGEST_STEP * float(settings.step_length) / lr
        optimiser = SGD(parameters.values(), lr, settings.momentum, longest)
        generator = derive_generator(self.seed, "forget", "client", client.index, "order")
        model.train(not settings.freeze_normalisation and min(len(target), settings.batch_size) > 1)
        steps = max(settings.min_steps, settings.epochs * -(-len(target) // settings.batch_size))
        curves: dict[str, list[float]] = {"samples": [], "memory_loss": [], "target_loss": [], "target_hits": []}
        learnt: list[float] = []
        while len(learnt) < steps:
            for batch in minibatches(len(target), settings.batch_size, generator, client.device):
                if len(learnt) == steps or self._stops(learnt):
                    return curves
                logits = model(client.inputs(features[batch]))
                loss, towards, old = forgetting_loss(
                    logits, memory[batch], labels[batch], settings.ascent, settings.ascent_cap
                )
                hits = (logits.detach().argmax(1) == labels[batch]).float().mean()
                entropy = torch.special.entr(memory[batch]).sum(dim=1).mean()
                *seen, gap = torch.stack([towards.detach(), old.detach(), hits, towards.detach() - entropy]).tolist()
                for name, value in zip(curves, [float(len(batch)), *seen], strict=True):
                    curves[name].append(value)
                learnt.append(gap)
                if not math.isfinite(seen[0] + seen[1]):
                    why = f" ({remedy})" if remedy else ""
                    raise DivergedError(self._name, f"the loss is no longer finite at step {len(learnt)}{why}.")
                optimiser.step(loss)
                if preserver is not None and settings.penalty == "gradient":
                    preserver.gradient_step(parameters, lr)
                elif preserver is not None:
                    preserver.proximal_step(parameters)
        return curves

    def _stops(self, learnt: list[float], window: int = 4) -> bool:
        """The stopping rule: over the last batches, the model's predictions are the memories, KL(y~ || model) ~ 0."""
        limit = self.settings.stop_below
        return limit is not None and len(learnt) >= window and sum(learnt[-window:]) / window <= limit

    def _unstable(self, preserver: Preserver | None, lr: float) -> str:
        """The check before the first step: are plain gradient steps of the penalty stable? If not, the sentence."""
        if preserver is None or self.settings.penalty != "gradient":
            return ""
        bound = 2.0 / max(preserver.largest_curvature(), 1e-300)
        if lr < bound:
            return ""
        return (
            f"the penalty's plain gradient step is stable only below a learning rate of {bound:.2g}, "
            f"and it is {lr:g}; use the proximal step"
        )


@dataclass(frozen=True, kw_only=True)
class BuildSketch(Task):
    """A client's part of the federation's sketch. All clients hash with the same seed, so the parts add up."""

    requests: tuple[ErasureRequest, ...]
    served: tuple[ErasureRequest, ...] = ()
    settings: FedAFSettings

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        client.load(state)
        if len(sketch_pool(client, self)) == 0:
            return Reply(client.index, numbers={"count": 0.0})
        sketch = sketch_at_client(client, self)
        return Reply(
            client.index,
            tensors={SKETCH_KEY: F.pad(sketch.rows, (0, 0, 0, int(self.settings.sketch_rows) - len(sketch.rows)))},
            numbers={"count": float(sketch.count)},
            gradient_evaluations=float(sketch.count),
            stored_bytes=sketch.bytes,
        )


def sketch_pool(client: Client, task: Forget | BuildSketch) -> Samples:
    """The samples that the preserver may look at: all of D_k (the paper), or D'; never what is erased."""
    if task.settings.sketch_data == "all":
        return client.retained(task.served, task.requests)
    return client.retained((*task.served, *task.requests))


def sketch_samples(client: Client, task: Forget | BuildSketch) -> Samples:
    """All of the pool, or a seeded random part of it."""
    pool, limit = sketch_pool(client, task), task.settings.sketch_samples
    if len(pool) == 0:
        raise InputError(
            f"Client {client.index} keeps no data that the preserver could look at; set sketch_scope to federation."
        )
    if limit is not None and int(limit) < len(pool):
        generator = derive_generator(task.seed, "sketch", "client", client.index, "subsample")
        pool = pool.select(torch.randperm(len(pool), generator=generator)[: int(limit)].sort().values)
    return pool


def sketch_at_client(client: Client, task: Forget | BuildSketch) -> Sketch:
    """Algorithm 2 (or a PCA in its place) on this client's data, at the weights its model has now."""
    settings = task.settings
    samples = sketch_samples(client, task)
    rows = int(settings.sketch_rows)
    if isinstance(task, BuildSketch):
        # These rows leave the client, and a row over one sample would be that sample's gradient.
        rows = max(1, min(rows, len(samples) // SAMPLES_PER_ROW))
    plan_sketch(client.model, rows, settings.dtype, client.device)
    seed = derive_seed(task.seed, "sketch")
    if settings.preserver == "pca":
        return principal_rows(
            client.model, samples, client.inputs,
            rows=rows, seed=seed, labels=settings.sketch_labels, dtype=settings.dtype,
        )  # fmt: skip
    return build_sketch(
        client.model, samples, client.inputs, rows=rows, seed=seed,
        labels=settings.sketch_labels, batch_size=settings.batch_size, dtype=settings.dtype,
    )  # fmt: skip


class _Clock:
    """Seconds by stage, at the client."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = {}
        self._device = device
        self._mark = time.perf_counter()

    def stop(self, stage: str) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._mark
        self._mark = now
