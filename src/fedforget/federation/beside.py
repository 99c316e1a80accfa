"""How well a model knows the target beside data that nobody trains on: what a client counts. Nothing that it sends
could carry a sample; what the server reads from the counts is in `federation.sight`.

    R     the target, at the clients that ask
    K     their held-out samples of the target's kind: the same share of every pair (true class, trained label)
    U     the other clients' held-out samples

Held-out samples come in two halves: `steer`, which a method may look at as often as it wants to, and `judge`, which
nobody looks at but the check. Clients that hold out the same samples part them in the same way."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from fedforget.data.samples import Samples
from fedforget.federation.client import Client
from fedforget.federation.evaluation import FORWARD_COST, predict
from fedforget.federation.tasks import Reply, Task
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator

Half = Literal["steer", "judge"]
MOST = 2000
"""Of a larger target, and of as many unseen samples of its kind, a random part of this size is looked at."""
KIND = 2
"""Of unseen samples of R's kind, at most so many times as R has, though no fewer than `MIN_KIND`."""
MIN_KIND = 200


def same_kind(target: Samples, held_out: Samples) -> Samples:
    """The most held-out samples in which each pair (true class, trained label) has the share it has in `target`, up to
    a part of a sample: of the scarcest pair all, of the others as many as go with them, rounded down."""
    wanted, available = pairs(target), pairs(held_out)
    kinds, counts = wanted.unique(return_counts=True)
    if not len(kinds):
        return held_out.select(torch.zeros(0, dtype=torch.int64))
    there = [(available == kind).nonzero().squeeze(1) for kind in kinds]
    scale = min(Fraction(len(places), count) for places, count in zip(there, counts.tolist(), strict=True))
    chosen = [places[: math.floor(scale * count)] for places, count in zip(there, counts.tolist(), strict=True)]
    return held_out.select(torch.cat(chosen).sort().values)


def pairs(samples: Samples) -> Tensor:
    """One number for each pair of true class and trained label."""
    return samples.true_labels.cpu() * 1_000_003 + samples.labels.cpu()


def half_of(client: Client, half: Half, seed: int) -> Samples:
    """This half of what the client holds out."""
    held_out = client.held_out if client.held_out is not None else client.samples.select(torch.zeros(0).long())
    order = torch.randperm(len(held_out), generator=derive_generator(seed, "held out"))
    middle = len(held_out) // 2
    return held_out.select((order[:middle] if half == "steer" else order[middle:]).sort().values)


def _some(samples: Samples, seed: int, client: int, what: str, most: int = MOST) -> Samples:
    if len(samples) <= most:
        return samples
    generator = derive_generator(seed, "beside", "client", client, what)
    return samples.select(torch.randperm(len(samples), generator=generator)[:most].sort().values)


@dataclass(frozen=True, kw_only=True)
class CountBeside(Task):
    """At a client that asks: how many samples of R and of K the model gives the label they were trained on."""

    at_target = True

    requests: tuple[ErasureRequest, ...]
    served: tuple[ErasureRequest, ...] = ()
    half: Half = "steer"

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        return self.counted(client, *self.predictions(state, client))

    def predictions(self, state: Mapping[str, Tensor], client: Client) -> tuple[list[Samples], list[Tensor]]:
        """R and K, and the model's logits on both."""
        target = _some(client.target(self.requests, self.served), self.seed, client.index, "target")
        most = min(MOST, max(MIN_KIND, KIND * len(target)))
        kind = _some(same_kind(target, half_of(client, self.half, self.seed)), self.seed, client.index, "kind", most)
        network = client.load(state)
        both = [target, kind]
        return both, [predict(network, s.features, client.normalisation, client.device).cpu() for s in both]

    def counted(self, client: Client, both: Sequence[Samples], logits: Sequence[Tensor]) -> Reply:
        numbers: dict[str, float] = {}
        for name, samples, scores in zip(("target", "kind"), both, logits, strict=True):
            hits = int((scores.argmax(1) == samples.labels.cpu()).sum()) if len(samples) else 0
            numbers |= {f"{name}/hits": float(hits), f"{name}/count": float(len(samples))}
        labels = torch.bincount(both[0].labels.cpu(), minlength=client.classes)
        numbers |= {f"label/{label}": float(count) for label, count in enumerate(labels.tolist())}
        return Reply(client.index, numbers=numbers, gradient_evaluations=FORWARD_COST * sum(map(len, both)))


@dataclass(frozen=True, kw_only=True)
class CountElsewhere(Task):
    """At a client that did not ask: how many held-out samples of each label the model knows, of `most` at the most."""

    most: int
    half: Half = "steer"

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        held = half_of(client, self.half, self.seed)
        if not len(held):
            return Reply(client.index)
        # Clients that hold out the same samples, as the test data of an embedded run, look at different ones of them.
        order = torch.randperm(len(held), generator=derive_generator(self.seed, "beside", "elsewhere"))
        order = order.roll(-(client.index * self.most % len(held)))
        samples = held.select(order[: self.most].sort().values)
        labels = samples.labels.cpu()
        logits = predict(client.load(state), samples.features, client.normalisation, client.device).cpu()
        right = torch.bincount(labels[logits.argmax(1) == labels], minlength=client.classes).tolist()
        there = torch.bincount(labels, minlength=client.classes).tolist()
        numbers = {f"hits/{label}": float(count) for label, count in enumerate(right)}
        numbers |= {f"count/{label}": float(count) for label, count in enumerate(there)}
        numbers |= {HELD: fingerprint(held.ids), HELD_SIZE: float(len(held))}
        return Reply(client.index, numbers=numbers, gradient_evaluations=FORWARD_COST * len(samples))


HELD, HELD_SIZE = "held", "held/size"
"""Which samples a client holds out, without telling them, and how many they are."""


def fingerprint(ids: Tensor) -> float:
    """48 bits of the SHA-256 of the sorted ids: as a number it is exact, and tells nothing of them."""
    data = ids.cpu().sort().values.to(torch.int64).numpy().tobytes()
    return float(int.from_bytes(hashlib.sha256(data).digest()[:6], "big"))
