"""Rate limits: a bucket of permits for each visitor, refilled steadily. In memory, for this console alone."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

MOST_KEYS = 50_000
"""A stranger with many addresses fills no more memory than this."""


class RateLimit:
    """`per_minute` permits for each key; unused ones add up to as many.

    >>> limit = RateLimit(2, now=lambda: 0.0)
    >>> [limit.take("ann") for _ in range(3)]
    [0.0, 0.0, 30.0]
    """

    def __init__(self, per_minute: float, now: Callable[[], float] = time.monotonic) -> None:
        self.capacity, self._per_second, self._now = max(1.0, float(per_minute)), per_minute / 60.0, now
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str) -> float:
        """Take a permit: 0, or how many seconds to wait for the next one (and none was taken)."""
        now = self._now()
        with self._lock:
            left, then = self._buckets.pop(key, (self.capacity, now))
            left = min(self.capacity, left + (now - then) * self._per_second)
            taken = left >= 1.0
            self._buckets[key] = (left - 1.0 if taken else left, now)
            if len(self._buckets) > MOST_KEYS:
                self._buckets.popitem(last=False)
        return 0.0 if taken else (1.0 - left) / self._per_second
