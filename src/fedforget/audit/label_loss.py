"""How easily a model gives a backdoor's label: to R, and to unseen samples of R's true classes without the trigger.

A sample of R is of class c and was trained with the label y. The loss -log p_y of a model that never saw R is high, but
how high depends on how sure the model is of everything: one that was trained for a shorter time has a lower one on R,
and on any other sample of class c just as well. What a model remembers is the difference

    mean over R of  ( mean over unseen samples of class c of -log p_y ) + log p_y(x)

which is above 0 where R gets y more easily than its class does. The unseen samples are those of clients that did not
ask: what the asking client holds out of a poisoned class carries the trigger too, and a backdoor spreads to that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.audit.case import Case
from fedforget.audit.verdict import Reading
from fedforget.federation.client import Client
from fedforget.federation.evaluation import FORWARD_COST, predict
from fedforget.federation.rounds import participants
from fedforget.federation.tasks import Reply, TargetTask, Task
from fedforget.params import State

Pair = tuple[int, int]
"""(true class, trained label)."""


@dataclass(frozen=True, kw_only=True)
class TargetPairs(TargetTask):
    """At a client that asks: how many samples of R there are of each pair, and the sum of their losses."""

    at_target = True

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        target = client.target(self.requests, self.served)
        logits = predict(client.load(state), target.features, client.normalisation, client.device).cpu()
        labels, true = target.labels.cpu(), target.true_labels.cpu()
        numbers: dict[str, float] = {}
        for c, y in sorted(set(zip(true.tolist(), labels.tolist(), strict=True))):
            own = (true == c) & (labels == y)
            numbers |= _sums((c, y), F.cross_entropy(logits[own], labels[own], reduction="none"))
        return Reply(client.index, numbers=numbers, gradient_evaluations=FORWARD_COST * len(target))


@dataclass(frozen=True, kw_only=True)
class LabelLoss(Task):
    """At a client that did not ask: the same sums over its clean held-out samples of each class c, for the label y."""

    pairs: tuple[int, ...]
    """c and y of each pair, one after another."""

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        held_out = client.held_out
        if held_out is None:
            return Reply(client.index)
        clean = held_out.select((held_out.labels == held_out.true_labels).nonzero().squeeze(1))
        classes = clean.true_labels.cpu()
        looked_at = torch.isin(classes, torch.tensor(self.pairs[::2]))
        clean, classes = clean.select(looked_at.nonzero().squeeze(1)), classes[looked_at]
        logits = predict(client.load(state), clean.features, client.normalisation, client.device).cpu()
        numbers: dict[str, float] = {}
        for c, y in zip(self.pairs[::2], self.pairs[1::2], strict=True):
            own = logits[classes == c] if len(classes) else logits
            if len(own):
                numbers |= _sums((c, y), F.cross_entropy(own, torch.full((len(own),), y), reduction="none"))
        return Reply(client.index, numbers=numbers, gradient_evaluations=FORWARD_COST * len(clean))


def _sums(pair: Pair, losses: Tensor) -> dict[str, float]:
    name, losses = f"{pair[0]}/{pair[1]}", losses.double()
    return {
        f"count/{name}": float(len(losses)),
        f"loss/{name}": float(losses.sum()),
        f"square/{name}": float(losses.square().sum()),
    }


def label_loss_gap(case: Case, state: State) -> Reading | None:
    """The difference above, and its error if the losses on R scattered as those on unseen samples do. None where no
    other client holds out a clean sample of each class that R has."""
    mine = _Sums(case.federation.ask(case.about(TargetPairs), state, case.askers))
    others = [client for client in participants(case.federation, case.exclude) if client not in case.askers]
    if not others or not mine.pairs:
        return None
    pairs = tuple(number for pair in mine.pairs for number in pair)
    asked = LabelLoss(seed=case.schedule.seed, threads=case.schedule.threads, pairs=pairs)
    theirs = _Sums(case.federation.ask(asked, state, others))
    if any(theirs.count(pair) < 2 for pair in mine.pairs):
        return None
    size = sum(map(mine.count, mine.pairs))
    value = sum(mine.count(pair) * (theirs.mean(pair) - mine.mean(pair)) for pair in mine.pairs) / size
    errors = [
        mine.count(pair) * math.sqrt(theirs.variance(pair) * (1 / mine.count(pair) + 1 / theirs.count(pair)))
        for pair in mine.pairs
    ]
    return Reading(value, math.hypot(*errors) / size)


class _Sums:
    """The clients' sums, added up."""

    def __init__(self, replies: Iterable[Reply]) -> None:
        self._sums: dict[str, float] = {}
        for reply in replies:
            for name, number in reply.numbers.items():
                self._sums[name] = self._sums.get(name, 0.0) + number
        found = (name.split("/")[1:] for name in self._sums if name.startswith("count/"))
        self.pairs: list[Pair] = sorted((int(c), int(y)) for c, y in found)

    def count(self, pair: Pair) -> float:
        return self._sums.get(f"count/{pair[0]}/{pair[1]}", 0.0)

    def mean(self, pair: Pair) -> float:
        return self._sums[f"loss/{pair[0]}/{pair[1]}"] / self.count(pair)

    def variance(self, pair: Pair) -> float:
        square = self._sums[f"square/{pair[0]}/{pair[1]}"] / self.count(pair)
        return max(0.0, square - self.mean(pair) ** 2) * self.count(pair) / (self.count(pair) - 1)
