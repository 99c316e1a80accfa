"""Student's t, without scipy: a bare machine has none."""

from __future__ import annotations

import functools
import math


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
