"""How much a model listens to a feature: what its predictions change when the feature does (after Gu et al. 2024).

    S = sum_i ||f(x_i) - f(x'_i)|| / sum_i ||x_i - x'_i||

f is the softmax, so that S is bounded and about what a user sees; x' is x with the feature's values of another sample,
since those are values that the feature takes (the paper's Gaussian noise is not: docs/decisions/features.md); both
lengths are Euclidean, in the units that the network takes. A feature that does not vary has no S. With a_i and b_i for
the two lengths, S scatters on as many new samples by about sqrt(sum_i (a_i - S b_i)^2) / sum_i b_i; of one sample that
is 0, and of a few too small, so S is read from `FEWEST_JUDGED` samples whose feature changed, or more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedforget.audit.case import Case
from fedforget.audit.distributions import FEWEST_JUDGED
from fedforget.audit.verdict import Reading
from fedforget.data.samples import Normalisation, Samples
from fedforget.federation.client import Client
from fedforget.federation.evaluation import FORWARD_COST, evaluate, predict
from fedforget.federation.tasks import Reply, TargetTask
from fedforget.requests import ErasureRequest, withdrawn_features
from fedforget.seeds import derive_generator


def about_features(requests: Sequence[ErasureRequest]) -> bool:
    """Whether all of them are about features: then it is the sensitivity that tells, and no accuracy."""
    return bool(requests) and all(request.kind == "feature" for request in requests)


@dataclass(frozen=True)
class Sums:
    """Sums over samples of a = ||f(x) - f(x')||, b = ||x - x'||, and of their products, and how many b are above 0: all
    that S needs."""

    a: float = 0.0
    b: float = 0.0
    aa: float = 0.0
    ab: float = 0.0
    bb: float = 0.0
    moved: float = 0.0

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    @property
    def reading(self) -> Reading | None:
        """S with its sampling error."""
        if self.b <= 0 or self.moved < FEWEST_JUDGED:
            return None
        s = self.a / self.b
        return Reading(s, math.sqrt(max(0.0, self.aa - 2 * s * self.ab + s * s * self.bb)) / self.b)


@torch.no_grad()
def sensitivity_sums(
    model: nn.Module, samples: Samples, mask: Tensor, normalisation: Normalisation, device: torch.device, seed: int
) -> Sums:
    """The sums of S for the feature at `mask` over the samples."""
    if not len(samples) or not bool(mask.any()):
        return Sums()
    other = shuffled(samples.features, mask, derive_generator(seed, "sensitivity"))
    said = [predict(model, x, normalisation, device).softmax(dim=1).cpu().double() for x in (samples.features, other)]
    pairs = zip(samples.features.split(500), other.split(500), strict=True)
    moved = [(normalisation(x) - normalisation(y)).flatten(1).norm(dim=1) for x, y in pairs]
    a, b = (said[0] - said[1]).norm(dim=1), torch.cat(moved).cpu().double()
    return Sums(*(float(total.sum()) for total in (a, b, a * a, a * b, b * b, b > 0)))


@dataclass(frozen=True, kw_only=True)
class MeasureSensitivity(TargetTask):
    """S of the client's own withdrawn features, on its samples and on those it holds out, and how many held-out samples
    are predicted right without the feature. Sums and counts leave the client."""

    at_target = True

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        model, target = client.load(state), client.target(self.requests, self.served)
        mask = withdrawn_features(self.requests, client.index, target.features.shape[1:])
        numbers: dict[str, float] = {}
        for name, samples in (("target", target), ("unseen", client.held_out)):
            if samples is not None:
                sums = sensitivity_sums(model, samples, mask, client.normalisation, client.device, self.seed)
                numbers |= {f"{name}/{item}": value for item, value in asdict(sums).items()}
        looked_at = 2 * (len(target) + len(client.held_out or ()))
        if client.held_out is not None:
            without = client.held_out.with_features(client.normalisation.blanked(client.held_out.features, mask))
            known = evaluate(model, without, client.normalisation, client.device)
            numbers |= {"unseen/right": float(known.as_true), "unseen/count": float(known.count)}
            looked_at += known.count
        return Reply(client.index, numbers=numbers, gradient_evaluations=FORWARD_COST * looked_at)


@dataclass(frozen=True)
class Sensitivity:
    """A model's sensitivity to the withdrawn features: at the clients that asked, and on unseen samples they hold out;
    and how many of these it predicts right without the features."""

    target: Reading | None
    unseen: Reading | None
    right: int
    count: int

    def to_json(self) -> dict[str, Any]:
        accuracy = 100.0 * self.right / self.count if self.count else None
        return {
            "target": None if self.target is None else self.target.value,
            "unseen": None if self.unseen is None else self.unseen.value,
            "unseen_acc_without": accuracy,
        }


def measure_sensitivity(case: Case, state: Mapping[str, Tensor]) -> Sensitivity:
    """Measured at the clients that asked, each for its own features."""
    asking = case.askers
    found, right, count = {"target": Sums(), "unseen": Sums()}, 0, 0
    for reply in case.federation.ask(case.about(MeasureSensitivity), state, asking):
        for name in found:
            if f"{name}/a" in reply.numbers:
                found[name] += Sums(**{item: reply.numbers[f"{name}/{item}"] for item in asdict(Sums())})
        right += int(reply.numbers.get("unseen/right", 0))
        count += int(reply.numbers.get("unseen/count", 0))
    unseen = found["unseen"].reading
    if unseen is not None:  # the clients may well hold out the same samples: then asking more of them tells no more
        unseen = Reading(unseen.value, unseen.error * math.sqrt(len(asking)))
    return Sensitivity(found["target"].reading, unseen, right // len(asking), count // len(asking))


def shuffled(values: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor:
    """A copy in which each sample has the values of another at `mask`, all of them of the same one."""
    other = values[torch.randperm(len(values), generator=generator).to(values.device)]
    return torch.where(mask.to(values.device), other, values)
