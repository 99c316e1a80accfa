"""Peak memory of the sketch for ResNet-10, s = 50, beyond the s x m matrix: no more than a training step's.

Both are measured in a process of their own, the same way: one thread, a warm-up that loads every kernel, then the
resident size's high-water mark above the start. malloc is told to hand freed blocks back at once, so that the mark
counts what is in use and not what was."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux's resettable memory mark"),
]

COMMON = """
import gc, json
import torch
from torch.nn import functional as F
from fedforget.data.samples import Normalisation, Samples
from fedforget.federation.cost import PeakMemory
from fedforget.methods.fedaf.sketch import Jacobian, build_sketch, hash_buckets
from fedforget.models import build_model
from fedforget.params import trainable

torch.set_num_threads(1)
ROWS, BATCH, BATCHES, SEED = 50, 64, 2, 1
model = build_model("resnet10", (3, 32, 32), 10, seed=0)
size = sum(p.numel() for p in trainable(model).values())
inputs = Normalisation((0.5,) * 3, (0.25,) * 3)
generator = torch.Generator().manual_seed(0)

# Two buckets with a full batch each: buckets of few samples would be sketched in smaller batches.
candidates = torch.arange(20_000)
buckets = hash_buckets(candidates, ROWS, SEED)
ids = torch.cat([candidates[buckets == b][:BATCH] for b in range(BATCHES)])
features = torch.randint(0, 256, (len(ids), 3, 32, 32), generator=generator, dtype=torch.uint8)
labels = torch.randint(0, 10, (len(ids),), generator=generator)
samples = Samples(features, labels, labels, ids)
few = samples.select(torch.arange(2))
seen = []
model.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))

def report(peak, extra=0):
    print(json.dumps({"peak": peak.bytes, "size": size, "batches": seen, "extra": extra}))
"""

SKETCH = """
build_sketch(Jacobian(model, few, inputs, seed=SEED), rows=2, batch_size=BATCH)
gc.collect(); seen.clear()
with PeakMemory(torch.device("cpu")) as peak:
    sketch = build_sketch(Jacobian(model, samples, inputs, seed=SEED), rows=ROWS, batch_size=BATCH)
report(peak, sketch.bytes)
"""

TRAIN = """
def steps(samples, batch_size):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for batch in torch.arange(len(samples)).split(batch_size):
        loss = F.cross_entropy(model(inputs(samples.features[batch])), samples.labels[batch])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

model.train()
steps(few, 2)
model.zero_grad(set_to_none=True)
gc.collect(); seen.clear()
with PeakMemory(torch.device("cpu")) as peak:
    steps(samples, BATCH)
report(peak)
"""


def measure(script: str) -> dict:
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", COMMON + script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_peak_memory_of_the_sketch_is_no_more_than_a_training_steps():
    sketch, training = measure(SKETCH), measure(TRAIN)
    assert sketch["batches"] == training["batches"] == [64, 64], "the same work on both sides"
    assert sketch["extra"] == 50 * sketch["size"] * 4
    beyond = sketch["peak"] - sketch["extra"]
    print(f"sketch {sketch}, beyond {beyond / 2**20:.1f} MiB; training {training['peak'] / 2**20:.1f} MiB")
    assert beyond > 2**20, "the matrix itself was resident and is counted"
    assert beyond <= training["peak"]
