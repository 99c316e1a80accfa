"""What happens at the target client: train on new memories, away from the old ones, under the preserver (Algorithm 1).

The loss of a batch from the target R, with memories M (Eq. 12):

    L = L_M - L_R + (lambda/2) ||J^ (theta - theta*)||^2

    L_M = mean over x of CE(theta(x), y~)            towards the new memory
    L_R = mean over x of CE(theta(x), y)             away from the old one, in one of four forms:

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
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import DivergedError, InputError
from fedforget.federation.client import Client
from fedforget.federation.tasks import Reply, Task
from fedforget.federation.training import minibatches
from fedforget.methods.fedaf.knowledge_preserver import DiagonalPreserver, Preserver, SketchPreserver, plan_sketch
from fedforget.methods.fedaf.memory_generator import generate_memory
from fedforget.methods.fedaf.settings import FedAFSettings
from fedforget.methods.fedaf.sketch import Sketch, build_sketch
from fedforget.methods.fisher import fisher_diagonal
from fedforget.params import first_non_finite, state_of, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, derive_seed

SKETCH_KEY = "fedaf.sketch"
"""Under this name a federation's merged sketch travels beside the model."""


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
    """The whole local forgetting as one message: memory, sketch (unless one came along) and forgetting."""

    requests: tuple[ErasureRequest, ...]
    served: tuple[ErasureRequest, ...] = ()
    settings: FedAFSettings

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        settings = self.settings
        weights = {name: tensor for name, tensor in state.items() if not name.startswith(SKETCH_KEY)}
        target, _ = client.split(self.requests)
        if len(target) == 0:
            raise InputError(f"Client {client.index} has nothing to forget: the target is empty.")
        model = client.load(weights)
        clock = _Clock(client.device)

        memory, memory_evaluations = generate_memory(
            settings.memory, model, target, client, teachers=settings.teachers, sigma=settings.sigma, seed=self.seed
        )
        clock.stop("memory")
        preserver, sketch_evaluations, stored = self._preserver(state, client)
        clock.stop("sketch")
        curves = self._forget(client, target, memory, preserver)
        forgotten = state_of(model)
        clock.stop("forgetting")

        broken = first_non_finite(forgotten)
        if broken is not None:
            raise DivergedError("The forgetting step", f"parameter '{broken}' is no longer finite{self._remedy(preserver)}.")
        return Reply(
            client.index,
            tensors=forgotten,
            numbers={"samples": float(len(client.samples)), "target": float(len(target))},
            curves=curves,
            gradient_evaluations=memory_evaluations + sketch_evaluations + sum(curves["samples"]),
            seconds=clock.seconds,
            stored_bytes=stored,
        )

    def _preserver(self, state: Mapping[str, Tensor], client: Client) -> tuple[Preserver | None, float, int]:
        """The preserver, the gradient evaluations it took, and the bytes it keeps."""
        settings, model = self.settings, client.model
        if settings.preserver == "none":
            return None, 0.0, 0
        anchor = {name: parameter.detach().clone() for name, parameter in trainable(model).items()}
        exclude = (*self.served, *self.requests)
        if settings.preserver == "diagonal":
            samples = sketch_samples(client, exclude, settings, self.seed)
            diagonal = fisher_diagonal(model, samples, client.inputs, labels=settings.sketch_labels, seed=self.seed)
            elastic = DiagonalPreserver(diagonal, anchor, strength=settings.strength, lr=settings.lr)
            return elastic, float(len(samples)), diagonal.numel() * diagonal.element_size()
        if SKETCH_KEY in state:
            sketch, evaluations = Sketch(state[SKETCH_KEY], int(state[f"{SKETCH_KEY}.count"])), 0.0
        else:
            sketch = sketch_at_client(client, exclude, settings, self.seed)
            evaluations = float(sketch.count)
        keep = SketchPreserver(sketch, anchor, strength=settings.strength, lr=settings.lr, normalise=settings.normalise)
        return keep, evaluations, sketch.bytes

    def _forget(
        self, client: Client, target: Samples, memory: Tensor, preserver: Preserver | None
    ) -> dict[str, list[float]]:
        """SGD on the loss above, one step of the preserver after each."""
        settings, model = self.settings, client.model
        parameters = trainable(model)
        features, labels = target.features.to(client.device), target.labels.to(client.device)
        optimiser = torch.optim.SGD(parameters.values(), lr=settings.lr, momentum=settings.momentum)
        generator = derive_generator(self.seed, "forget", "client", client.index, "order")
        model.train(not settings.freeze_normalisation)
        curves: dict[str, list[float]] = {"samples": [], "memory_loss": [], "target_loss": [], "target_hits": []}
        for _ in range(settings.epochs):
            for batch in minibatches(len(target), settings.batch_size, generator, client.device):
                logits = model(client.inputs(features[batch]))
                loss, towards, old = forgetting_loss(logits, memory[batch], labels[batch], settings.ascent, settings.ascent_cap)
                hits = (logits.detach().argmax(1) == labels[batch]).float().mean()
                seen = torch.stack([towards.detach(), old.detach(), hits]).tolist()
                for name, value in zip(curves, [float(len(batch)), *seen], strict=True):
                    curves[name].append(value)
                if not math.isfinite(seen[0] + seen[1]):
                    raise DivergedError(
                        "The forgetting step",
                        f"the loss is no longer finite at step {len(curves['samples'])}{self._remedy(preserver)}.",
                    )
                if self._is_forgotten(curves["target_hits"]):
                    return curves
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                if preserver is not None and settings.penalty == "gradient":
                    preserver.gradient_step(parameters, settings.lr)
                elif preserver is not None:
                    preserver.proximal_step(parameters)
        return curves

    def _is_forgotten(self, hits: list[float], window: int = 4) -> bool:
        """The stopping rule: over the last batches, no more than `stop_below` of the target gets its trained label."""
        limit = self.settings.stop_below
        return limit is not None and len(hits) >= window and sum(hits[-window:]) / window <= limit

    def _remedy(self, preserver: Preserver | None) -> str:
        """Why plain gradient steps of the penalty blow up, where that is the cause."""
        if preserver is None or self.settings.penalty != "gradient":
            return ""
        bound = 2.0 / max(preserver.largest_curvature(), 1e-300)
        if self.settings.lr < bound:
            return ""
        return (
            f" (the penalty's plain gradient step is stable only below a learning rate of {bound:.2g}, "
            f"and it is {self.settings.lr:g}; use the proximal step)"
        )


