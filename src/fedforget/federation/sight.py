"""What the server reads from the clients' counts (`federation.beside`): how well a model knows R, K and U, and how far
that may be off."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fedforget.errors import ClientError
from fedforget.federation.beside import HELD, HELD_SIZE, CountBeside, CountElsewhere
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import CountSamples, Reply
from fedforget.params import State
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator

ELSEWHERE = 1000
"""So many unseen samples the clients that did not ask look at together."""
LEARNING = 0.2
"""The exponent of a learning curve."""
MOST_CLIENTS = 10
"""Of more clients that did not ask, so many are drawn to say how well they are served."""


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


def difference_error(count: int) -> float:
    """The standard error of the difference between two models' shares of the same samples: sqrt(d) / n where d of n
    change sides, and two trainings of one network differ in about a fifth."""
    return math.sqrt(0.2 / count)


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
    elsewhere, counted = _Sums(), dict[float, float]()
    most = -(-ELSEWHERE // max(1, len(others)))
    there = CountElsewhere(seed=schedule.seed, threads=schedule.threads, most=most, half=task.half)
    for reply in federation.ask(there, state, others) if others else ():
        held, known = reply.numbers.get(HELD, -1.0 - reply.client), _Sums()
        known.add(reply)
        count = sum(known.get(f"count/{label}", 0.0) for label in classes)
        # What several clients hold in common counts once.
        if held not in counted or counted[held] < reply.numbers.get(HELD_SIZE, 0.0):
            counted[held] = counted.get(held, 0.0) + count
            elsewhere.add(reply)
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

    def add(self, reply: Reply) -> None:
        numbers = reply.numbers
        for name, count in numbers.items():
            hits = numbers.get(name.replace("count", "hits"), 0.0) if "count" in name else 0.0
            if not 0 <= hits <= count:
                raise ClientError(reply.client, "sent counts of samples that cannot be.")
            self[name] = self.get(name, 0.0) + count

    def share(self, hits: str, count: str) -> Share:
        return Share(int(self.get(hits, 0)), int(self.get(count, 0)))


def _weighted(areas: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """The mean over clients, with the sizes of their targets as weights, and its error."""
    total = sum(weight for weight, _, _ in areas)
    mean = sum(weight * area for weight, area, _ in areas) / total
    return mean, math.sqrt(sum((weight * error) ** 2 for weight, _, error in areas)) / total
