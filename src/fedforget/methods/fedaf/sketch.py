"""CountSketch of the Jacobian: s rows that keep ||J theta||^2 for all theta (the paper's Algorithm 2, Theorem 1).

Row i of J is one sample's gradient. Bucket r of the sketch is a signed sum of rows,

    (J^)_r = sum over {i : h(i) = r} of sigma(i) (J)_i,

with a 2-wise independent bucket hash h and a 4-wise independent sign hash sigma over the samples' ids. A gradient is
linear, so the bucket's row is the gradient of the signed sum of losses in it: one backward pass per bucket batch, and
no per-sample gradient ever exists. Sketches with one hash seed over disjoint ids add up to the sketch of the union."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.params import slices, trainable, weight_count
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
    def evaluations(self) -> float:
        """The gradient evaluations it took to make: one for each sample."""
        return float(self.count)

    @property
    def mean_square(self) -> float:
        """An unbiased estimate of the mean squared length of a row of J: of tr(J^T J) / n."""
        return float(sum(row.float().square().sum() for row in self.rows)) / self.count


def merge(sketches: Iterable[Sketch]) -> Sketch:
    """The sketch of the union of disjoint sample sets, one sketch at a time."""
    rows: Tensor | None = None
    count = 0
    for sketch in sketches:
        rows = sketch.rows.clone() if rows is None else rows.add_(sketch.rows)
        count += sketch.count
    if rows is None:
        raise InputError("There is no sketch to merge.")
    return Sketch(rows, count)


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


def build_sketch(
    model: nn.Module,
    samples: Samples,
    inputs: Callable[[Tensor], Tensor],
    *,
    rows: int,
    seed: int,
    labels: RowLabels = "sampled",
    batch_size: int = 64,
    dtype: torch.dtype = torch.float32,
) -> Sketch:
    """J^ = S J at the model's weights, in evaluation mode, streamed bucket by bucket.

    Beyond the [s, m] result it needs the memory of one backward pass over `batch_size` samples."""
    parameters = trainable(model)
    device = next(iter(parameters.values())).device
    model.eval()
    buckets, signs = hash_buckets(samples.ids, rows, seed), hash_signs(samples.ids, seed)
    uniforms = hash_uniforms(samples.ids, seed)
    sketch = torch.zeros(rows, weight_count(model), dtype=dtype, device=device)
    by_bucket = torch.sort(buckets, stable=True).indices.split(torch.bincount(buckets, minlength=rows).tolist())
    batch_size = _batch_shape([len(b) for b in by_bucket], batch_size)
    for bucket, members in enumerate(by_bucket):
        if len(members) == 0:
            continue
        row = sketch[bucket].float()  # the row itself where it is float32, else a wider copy to sum in
        for batch in members.split(batch_size):
            weights = F.pad(signs[batch], (0, batch_size - len(batch))).to(device)
            batch = F.pad(batch, (0, batch_size - len(batch)), value=int(batch[0]))
            logits = model(inputs(samples.features[batch.to(samples.features.device)]))
            losses = row_losses(logits.float(), samples.labels[batch].to(device), uniforms[batch].to(device), labels)
            gradients = torch.autograd.grad((weights * losses).sum(), list(parameters.values()), allow_unused=True)
            for (_, place), gradient in zip(slices(parameters), gradients, strict=True):
                if gradient is not None:
                    row[place] += gradient.reshape(-1)
            del gradients, losses, logits
        sketch[bucket] = row
    return Sketch(sketch, len(samples))


def _batch_shape(bucket_sizes: list[int], limit: int) -> int:
    """One batch size for all buckets, at most `limit`, that wastes little on padding. Constant shapes let the
    backends keep their plans: with bucket-sized batches cuDNN searches anew for each."""
    per_call = 8
    candidates = sorted({min(limit, b) for b in range(8, limit + 8, 8)})
    return min(candidates, key=lambda b: sum(-(-n // b) * (b + per_call) for n in bucket_sizes))
