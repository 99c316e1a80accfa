"""How near a model is to the oracles beside how near they are to each other, on the server's own test data; for ToW
also by what clients counted on R and D' before.

    ToW                      product over R, D' and test data of 1 - |accuracy - an oracle's|      (arXiv 2406.01257)
    prediction divergence    mean KL(oracle || model) over test samples, nats                (audit.distributions)
    weight distance          ||w - w_k||, Euclidean
    activation distance      mean over test samples x of ||h(x) - h_k(x)||, h what reaches the last linear layer

Each is the mean over the oracles k, and for two oracles the mean over their pairs. They inform and are no part of a
verdict: none of them is about the target alone. Units of networks that started from different weights are not aligned,
so distances of weights and activations mean nothing by themselves; `ratio`, to that between two oracles, says a little.
A model that started where an oracle did may be nearer to it than two oracles are to each other, whatever it remembers.

`class_gaps` are the model's accuracies on each class less the oracles' mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from fedforget.audit.distributions import Accuracies, percentage, prediction_divergence, tow
from fedforget.audit.probe import last_linear_inputs
from fedforget.audit.student import student_quantile
from fedforget.audit.verdict import LEVEL, one_more
from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.federation.evaluation import predict
from fedforget.federation.seam import Federation, thread_count
from fedforget.params import State, distance

MOST = 2000
"""Activations of so many test samples at most are held against each other: those of all would fill the memory."""


@dataclass(frozen=True)
class Look:
    """One model on the test data. No activations: it has no linear layer. No accuracies: R or D' is empty."""

    state: State
    logits: Tensor
    activations: Tensor | None
    accuracies: Accuracies | None


def look_at(
    federation: Federation, state: State, test: Samples, forget: float | None, retain: float | None, threads: int = 1
) -> Look | None:
    """The model's answers on `test`, in one pass; its accuracies on R and D' are known already. None without a test
    sample."""
    if not len(test):
        return None
    with thread_count(threads):
        federation.model.load_state_dict(dict(state))
        logits, activations = _answers(federation, test.features)
    step = math.ceil(len(test) / MOST)
    right = 100.0 * float((logits.argmax(1) == test.true_labels.cpu()).double().mean())
    return Look(
        dict(state),
        logits,
        None if activations is None else activations[::step],
        None if forget is None or retain is None else Accuracies(forget, retain, right),
    )


def _answers(federation: Federation, features: Tensor) -> tuple[Tensor, Tensor | None]:
    """(logits, what reaches the last linear layer)."""
    parts: list[Tensor] = []
    hook = federation.model.register_forward_hook(lambda _module, _args, out: parts.append(out.float().cpu()))
    try:
        place = federation.device
        reached = last_linear_inputs(federation.model, features, lambda x: federation.normalisation(x.to(place)))
    except InputError:  # no linear layer, or one that does not get a row for each sample
        return predict(federation.model, features, federation.normalisation, federation.device).cpu(), None
    finally:
        hook.remove()
    return torch.cat(parts), reached


@dataclass(frozen=True)
class Compared:
    """`to_oracles`: the mean over the oracles. `between_oracles`: the mean over pairs of them. `ratio`: the first over
    the second; None for ToW, which is no distance. None where there is nothing to compare."""

    to_oracles: float | None
    between_oracles: float | None
    ratio: float | None

    @classmethod
    def of(cls, to_oracles: float | None, between: float | None, relative: bool = True) -> Compared:
        to_oracles, between = (v if v is not None and math.isfinite(v) else None for v in (to_oracles, between))
        ratio = to_oracles / between if relative and to_oracles is not None and between else None
        return cls(to_oracles, between, ratio)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def closeness(subject: Look, oracles: Sequence[Look]) -> dict[str, Compared]:
    """Every figure of the list above."""
    try:
        found = prediction_divergence(subject.logits, torch.stack([oracle.logits for oracle in oracles]))
    except InputError:  # a model that diverged has no probabilities
        found = None
    return {
        "ToW": _mean(_tow, subject, oracles, relative=False),
        "prediction divergence": Compared.of(found and found.to_oracle, found and found.between_oracles),
        "weight distance": _mean(lambda a, b: distance(a.state, b.state), subject, oracles),
        "activation distance": _mean(_activation_distance, subject, oracles),
    }


def _tow(one: Look, other: Look) -> float | None:
    return None if one.accuracies is None or other.accuracies is None else tow(one.accuracies, other.accuracies)


def _activation_distance(one: Look, other: Look) -> float | None:
    if one.activations is None or other.activations is None:
        return None
    return float((one.activations - other.activations).norm(dim=1).mean())


def _mean(
    between: Callable[[Look, Look], float | None], subject: Look, oracles: Sequence[Look], relative: bool = True
) -> Compared:
    pairs = ((one, other) for place, one in enumerate(oracles) for other in oracles[:place])
    return Compared.of(
        _average(between(subject, oracle) for oracle in oracles),
        _average(between(one, other) for one, other in pairs),
        relative,
    )


def _average(values: Iterator[float | None]) -> float | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(found) else None


@dataclass(frozen=True)
class ClassGap:
    """The model's accuracy on one class less the oracles' mean, in points. One more oracle's gap lies within +- half
    the width of [low, high] 95 % of the time (`verdict.one_more`): where 0 is outside, the model differs from them.
    Not corrected for the number of classes."""

    gap: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def class_gaps(subject: Look, oracles: Sequence[Look], test: Samples, classes: int) -> list[ClassGap | None]:
    """One for each class, by true label; None where there are too few test samples of it, or fewer than two oracles.

        gap +- t sqrt((1 + 1/N) (s^2 + e^2))

    with s the deviation of the oracles' N accuracies, e the binomial error of one, and t Student's quantile."""
    true = test.true_labels.cpu()
    found: list[ClassGap | None] = []
    for label in range(classes):
        own = true == label
        right = [int((look.logits[own].argmax(1) == label).sum()) for look in (subject, *oracles)]
        shares = [share for hits in right if (share := percentage(hits, int(own.sum()))) is not None]
        if len(shares) < 3:
            found.append(None)
            continue
        mine, *theirs = shares
        mean, spread, freedom = one_more(theirs, mine.error)
        reach = student_quantile(1.0 - LEVEL, freedom) * spread
        gap = mine.value - mean
        found.append(ClassGap(gap, gap - reach, gap + reach))
    return found


def compare_with_oracles(
    looks: Mapping[str, Look | None], oracles: Sequence[Look | None], test: Samples, classes: int
) -> dict[str, dict[str, Any]]:
    """`closeness` and `class_gaps` of every model that was looked at, for audit.json."""
    theirs = [look for look in oracles if look is not None]
    found: dict[str, dict[str, Any]] = {}
    for name, look in looks.items():
        if look is not None and theirs:
            gaps = class_gaps(look, theirs, test, classes)
            found[name] = {
                "closeness": {what: figure.to_json() for what, figure in closeness(look, theirs).items()},
                "class_gaps": [None if gap is None else gap.to_json() for gap in gaps],
            }
    return found
