"""Rank-s PCA of the Jacobian in place of the sketch: the comparison the paper makes in words (section 4.3).

    J = U diag(w) V^T,    rows = diag(w_1 .. w_s) [v_1 .. v_s]^T = [u_1 .. u_s]^T J

No s rows keep J^T J better: the error is w_{s+1}^2 in the spectral norm. The price is every sample's own gradient.
J itself, n x m, is never needed whole: U and w come from the Gram matrix J J^T, n x n, and the rows from one more pass
over J. Both are summed block by block of samples, as many in a block as memory holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedforget.data.samples import Samples
from fedforget.federation.memory import available_bytes
from fedforget.methods.fedaf.sketch import COLUMNS_AT_ONCE, RowLabels, Sketch, row_products
from fedforget.methods.fisher import per_sample_gradients
from fedforget.params import trainable, weight_count

_SHARE_OF_MEMORY = 0.2
"""Two blocks of J are held at once, and making one takes about as much again."""


@dataclass(frozen=True)
class PrincipalRows(Sketch):
    """The s rows; `total` is tr(J J^T), with what the rows leave out, and `passes` how often J was gone through."""

    total: float
    passes: float

    @property
    def mean_square(self) -> float:
        return self.total / self.count

    @property
    def evaluations(self) -> float:
        return self.passes * self.count


def principal_rows(
    model: nn.Module,
    samples: Samples,
    inputs: Callable[[Tensor], Tensor],
    *,
    rows: int,
    seed: int,
    labels: RowLabels = "sampled",
    batch_size: int = 32,
    dtype: torch.dtype = torch.float32,
    block: int | None = None,
) -> PrincipalRows:
    """The best `rows` rows for J of these samples, J being the one that `build_sketch` sketches with the same seed."""
    n = len(samples)
    block = min(n, block or samples_that_fit(model))
    parts = torch.arange(n).split(block)

    def part_of_j(part: Tensor) -> Tensor:
        return jacobian(model, samples.select(part), inputs, labels=labels, seed=seed, batch_size=batch_size)

    left = part_of_j(parts[0])
    gram = torch.zeros(n, n, dtype=torch.float64, device=left.device)
    computed = len(parts[0])
    for i, part in enumerate(parts):
        if i:
            left = part_of_j(part)
            computed += len(part)
        _place(gram, part, part, left, left)
        for other in parts[:i]:
            _place(gram, part, other, left, part_of_j(other))
            computed += len(other)

    squares, u = torch.linalg.eigh(gram)
    top = u[:, -rows:].flip(1)
    if len(parts) == 1:
        kept = _combine(top, left)
    else:
        kept = torch.zeros(top.shape[1], left.shape[1], device=left.device)
        for part in parts:
            kept += _combine(top[part.to(top.device)], part_of_j(part))
            computed += len(part)
    total = float(squares.clamp(min=0.0).sum())
    return PrincipalRows(kept.to(dtype), n, total, computed / n)


def jacobian(
    model: nn.Module,
    samples: Samples,
    inputs: Callable[[Tensor], Tensor],
    *,
    labels: RowLabels,
    seed: int,
    batch_size: int = 32,
) -> Tensor:
    """J itself, [n, m]."""
    batches = per_sample_gradients(model, samples, inputs, labels=labels, seed=seed, batch_size=batch_size)
    return torch.cat([torch.cat([g.flatten(1) for g in batch.values()], dim=1) for batch in batches])


def samples_that_fit(model: nn.Module) -> int:
    """How many samples' gradients may be held at once."""
    free = available_bytes(next(iter(trainable(model).values())).device)
    return max(1, int(_SHARE_OF_MEMORY * free) // (4 * weight_count(model)))


def spectral_error(j: Tensor, rows: Tensor) -> float:
    """The smallest eps with | ||rows d||^2 - ||J d||^2 | <= eps ||J||^2 ||d||^2 for all d (Theorem 1): the norm of
    J^T J - rows^T rows over that of J^T J.

    With B = [J; rows] and D = diag(1, .., -1, ..) the difference is B^T D B, whose eigenvalues are those of
    G^1/2 D G^1/2 for the Gram matrix G = B B^T, which is small."""
    own, across = row_products(j, j), row_products(j, rows)
    gram = torch.cat([torch.cat([own, across], dim=1), torch.cat([across.T, row_products(rows, rows)], dim=1)])
    signs = torch.cat([torch.ones(len(j)), -torch.ones(len(rows))]).to(gram)
    values, vectors = torch.linalg.eigh(gram)
    root = vectors * values.clamp(min=0.0).sqrt() @ vectors.T
    difference = torch.linalg.eigvalsh(root * signs @ root)
    return float(difference.abs().max() / torch.linalg.eigvalsh(own)[-1])


def _place(gram: Tensor, part: Tensor, other: Tensor, left: Tensor, right: Tensor) -> None:
    product = row_products(left, right)
    i, j = slice(int(part[0]), int(part[-1]) + 1), slice(int(other[0]), int(other[-1]) + 1)
    gram[i, j] = product
    gram[j, i] = product.T


def _combine(top: Tensor, part: Tensor) -> Tensor:
    """U_s^T J for a block of J's rows."""
    return torch.cat([(top.T @ piece.double()).float() for piece in part.split(COLUMNS_AT_ONCE, dim=1)], dim=1)
