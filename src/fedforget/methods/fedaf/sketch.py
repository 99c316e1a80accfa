"""CountSketch of the Jacobian: s rows that keep ||J theta||^2 for all theta (the paper's Algorithm 2, Theorem 1).

Row i of J is one sample's gradient. Bucket r of the sketch is a signed sum of rows,

    (J^)_r = sum over {i : h(i) = r} of sigma(i) (J)_i,

with a 2-wise independent bucket hash h and a 4-wise independent sign hash sigma over the samples' ids. A gradient is
linear, so the bucket's row is the gradient of the signed sum of losses in it: one backward pass per bucket batch, and
no per-sample gradient ever exists. Sketches with one hash seed over disjoint ids add up to the sketch of the union."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.federation.captured import gradient_of
from fedforget.federation.layout import for_convolutions
from fedforget.params import trainable, unflatten, weight_count
from fedforget.seeds import derive_generator

RowLabels = Literal["data", "sampled", "mas"]
PRIME = 2**31 - 1
"""The hashes are polynomials modulo this Mersenne prime: products of two residues fit into 64 bits."""


@dataclass(frozen=True)
class Sketch:
    """J^ of shape [s, m] over `count` samples: J^T J / n is approximated by J^^T J^ / n."""

    rows: Tensor
    count: int

    @property
    def bytes(self) -> int:
        return self.rows.numel() * self.rows.element_size()

    @property
    def mean_square(self) -> float:
        """An unbiased estimate of the mean squared length of a row of J: of tr(J^T J) / n."""
        return float(self.gram.diagonal().sum()) / self.count

    @cached_property
    def gram(self) -> Tensor:
        """J^ J^^T, summed in float64: made once, though the amnesia and the forgetting both need it."""
        return row_products(self.rows, self.rows)

    @cached_property
    def largest(self) -> float:
        """sigma_max(J^)^2."""
        return float(torch.linalg.eigvalsh(self.gram)[-1].clamp(min=0.0))


COLUMNS_AT_ONCE = 2**15


def row_products(left: Tensor, right: Tensor) -> Tensor:
    """left right^T, every row with every row, summed in float64: rounded to float32, a Gram matrix may not be positive
    definite with a small ridge."""
    products = torch.zeros(len(left), len(right), dtype=torch.float64, device=left.device)
    for a, b in zip(left.split(COLUMNS_AT_ONCE, dim=1), right.split(COLUMNS_AT_ONCE, dim=1), strict=True):
        wide = a.double()
        products.addmm_(wide, (wide if right is left else b.double()).T)
    return products


def hash_buckets(ids: Tensor, rows: int, seed: int) -> Tensor:
    """h(i) = ((a i + b) mod P) mod s, 2-wise independent."""
    return torch.from_numpy((_polynomial(ids, 2, seed, "bucket") % np.uint64(rows)).astype(np.int64))


def hash_signs(ids: Tensor, seed: int) -> Tensor:
    """sigma(i) in {-1, +1} from a random cubic polynomial mod P, 4-wise independent."""
    bits = _polynomial(ids, 4, seed, "sign") & np.uint64(1)
    return torch.from_numpy(1.0 - 2.0 * bits.astype(np.float32))


def hash_uniforms(ids: Tensor, seed: int) -> Tensor:
    """u(i) in [0, 1): a draw that belongs to the sample, whatever batch or client it is met in."""
    return torch.from_numpy(_polynomial(ids, 4, seed, "uniform").astype(np.float64) / PRIME)


def _polynomial(ids: Tensor, coefficients: int, seed: int, purpose: str) -> np.ndarray:
    values = ids.cpu().numpy()
    if len(values) and (values.min() < 0 or values.max() >= PRIME):
        raise InputError(f"Sample ids must lie in 0 to {PRIME - 1} to be hashed.")
    x = values.astype(np.uint64)
    generator = derive_generator(seed, "hash", purpose)
    drawn = torch.randint(0, PRIME, (coefficients,), generator=generator, dtype=torch.int64).tolist()
    result = np.zeros_like(x)
    for coefficient in drawn:
        result = (result * x + np.uint64(coefficient)) % np.uint64(PRIME)
    return result


def row_losses(logits: Tensor, labels: Tensor, uniforms: Tensor, kind: RowLabels) -> Tensor:
    """The scalar of each sample whose gradient is its row of J.

    data     cross entropy with the data's label: the empirical Fisher, J^T J / n (Li et al. 2021, the paper)
    sampled  cross entropy with a label drawn from the model: the true Fisher in expectation
    mas      sum_c softmax(f(x))_c^2: no label at all (Aljundi et al. 2018)"""
    if kind == "mas":
        return F.softmax(logits, dim=1).square().sum(dim=1)
    if kind == "sampled":
        with torch.no_grad():
            cumulative = F.softmax(logits.double(), dim=1).cumsum(dim=1)
            labels = (cumulative < uniforms[:, None].to(cumulative)).sum(dim=1).clamp(max=logits.shape[1] - 1)
    return F.cross_entropy(logits, labels, reduction="none")


@dataclass(frozen=True)
class Jacobian:
    """J at the model's weights, in evaluation mode: row i is the gradient of sample i's `row_losses`. It is no matrix
    yet, but what its sketch, its principal rows and its Fisher diagonal are made of."""

    model: nn.Module
    samples: Samples
    inputs: Callable[[Tensor], Tensor]
    """Features as the network takes them."""
    labels: RowLabels = "sampled"
    seed: int = 0
    """Of the hashes, and so of the labels that are drawn."""


def build_sketch(j: Jacobian, rows: int, batch_size: int = 64, dtype: torch.dtype = torch.float32) -> Sketch:
    """J^ = S J, streamed bucket by bucket: row r is the gradient of the sum over its bucket of sigma(i) times the loss
    of i.

    Beyond the [s, m] result it needs the memory of one backward pass over `batch_size` samples; on a GPU half as many
    more, and once for each recorded size of a batch."""
    model, samples = j.model, j.samples
    buckets = hash_buckets(samples.ids, rows, j.seed)
    members = torch.sort(buckets, stable=True).indices.split(torch.bincount(buckets, minlength=rows).tolist())
    parameters = trainable(model)
    device = next(iter(parameters.values())).device
    model.eval()
    sketch = torch.zeros(rows, weight_count(model), dtype=dtype, device=device)
    plan = [
        (row, batch, real)
        for row, inside in enumerate(members)
        if len(inside)
        for batch, real in batches_of(inside, batch_size, filled=device.type == "cuda")
    ]
    if not plan:
        return Sketch(sketch, 0)
    # All of it at once: on a GPU every small copy waits for the one before.
    positions = torch.cat([batch for _, batch, _ in plan])
    is_real = torch.cat([torch.arange(len(batch)) < real for _, batch, real in plan])
    weights = hash_signs(samples.ids, j.seed)[positions] * is_real
    columns = (
        samples.labels[positions.to(samples.labels.device)].to(device), weights.to(device),
        hash_uniforms(samples.ids, j.seed)[positions].to(device),
    )  # fmt: skip
    sizes = [len(batch) for _, batch, _ in plan]
    batches = zip(
        [row for row, _, _ in plan],
        positions.to(samples.features.device).split(sizes),
        *(column.split(sizes) for column in columns),
        strict=True,
    )

    def signed_loss(x: Tensor, y: Tensor, weights: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        total = (weights * row_losses(model(for_convolutions(model, j.inputs(x))).float(), y, draws, j.labels)).sum()
        return total, total

    gradient = gradient_of(signed_loss, model, ("sketch", j.labels), half=True)
    for number, parts in groupby(batches, key=itemgetter(0)):
        row = sketch[number].float()  # the row itself where it is float32, else a wider copy to sum in
        places = list(unflatten(row, parameters).values())
        for _, where, *rest in parts:
            gradients, _ = gradient(samples.features[where], *rest)
            torch._foreach_add_(places, list(gradients))
            del gradients
        if dtype != torch.float32:
            sketch[number] = row
    return Sketch(sketch, len(samples))


def batches_of(members: Tensor, limit: int, *, filled: bool) -> Iterator[tuple[Tensor, int]]:
    """A bucket's samples in batches, and how many of each are real: in even parts of at most `limit`. `filled`, for a
    GPU: of at most one and a half times that, so that most buckets are one batch, and each filled up with samples that
    will weigh nothing to one of a few sizes, since a pass is recorded once for each size."""
    most = limit + limit // 2 if filled else limit
    for part in members.tensor_split(-(-len(members) // most)):
        n = len(part)
        step = (8 if n <= 32 else 16) if filled else 1
        yield F.pad(part, (0, -n % step), value=int(part[0])), n
