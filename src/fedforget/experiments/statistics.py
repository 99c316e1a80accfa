"""Paired differences with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedforget.audit.student import student_quantile
from fedforget.experiments.cells import mean_and_deviation


class Interval(NamedTuple):
    """A mean with its confidence interval; the bounds are None where one value alone says nothing of the spread."""

    mean: float
    low: float | None
    high: float | None
    pairs: int


def paired_difference(ours: Sequence[float], theirs: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean of ours - theirs over pairs, with Student's interval: mean +- t_{n-1} s / sqrt(n).

    >>> paired_difference([1.0, 2.0, 3.0], [0.0, 1.0, 2.0])
    Interval(mean=1.0, low=1.0, high=1.0, pairs=3)
    """
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean, deviation = mean_and_deviation(differences)
    if len(differences) < 2:
        return Interval(mean, None, None, len(differences))
    half = student_quantile(0.5 + confidence / 2, len(differences) - 1) * deviation / math.sqrt(len(differences))
    return Interval(mean, mean - half, mean + half, len(differences))
