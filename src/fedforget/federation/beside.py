"""How well a model knows the target beside data that nobody trains on: counts, and nothing that could carry a sample.

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
from typing import Any, Literal

import torch
from torch import Tensor

from fedforget.data.samples import Samples
from fedforget.errors import ClientError
from fedforget.federation.client import Client
from fedforget.federation.evaluation import FORWARD_COST, predict
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import CountSamples, Reply, Task
from fedforget.params import State
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator

Half = Literal["steer", "judge"]
MOST = 2000
"""Of a larger target, and of as many unseen samples of its kind, a random part of this size is looked at."""
ELSEWHERE = 1000
"""So many unseen samples the clients that did not ask look at together."""
KIND = 2
"""Of unseen samples of R's kind, at most so many times as R has, though no fewer than `MIN_KIND`."""
MIN_KIND = 200
LEARNING = 0.2
"""The exponent of a learning curve."""
MOST_CLIENTS = 10
"""Of more clients that did not ask, so many are drawn to say how well they are served."""


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


@dataclass(frozen=True)
class Share:
    """So many hits among so many samples."""

    hits: int = 0
    count: int = 0

    @property
    def value(self) -> float:
        return self.hits / self.count

    @property
    def error(self) -> float:
        """After two hits and two misses are added (Agresti and Coull 1998), so that it is never 0."""
        share = (self.hits + 2) / (self.count + 4)
        return math.sqrt(share * (1 - share) / (self.count + 4))


@dataclass(frozen=True)
class Left:
    """How many samples of the federation are the target's, and how many are left, at so many clients."""

    target: int
    kept: int
    clients: int = 1

    @classmethod
    def count(
        cls,
        federation: Federation,
        requests: Sequence[ErasureRequest],
        served: Sequence[ErasureRequest],
        schedule: Schedule,
    ) -> Left:
        task = CountSamples(seed=schedule.seed, threads=schedule.threads, exclude=(*served, *requests))
        kept = sum(int(reply.numbers["samples"]) for reply in federation.ask(task, {}))
        target = sum(size.target for size in federation.check(requests).values())
        return cls(target, kept, len(federation.clients))

    def steps(self, schedule: Schedule) -> float:
        """How many a client takes in a training without the target, on average."""
        passes = schedule.rounds * schedule.epochs * schedule.participation
        return max(1.0, self.kept * passes / (self.clients * schedule.batch_size))

    def loss(self, accuracy: Share) -> float:
        """How much of its accuracy a model loses since it learns from fewer samples, whatever they are: its share of
        errors grows with n^-`LEARNING`, as those of image classifiers do (Hestness et al. 2017, arXiv 1712.00409).

        >>> round(Left(target=200, kept=1800).loss(Share(400, 1000)), 3)
        0.013
        """
        if not accuracy.count or not self.kept:
            return 0.0
        return float((1 - accuracy.value) * ((1 + self.target / self.kept) ** LEARNING - 1))


def difference_error(one: Share, other: Share) -> float:
    """The standard error of the difference between two models' shares of the same samples: sqrt(d) / n where d of n
    change sides. Two trainings of one network differ in about a fifth, and in no more than both of them miss together
    (one is added, so that it is never 0).

    >>> round(difference_error(Share(400, 1000), Share(390, 1000)), 4)
    0.0141
    >>> round(difference_error(Share(950, 1000), Share(931, 1000)), 4)
    0.011
    """
    changed = min(0.2 * one.count, 2 * one.count - one.hits - other.hits + 1)
    return math.sqrt(changed) / one.count


