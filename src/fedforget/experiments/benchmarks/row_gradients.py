"""The sketch against per-sample gradients: two ways to the same J^, over the same samples with the data's labels.

sketch       one backward pass for each bucket batch (`methods.fedaf.sketch`)
torch.func   every sample's gradient by vmap(grad), a batch at a time, then added to its bucket"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from fedforget.data.samples import Normalisation, Samples
from fedforget.experiments.benchmarks.worlds import network, noise
from fedforget.methods.fedaf.sketch import build_sketch, hash_buckets, hash_signs
from fedforget.params import trainable, weight_count

Inputs = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class RowWorld:
    """A network and how many samples are sketched into how many rows; `batch` samples go through it at once."""

    name: str
    shape: tuple[int, ...]
    samples: int
    rows: int
    batch: int = 64
    device: str = "cpu"
    threads: int = 1

    def made(self) -> tuple[Samples, nn.Module, Inputs]:
        data = noise(self.shape, self.samples)
        model = network(self.name, self.shape).to(self.device).eval()
        if torch.device(self.device).type == "cuda":
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        samples = data.train.with_features(data.train.features.to(self.device))
        normalise: Normalisation = data.normalisation
        return samples, model, lambda features: normalise(features.to(self.device))


def by_sketch(samples: Samples, model: nn.Module, inputs: Inputs, world: RowWorld) -> Tensor:
    return build_sketch(
        model, samples, inputs, rows=world.rows, seed=0, labels="data", batch_size=world.batch
    ).rows  # fmt: skip


def by_torch_func(samples: Samples, model: nn.Module, inputs: Inputs, world: RowWorld) -> Tensor:
    """J^ = S J, with J's rows a batch at a time."""
    parameters = {name: p.detach() for name, p in trainable(model).items()}
    buffers = dict(model.named_buffers())

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(model, (parameters, buffers), (x[None],))
        return F.cross_entropy(logits, y[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))
    sketch = torch.zeros(world.rows, weight_count(model), device=world.device)
    buckets = hash_buckets(samples.ids, world.rows, 0).to(world.device)
    signs = hash_signs(samples.ids, 0).to(world.device)
    for batch in torch.arange(len(samples)).split(world.batch):
        place = batch.to(world.device)
        rows = each(parameters, inputs(samples.features[place]), samples.labels[batch].to(world.device))
        start = 0
        for row in rows.values():
            flat = row.reshape(len(batch), -1)
            sketch[:, start : start + flat.shape[1]].index_add_(0, buckets[place], signs[place, None] * flat)
            start += flat.shape[1]
    return sketch


WAYS: dict[str, Callable[[Samples, nn.Module, Inputs, RowWorld], Tensor]] = {
    "sketch": by_sketch,
    "torch.func": by_torch_func,
}
