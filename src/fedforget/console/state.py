"""What a running console holds: the ledger, its settings, the limits, and the processes beside it."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from fedforget.console.monitoring import Meters
from fedforget.console.oidc import Provider
from fedforget.console.processes import DemoProcess, WorkerProcess
from fedforget.console.settings import ConsoleSettings
from fedforget.ledger.book import Ledger
from fedforget.ledger.schema import Federation

Value = TypeVar("Value")
MOST_KEYS = 50_000
"""A stranger with many addresses fills no more memory than this."""
GLANCE_SECONDS = 1.0
THREADS = 8
"""For what takes a while, and for reading where the database is elsewhere."""
WRITERS = 4
"""Threads for what changes something."""
HASHERS = 2
"""Threads for argon2, which is slow on purpose, and takes 64 MB each time."""


class RateLimit:
    """A bucket of `per_minute` permits for each key, refilled steadily. In memory, for this console alone.

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


class Denials:
    """Writes refusals down, up to a limit a minute for each visitor. The rest are counted, and the count is written
    with the next one. A stranger who knocks without end does not fill the ledger."""

    def __init__(self, ledger: Ledger, per_minute: float) -> None:
        self.ledger, self.limit = ledger, RateLimit(per_minute)
        self._unrecorded = 0
        self._lock = threading.Lock()

    def record(self, key: str, who: str, said: dict[str, Any], request: str | None = None) -> float:
        """0 when it was written down; else how many seconds this visitor should wait."""
        wait = self.limit.take(key)
        with self._lock:
            if wait:
                self._unrecorded += 1
                return wait
            missed, self._unrecorded = self._unrecorded, 0
        body = {**said, "unrecorded_before": missed} if missed else said
        self.ledger.trail.append(who, "denied", body, request)
        return 0.0


class Glance:
    """What many pages show of the whole ledger: figures, and what the federations hold. Read once a second at most;
    `forget` after a change that its maker will look for."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._kept: dict[str, tuple[float, Any]] = {}

    def figures(self) -> dict[str, Any]:
        return self._recent("figures", self.ledger.trail.figures)

    def federations(self) -> list[Federation]:
        found = self._recent("federations", self.ledger.federations.all)
        return found or self.ledger.federations.all()  # who waits for the first one looks at each page

    def forget(self) -> None:
        self._kept.clear()

    def _recent(self, name: str, read: Callable[[], Value]) -> Value:
        then, found = self._kept.get(name, (float("-inf"), None))
        if time.monotonic() - then < GLANCE_SECONDS:
            return found
        fresh = read()
        self._kept[name] = (time.monotonic(), fresh)
        return fresh


class Console:
    """One for each app; handlers reach it through their `Visitor`."""

    def __init__(self, ledger: Ledger, settings: ConsoleSettings, *, with_worker: bool = False) -> None:
        self.ledger, self.settings = ledger, settings
        limits = settings.limits
        self.denials = Denials(ledger, limits.denials_per_minute)
        self.sign_in_limit = RateLimit(limits.sign_ins_per_minute)
        self.submission_limit = RateLimit(limits.submissions_per_minute)
        self.provider = Provider(settings.oidc) if settings.oidc is not None else None
        self.writers = CapacityLimiter(WRITERS)
        self.hashers = CapacityLimiter(HASHERS)
        self.checking = threading.Lock()
        """One check of the whole ledger at a time: it reads everything."""
        self.glance = Glance(ledger)
        self.meters = Meters()
        self.worker = WorkerProcess(ledger) if with_worker else None
        self.demo = DemoProcess(ledger)

    async def read(self, work: Callable[[], Value]) -> Value:
        """Something short that only reads. SQLite's readers never wait, and threads that fight for the interpreter took
        twice the time and twenty times the latency: so it runs right here. A database elsewhere is waited for in a
        thread."""
        return work() if self.ledger.database.is_sqlite else await anyio.to_thread.run_sync(work)

    async def write(self, work: Callable[[], Value]) -> Value:
        """Something that changes the ledger: it may wait for its turn and for the disk, in nobody's way."""
        return await anyio.to_thread.run_sync(work, limiter=self.writers)

    async def compute(self, work: Callable[[], Value]) -> Value:
        """Something that takes a while: drawing, checking everything."""
        return await anyio.to_thread.run_sync(work)

    def start(self) -> None:
        if self.worker is not None:
            self.worker.start()

    def stop(self) -> None:
        """Ends the processes beside it; waits for them."""
        if self.worker is not None:
            self.worker.stop()
        self.demo.stop()