@dataclass(frozen=True)
class Sight:
    """What a model says of R, K and U: shares that get the label they were trained on."""

    target: Share
    kind: Share
    labels: tuple[int, ...]
    """How many samples of R were trained with each label."""
    elsewhere: tuple[Share, ...]
    """U, by label."""
    area: tuple[float, float] | None = None
    """The AUC of the loss, R against K, and its error; None where nobody attacked."""

    @property
    def accuracy(self) -> Share:
        """On U."""
        return Share(sum(share.hits for share in self.elsewhere), sum(share.count for share in self.elsewhere))

    @property
    def known(self) -> float | None:
        """The share of U, where each label counts as often as it does in R. None where a label of R is not in U."""
        shares = [(n, share) for n, share in zip(self.labels, self.elsewhere, strict=True) if n]
        if not shares or not all(share.count for _, share in shares):
            return None
        return sum(n * share.value for n, share in shares) / sum(n for n, _ in shares)

    @property
    def known_error(self) -> float:
        parts = [n * share.error for n, share in zip(self.labels, self.elsewhere, strict=True) if n and share.count]
        return math.hypot(*parts) / sum(self.labels) if parts else 0.0

    @property
    def gap(self) -> float | None:
        """How much better R is known than K."""
        return self.target.value - self.kind.value if self.target.count and self.kind.count else None

    @property
    def gap_error(self) -> float:
        return math.hypot(self.target.error, self.kind.error)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Sight:
        """What `asdict` gave."""
        area = values["area"]
        return cls(
            Share(**values["target"]), Share(**values["kind"]), tuple(values["labels"]),
            tuple(Share(**share) for share in values["elsewhere"]), None if area is None else (area[0], area[1]),
        )  # fmt: skip


def look(
    federation: Federation,
    state: State,
    task: CountBeside,
    schedule: Schedule,
) -> Sight:
    """Ask the clients that ask with `task`, and some of the others, how they are served."""
    exclude = (*task.served, *task.requests)
    askers = sorted({request.client for request in task.requests})
    gone = {request.client for request in exclude if request.kind == "client"}
    others = [client for client in federation.clients if client not in gone and client not in askers]
    if len(others) > MOST_CLIENTS:
        order = torch.randperm(len(others), generator=derive_generator(schedule.seed, "beside", "others"))
        others = [others[place] for place in order[:MOST_CLIENTS].tolist()]
    asked, areas = _Sums(), []
    replies = list(federation.ask(task, state, askers))
    for reply in replies:
        asked.add(reply)
        if "area" in reply.numbers:
            areas.append((reply.numbers["target/count"], reply.numbers["area"], reply.numbers["area/error"]))
    classes = range(sum(name.startswith("label/") for name in asked))  # an attached app's server does not know them
    elsewhere, alike = _Sums(), dict[float, list[Reply]]()
    most = -(-ELSEWHERE // max(1, len(others)))
    there = CountElsewhere(seed=schedule.seed, threads=schedule.threads, most=most, half=task.half)
    for reply in federation.ask(there, state, others) if others else ():
        alike.setdefault(reply.numbers.get(HELD, -1.0 - reply.client), []).append(reply)
    for sharers in alike.values():
        counts = [sum(reply.numbers.get(f"count/{label}", 0.0) for label in classes) for reply in sharers]
        size = max(reply.numbers.get(HELD_SIZE, 0.0) for reply in sharers)
        # What several clients hold in common counts once, and every one of them is heard.
        part = min(1.0, size / max(1.0, sum(counts))) if len(sharers) > 1 else 1.0
        for reply, count in zip(sharers, counts, strict=True):
            if count > most:
                raise _cannot_be(reply)
            elsewhere.add(reply, part)
    return Sight(
        target=asked.share("target/hits", "target/count"),
        kind=asked.share("kind/hits", "kind/count"),
        labels=tuple(int(asked.get(f"label/{label}", 0)) for label in classes),
        elsewhere=tuple(elsewhere.share(f"hits/{label}", f"count/{label}") for label in classes),
        area=_weighted(areas) if areas and len(areas) == len(replies) else None,
    )


class _Sums(dict[str, float]):
    """The sums of several clients' counts. Those that ask and the others are added up apart: what is known elsewhere is
    for nobody to say who asks."""

    def add(self, reply: Reply, part: float = 1.0) -> None:
        numbers = reply.numbers
        for name, count in numbers.items():
            hits = numbers.get(name.replace("count", "hits"), 0.0) if "count" in name else 0.0
            if not 0 <= hits <= count:
                raise _cannot_be(reply)
            self[name] = self.get(name, 0.0) + part * count

    def share(self, hits: str, count: str) -> Share:
        return Share(round(self.get(hits, 0)), round(self.get(count, 0)))


def _cannot_be(reply: Reply) -> ClientError:
    return ClientError(reply.client, "sent counts of samples that cannot be.")


def _weighted(areas: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The mean over clients, with the sizes of their targets as weights, and its error."""
    total = sum(weight for weight, _, _ in areas)
    mean = sum(weight * area for weight, area, _ in areas) / total
    return mean, math.sqrt(sum((weight * error) ** 2 for weight, _, error in areas)) / total
