"""The knowledge preserver: an elastic penalty that keeps everything but the target in place (the paper's section 4.3).

    penalty(theta) = (lambda/2) ||J^ (theta - theta*)||^2                                            (Eq. 13)

theta* is the anchor, J^ the sketch of the retained data D' (with `sketch_data` = all, the paper's, of all of D_k). With
`normalise`, the default, lambda stands for lambda/n here, n the sketched samples. Two ways to take its step in
training:

    gradient   lambda J^^T J^ (theta - theta*) beside the loss's       the paper; stable for lr < 2/(lambda sigma_max^2)
    proximal   d <- d - J^^T (J^ J^^T + I/(lr lambda))^-1 J^ d,  d = theta - theta*         closed form, always stable

The proximal step is the exact minimiser of ||theta - v||^2/(2 lr) + penalty(theta) at v (Woodbury): one s x s
factorisation, made once. As lambda grows it becomes the projection onto the directions that leave every sketched loss
where it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from fedforget.methods.fedaf.sketch import COLUMNS_AT_ONCE, Sketch
from fedforget.params import flatten, move, unflatten


class Preserver(Protocol):
    """A quadratic penalty (lambda/2) d^T A d around the anchor."""

    def gradient(self, parameters: Mapping[str, Tensor]) -> list[Tensor]: ...

    def proximal_step(self, parameters: Mapping[str, Tensor]) -> None: ...

    def largest_curvature(self) -> float: ...


class SketchPreserver:
    """The penalty of a sketch: A = J^^T J^ (times 1/n if `normalise`).

    `strength` is lambda. The paper drops 1/n ("both are scales"): then lambda counts n-fold."""

    def __init__(
        self, sketch: Sketch, anchor: Mapping[str, Tensor], *, strength: float, lr: float, normalise: bool = True
    ) -> None:
        self.rows = sketch.rows
        self.anchor = flatten(anchor)
        self._step = torch.empty_like(self.anchor)
        self._places = list(unflatten(self._step, anchor).values())
        self.strength = strength / sketch.count if normalise else strength
        gram, self._largest = sketch.gram, sketch.largest
        if strength > 0 and lr > 0:
            ridge = max(1.0 / (lr * self.strength), _SMALLEST_RIDGE * self._largest)
            self._factor = torch.linalg.cholesky(gram + ridge * torch.eye(len(gram)).to(gram))

    def gradient(self, parameters: Mapping[str, Tensor]) -> list[Tensor]:
        """lambda J^^T J^ d."""
        along = _times(self.rows, flatten(parameters) - self.anchor)
        return list(unflatten(self.strength * _transposed_times(self.rows, along), parameters).values())

    @torch.no_grad()
    def proximal_step(self, parameters: Mapping[str, Tensor]) -> None:
        """d <- d - J^^T (J^ J^^T + I/(lr lambda))^-1 J^ d, in one vector that serves every step."""
        if self.strength == 0:
            return
        weights = list(parameters.values())
        torch._foreach_copy_(self._places, weights)
        along = _times(self.rows, self._step.sub_(self.anchor)).to(self._factor)
        solved = torch.cholesky_solve(along[:, None], self._factor)[:, 0]
        self._step.copy_(_transposed_times(self.rows, solved.float()))
        torch._foreach_sub_(weights, self._places)

    def largest_curvature(self) -> float:
        """lambda sigma_max(J^)^2: plain gradient steps are stable for lr < 2 over this."""
        return self.strength * self._largest


class DiagonalPreserver:
    """Elastic weight consolidation with a diagonal, for comparison: A = diag(F), F the mean of squared per-sample
    gradients, so the penalty is (lambda/2) sum_j F_j d_j^2 (Kirkpatrick et al. 2017)."""

    def __init__(self, diagonal: Tensor, anchor: Mapping[str, Tensor], *, strength: float, lr: float) -> None:
        self.diagonal = diagonal
        self.anchor = flatten(anchor)
        self.strength = strength
        self.lr = lr

    def gradient(self, parameters: Mapping[str, Tensor]) -> list[Tensor]:
        """lambda F d."""
        moved = flatten(parameters) - self.anchor
        return list(unflatten(self.strength * self.diagonal * moved, parameters).values())

    def proximal_step(self, parameters: Mapping[str, Tensor]) -> None:
        """d_j <- d_j / (1 + lr lambda F_j)."""
        moved = flatten(parameters) - self.anchor
        pull = self.lr * self.strength * self.diagonal
        move(parameters, moved * pull / (1.0 + pull), -1.0)

    def largest_curvature(self) -> float:
        return self.strength * float(self.diagonal.max())


_SMALLEST_RIDGE = 1e-9
"""Relative to sigma_max(J^)^2: below it, float32's rounding of J^ d would grow in directions that J^ does not see."""


# The sketch may be stored in bfloat16, so sums are made in a wider type, some columns at a time.
def _times(rows: Tensor, vector: Tensor) -> Tensor:
    if rows.dtype == torch.float32:
        return rows @ vector
    total = torch.zeros(len(rows), device=rows.device)
    for block, part in zip(rows.split(COLUMNS_AT_ONCE, dim=1), vector.split(COLUMNS_AT_ONCE), strict=True):
        total += block.float() @ part
    return total


def _transposed_times(rows: Tensor, vector: Tensor) -> Tensor:
    if rows.dtype == torch.float32:
        return vector @ rows
    return torch.cat([vector @ block.float() for block in rows.split(COLUMNS_AT_ONCE, dim=1)])