@dataclass(frozen=True, kw_only=True)
class BuildSketch(Task):
    """A client's part of the federation's sketch. All clients hash with the same seed, so the parts add up."""

    exclude: tuple[ErasureRequest, ...]
    settings: FedAFSettings

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        client.load(state)
        if len(sketch_pool(client, self.exclude, self.settings)) == 0:
            return Reply(client.index, numbers={"count": 0.0})
        sketch = sketch_at_client(client, self.exclude, self.settings, self.seed)
        return Reply(
            client.index,
            tensors={SKETCH_KEY: sketch.rows},
            numbers={"count": float(sketch.count)},
            gradient_evaluations=float(sketch.count),
            stored_bytes=sketch.bytes,
        )


def sketch_pool(client: Client, exclude: tuple[ErasureRequest, ...], settings: FedAFSettings) -> Samples:
    """What the preserver may look at: D_k (the paper), or D'."""
    return client.samples if settings.sketch_data == "all" else client.split(exclude)[1]


def sketch_samples(client: Client, exclude: tuple[ErasureRequest, ...], settings: FedAFSettings, seed: int) -> Samples:
    """All of the pool, or a seeded random part of it."""
    samples, limit = sketch_pool(client, exclude, settings), settings.sketch_samples
    if len(samples) == 0:
        raise InputError(
            f"Client {client.index} keeps no data that the preserver could look at; set sketch_scope to federation."
        )
    if limit is None or limit >= len(samples):
        return samples
    generator = derive_generator(seed, "sketch", "client", client.index, "subsample")
    return samples.select(torch.randperm(len(samples), generator=generator)[:limit].sort().values)


def sketch_at_client(client: Client, exclude: tuple[ErasureRequest, ...], settings: FedAFSettings, seed: int) -> Sketch:
    """Algorithm 2 on this client's data, at the weights its model has now."""
    samples = sketch_samples(client, exclude, settings, seed)
    dtype = torch.bfloat16 if settings.sketch_dtype == "bfloat16" else torch.float32
    plan_sketch(client.model, settings.sketch_rows, dtype, client.device)
    return build_sketch(
        client.model, samples, client.inputs, rows=settings.sketch_rows, seed=derive_seed(seed, "sketch"),
        labels=settings.sketch_labels, batch_size=settings.batch_size, dtype=dtype,
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
        self.seconds[stage] = now - self._mark
        self._mark = now
