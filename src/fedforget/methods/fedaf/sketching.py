"""How a client makes a sketch: of which of its samples, and for whom.

A sketch of one's own never leaves the client. A part of the federation's does, so that its rows are sums over several
samples (`BuildSketch`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.federation.tasks import Reply, TargetTask
from fedforget.methods.fedaf.extensions.planning import only_from, plan_sketch
from fedforget.methods.fedaf.extensions.principal import principal_rows
from fedforget.methods.fedaf.settings import FullSettings
from fedforget.methods.fedaf.sketch import Jacobian, Sketch, build_sketch
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, derive_seed

SKETCH_KEY = "fedaf.sketch"
"""Under this name a federation's merged sketch travels beside the model."""
SAMPLES_PER_ROW = 8
"""Rows that leave a client are sums over at least so many samples on average."""


@dataclass(frozen=True, kw_only=True)
class SketchTask(TargetTask):
    """Base of the tasks that need a sketch."""

    settings: FullSettings


@dataclass(frozen=True, kw_only=True)
class BuildSketch(SketchTask):
    """A client's part of the federation's sketch. All clients hash with the same seed, so the parts add up."""

    returns = "tensors"

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        client.load(state)
        if sketchable(client, self) == 0:
            return Reply(client.index, numbers={"count": 0.0})
        with only_from(client.model, self.settings.first_moved):
            sketch = sketch_at_client(client, self)
        return Reply(
            client.index,
            tensors={SKETCH_KEY: F.pad(sketch.rows, (0, 0, 0, int(self.settings.sketch_rows) - len(sketch.rows)))},
            numbers={"count": float(sketch.count)},
            gradient_evaluations=float(sketch.count),
            stored_bytes=sketch.bytes,
        )


def left_out(task: SketchTask) -> tuple[Sequence[ErasureRequest], Sequence[ErasureRequest]]:
    """(what the preserver may not look at, what it may though it is being forgotten): it may look at D', or at all of
    D_k (the paper), never at what was erased before."""
    if task.settings.sketch_data == "all":
        return task.served, task.requests
    return (*task.served, *task.requests), ()


def sketchable(client: Client, task: SketchTask) -> int:
    """How many samples the preserver may look at."""
    return len(client.positions(*left_out(task))[1])


def sketch_samples(client: Client, task: SketchTask) -> Samples:
    """What the preserver looks at: all that it may, or a seeded random part of it."""
    limit = task.settings.sketch_samples

    def part(n: int) -> Tensor:
        if limit is None or int(limit) >= n:
            return torch.arange(n)
        generator = derive_generator(task.seed, "sketch", "client", client.index, "subsample")
        return torch.randperm(n, generator=generator)[: int(limit)].sort().values

    found = client.retained(*left_out(task), part)
    if len(found) == 0:
        raise InputError(
            f"Client {client.index} keeps no data that the preserver could look at; set sketch_scope to federation."
        )
    return found


def sketch_at_client(client: Client, task: SketchTask, seed: int | None = None) -> Sketch:
    """Algorithm 2 (or a PCA in its place) on this client's data, at the weights its model has now. `seed`: that of the
    hashes, if not the one that all clients share."""
    settings = task.settings
    samples = sketch_samples(client, task)
    rows = int(settings.sketch_rows)
    if isinstance(task, BuildSketch):
        # These rows leave the client, and a row over one sample would be that sample's gradient.
        rows = max(1, min(rows, len(samples) // SAMPLES_PER_ROW))
    plan_sketch(client.model, rows, settings.dtype, client.device)
    seed = derive_seed(task.seed, "sketch") if seed is None else seed
    make = principal_rows if settings.preserver == "pca" else partial(build_sketch, batch_size=settings.batch_size)
    j = Jacobian(client.model, samples, client.inputs, settings.sketch_labels, seed)
    return make(j, rows=rows, dtype=settings.dtype)
