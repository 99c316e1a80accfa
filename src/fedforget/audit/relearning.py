"""How fast a model learns the target again.

A model that truly forgot R is to R what Retrain is: it learns R as slowly as Retrain does. What was only suppressed is
learned faster. Relearn time (Golatkar et al., Eternal Sunshine of the Spotless Net, CVPR 2020, arXiv 1911.04933) is the
number of steps t of training on R alone until the loss there is back at a level l; here it is counted in Retrain's:

    theta_0 = the model,    theta_{t+1} = one SGD step on a batch of R
    T(l) = min { t : loss(theta_t; R) <= l },        relative relearn time = T(l) / T_Retrain(l)

with l taken from Retrain's curve (`relearning_level`). Below 1, the model learns R faster than one that never saw it.
That is memory, or damage: a model that is sure of nothing learns strange labels faster than Retrain, which is sure of
the true ones (an untrained network with 40 mislabelled digits: 0.4), so read it beside the retained accuracy. A target
with one label alone is learned within a step or two by every model, and then the curve tells little.

What a model learns fast depends on what else it knows: one that was trained half as long, without R, learns honest
samples again sooner than Retrain, and so is no proof that it saw them. So an honest target is held against as many
unseen samples of its kind, learned by a copy of the same model (`Side`).

The attack without R is in `audit.durability`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import DivergedError, InputError
from fedforget.federation.beside import same_kind
from fedforget.federation.client import Client
from fedforget.federation.evaluation import FORWARD_COST, Evaluation, evaluate
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import Federation
from fedforget.federation.sgd import SGD
from fedforget.federation.tasks import Reply, Task
from fedforget.federation.training import minibatches, set_training_mode
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, seeded_globally

Side = Literal["whole", "target", "kind"]
"""All of R; or as many samples of R as there are held-out ones of its kind; or as many of these in place of R."""
_CURVES = ("steps", "as_trained", "flipped_hits", "loss")

POINTS = 10
"""A relearning curve has so many points after the first, whatever the model and the size of the target."""


@dataclass(frozen=True, kw_only=True)
class Relearn(Task):
    """The asking client trains the model on its target R alone, with the labels R was trained on, and tells how well
    the model knows R before the first step and at `points` equally spaced points of the way.

    It makes `epochs` passes, and more where a small target has fewer batches than there are points: every point is at
    least one step after the one before. The draws depend on the seed and the client, so all models see one order.

    Running statistics of normalisations stay as they came: those of R alone would differ from everybody's, and the
    curve would show how fast they adapt. Their scales and shifts are trained like any other parameter.

    Counts and sums leave the client; the model that knows R again does not."""

    at_target = True

    requests: tuple[ErasureRequest, ...]
    served: tuple[ErasureRequest, ...] = ()
    side: Side = "whole"
    epochs: int = 3
    lr: float = 0.01
    momentum: float = 0.9
    batch_size: int = 64
    points: int = POINTS

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "points"):
            if getattr(self, name) < 1:
                raise InputError(f"Relearning setting '{name}' is {getattr(self, name)}, but it must be 1 or larger.")

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        target = self._samples(client)
        features, labels = target.features.to(client.device), target.labels.to(client.device)
        model = client.load(state)
        optimiser = SGD(model.parameters(), self.lr, self.momentum)
        batches = self._batches(len(target), client)
        marks = [point * len(batches) // self.points for point in range(self.points + 1)]
        known = {0: self._known(target, client, 0)}
        with seeded_globally(client.device, self.seed, "relearn", "client", client.index, "dropout"):
            for step, batch in enumerate(batches, start=1):
                set_training_mode(model, freeze_normalisation=True)  # again: measuring sets evaluation mode
                optimiser.step(F.cross_entropy(model(client.inputs(features[batch])), labels[batch]))
                if step in marks:
                    known[step] = self._known(target, client, step)
        return Reply(
            client.index,
            numbers={"target": float(len(target)), "evidence": float(known[0].evidence)},
            curves={
                "steps": [float(step) for step in marks],
                "as_trained": [float(known[step].as_trained) for step in marks],
                "flipped_hits": [float(known[step].flipped_hits) for step in marks],
                "loss": [known[step].loss for step in marks],
            },
            gradient_evaluations=sum(len(batch) for batch in batches) + FORWARD_COST * len(target) * len(known),
        )

    def _samples(self, client: Client) -> Samples:
        target = client.target(self.requests, self.served)
        if self.side == "whole":
            return target
        nothing = target.select(torch.zeros(0, dtype=torch.int64))
        kind = same_kind(target, nothing if client.held_out is None else client.held_out)
        generator = derive_generator(self.seed, "relearn", "client", client.index, "samples")
        samples, other = (kind, target) if self.side == "kind" else (target, kind)
        chosen = torch.randperm(len(samples), generator=generator)[: len(other)].sort().values
        return samples.select(chosen.to(samples.labels.device))

    def _known(self, target: Samples, client: Client, step: int) -> Evaluation:
        known = evaluate(client.model, target, client.normalisation, client.classes, client.device)
        if not math.isfinite(known.loss):
            raise DivergedError(
                f"Relearning at client {client.index}",
                f"the loss on the target is not finite after step {step}; lower the learning rate ({self.lr:g}).",
            )
        return known

    def _batches(self, n: int, client: Client) -> list[Tensor]:
        """The positions of every step, in order."""
        generator = derive_generator(self.seed, "relearn", "client", client.index, "order")
        batches: list[Tensor] = []
        passes = 0
        while n and (passes < self.epochs or len(batches) < self.points):
            batches += minibatches(n, self.batch_size, generator, client.device)
            passes += 1
        return batches


@dataclass(frozen=True)
class RelearningCurve:
    """How well a model knows R while it learns R again, over all clients that ask; percent and nats.

    `steps`: SGD steps made by then, by all asking clients together (each trains a copy of its own). `accuracy`: share
    of R predicted as the label it was trained on, over flipped samples where there are any. `loss`: mean cross entropy
    on R against that label. `target`: samples of R. `evidence`: how many of them carry a flipped label."""

    steps: tuple[int, ...]
    accuracy: tuple[float, ...]
    loss: tuple[float, ...]
    target: int
    evidence: int

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def relearning_curve(
    federation: Federation,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    schedule: Schedule,
    *,
    served: Sequence[ErasureRequest] = (),
    epochs: int = 3,
    points: int = POINTS,
    side: Side = "whole",
) -> RelearningCurve | None:
    """The curve of `state`, trained with the federation's own learning rate, momentum and batch size; the counts and
    losses of all clients that ask are added up. None where nothing of R is left but what was `served` before, or
    nothing to hold it against."""
    task = Relearn(
        seed=schedule.seed, threads=schedule.threads, requests=tuple(requests), served=tuple(served), epochs=epochs,
        lr=schedule.lr, momentum=schedule.momentum, batch_size=schedule.batch_size, points=points, side=side,
    )  # fmt: skip
    target = evidence = 0
    sums: dict[str, list[float]] = {name: [0.0] * (points + 1) for name in _CURVES}
    for reply in federation.ask(task, state, sorted({request.client for request in requests})):
        target += int(reply.numbers["target"])
        evidence += int(reply.numbers["evidence"])
        for name, total in sums.items():
            sums[name] = [a + b for a, b in zip(total, reply.curves[name], strict=True)]
    if target == 0:
        return None
    hits, judged = (sums["flipped_hits"], evidence) if evidence else (sums["as_trained"], target)
    return RelearningCurve(
        steps=tuple(int(step) for step in sums["steps"]),
        accuracy=tuple(100.0 * hit / judged for hit in hits),
        loss=tuple(loss / target for loss in sums["loss"]),
        target=target,
        evidence=evidence,
    )


@dataclass(frozen=True)
class RelearningSpeed:
    """What one curve says, for a judge.

    `mean_accuracy`: the area under the accuracy, as its mean along the way, percent. `steps`: T(level). `relative`:
    T(level) in Retrain's. None where there is no level, or it was not reached: slower than the whole curve."""

    mean_accuracy: float
    level: float | None
    steps: float | None
    relative: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def relearning_speed(
    curve: RelearningCurve, retrain: RelearningCurve | None = None, *, level: float | None = None
) -> RelearningSpeed:
    """The speed of `curve`, against Retrain's where that is given:

        mean accuracy = 1/t_P  sum_i (t_{i+1} - t_i) (a_i + a_{i+1}) / 2        (trapezoids over the P + 1 points)
        T(level)      = the first t with loss <= level, with straight lines between the points

    `level` is Retrain's `relearning_level`, if no other is given. `relative` is None without Retrain's curve, and where
    Retrain never reaches the level or is there before the first step, when nothing could be faster.

    >>> slow = RelearningCurve((0, 10, 20), (0.0, 50.0, 100.0), (4.0, 2.0, 1.0), 8, 0)
    >>> fast = RelearningCurve((0, 10, 20), (50.0, 100.0, 100.0), (2.0, 0.0, 0.0), 8, 0)
    >>> relearning_speed(fast, slow)
    RelearningSpeed(mean_accuracy=87.5, level=1.0, steps=5.0, relative=0.25)
    """
    if level is None and retrain is not None:
        level = relearning_level(retrain)
    way = list(zip(curve.steps, curve.accuracy, strict=True))
    area = sum((t - s) * (a + b) / 2 for (s, a), (t, b) in itertools.pairwise(way))
    steps = None if level is None else _steps_until(curve, level)
    oracle = None if level is None or retrain is None else _steps_until(retrain, level)
    return RelearningSpeed(
        mean_accuracy=area / curve.steps[-1],
        level=level,
        steps=steps,
        relative=steps / oracle if steps is not None and oracle else None,
    )


def relearning_level(retrain: RelearningCurve) -> float:
    """The loss on R at which R counts as learned: half way down Retrain's curve, though no higher than log 2, where a
    label has half the probability, unless Retrain itself gets no lower.

        l = max(min_t L(t), min((L(0) + min_t L(t)) / 2, log 2))        L = Retrain's loss on R

    The lowest loss alone would not do: training on a target with one label ends at a loss of 0, for every model."""
    lowest = min(retrain.loss)
    return max(lowest, min((retrain.loss[0] + lowest) / 2, math.log(2)))


def _steps_until(curve: RelearningCurve, level: float) -> float | None:
    for point, loss in enumerate(curve.loss):
        if loss <= level:
            if point == 0:
                return 0.0
            above, start, end = curve.loss[point - 1], curve.steps[point - 1], curve.steps[point]
            return start + (end - start) * (above - level) / (above - loss)
    return None
