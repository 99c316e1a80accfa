"""Paired differences with confidence intervals, without scipy: a bare machine has none."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

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


@functools.cache
def student_quantile(probability: float, freedom: int) -> float:
    """The value that Student's t with `freedom` degrees of freedom stays below with `probability` (above one half).

    >>> round(student_quantile(0.975, 9), 3)
    2.262
    """
    low, high = 0.0, 1.0
    while student_distribution(high, freedom) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if student_distribution(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_distribution(t: float, freedom: int) -> float:
    """P(T <= t) for t >= 0, by the finite sums that hold for whole degrees of freedom (Abramowitz and Stegun 26.7.3-4):
    with a = atan(t / sqrt(n)), P(|T| <= t) is, for odd n, 2/pi (a + sin a (cos a + 2/3 cos^3 a + ...)), and for even n,
    sin a (1 + 1/2 cos^2 a + ...)."""
    theta = math.atan2(t, math.sqrt(freedom))
    cosine, sine = math.cos(theta), math.sin(theta)
    odd = freedom % 2 == 1
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range((freedom - 1) // 2 if odd else freedom // 2):
        total += term
        term *= cosine * cosine * ((2 * k + 2) / (2 * k + 3) if odd else (2 * k + 1) / (2 * k + 2))
    inside = (2 / math.pi) * (theta + sine * total) if odd else sine * total
    return 0.5 + inside / 2
