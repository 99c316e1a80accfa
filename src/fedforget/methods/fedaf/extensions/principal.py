"""Rank-s PCA of the Jacobian in place of the sketch: the comparison the paper makes in words (section 4.3).

    J = U diag(w) V^T,    rows = diag(w_1 .. w_s) [v_1 .. v_s]^T = [u_1 .. u_s]^T J

No s rows keep J^T J better: the error is w_{s+1}^2 in the spectral norm. The price is every sample's own gradient, all
at once: U and w come from the Gram matrix J J^T, n x n. Where memory does not hold J, n x m, it is refused."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedforget.errors import InputError
from fedforget.federation.memory import available_bytes
from fedforget.methods.fedaf.sketch import COLUMNS_AT_ONCE, Jacobian, Sketch, row_products
from fedforget.methods.fisher import per_sample_gradients
from fedforget.params import trainable, weight_count

_SHARE_OF_MEMORY = 0.2
"""J may take so much: making it takes about as much again, and it is multiplied in double precision."""


@dataclass(frozen=True)
class PrincipalRows(Sketch):
    """The s rows; `total` is tr(J J^T), with what the rows leave out."""

    total: float

    @property
    def mean_square(self) -> float:
        return self.total / self.count


def principal_rows(j: Jacobian, rows: int, batch_size: int = 32, dtype: torch.dtype = torch.float32) -> PrincipalRows:
    """The best `rows` rows for J."""
    samples, fits = j.samples, samples_that_fit(j.model)
    if len(samples) > fits:
        raise InputError(
            f"The preserver 'pca' holds every sample's own gradient, and memory holds those of {fits} of the "
            f"{len(samples)} samples; set sketch_samples to {fits} or fewer, or use the preserver 'sketch'."
        )
    matrix = all_rows(j, batch_size)
    squares, u = torch.linalg.eigh(row_products(matrix, matrix))
    top = u[:, -rows:].flip(1)
    kept = [(top.T @ piece.double()).float() for piece in matrix.split(COLUMNS_AT_ONCE, dim=1)]
    return PrincipalRows(torch.cat(kept, dim=1).to(dtype), len(samples), float(squares.clamp(min=0.0).sum()))


def all_rows(j: Jacobian, batch_size: int = 32) -> Tensor:
    """J itself, [n, m]."""
    batches = per_sample_gradients(j, batch_size)
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
