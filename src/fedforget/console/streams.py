"""Live progress: server-sent events. One look at the ledger for each watched request, however many people watch it."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.concurrency import run_in_threadpool

from fedforget.console.problems import DeniedError
from fedforget.errors import FedForgetError
from fedforget.ledger.book import Ledger
from fedforget.ledger.states import AT_WORK, CLOSED

EVERY_SECONDS = 0.5
QUIET_SECONDS = 15.0
"""After so long without news a comment is sent, so that nobody in between takes the connection for dead."""


class Streams:
    """Who watches what. `close` ends them all, so that a server can stop."""

    def __init__(self, ledger: Ledger, per_account: int) -> None:
        self.ledger, self.per_account = ledger, per_account
        self._open: Counter[str] = Counter()
        self._seen: dict[str, tuple[float, str]] = {}
        """By request: when somebody last looked, and what there was."""
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def check(self, account: str) -> None:
        """Each stream holds a connection: nobody gets them all."""
        if self._open[account] >= self.per_account:
            raise DeniedError(429, "Too many pages watch at once; close some.", {"retry-after": "5"})

    async def watch(
        self, request: str, account: str, still_allowed: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[str]:
        """The request's state and progress, now and whenever they change, until it is settled."""
        last, told = "", time.monotonic()
        self._open[account] += 1
        try:
            while not self._closed:
                news = await self._look(request)
                if news != last:
                    last, told = news, time.monotonic()
                    yield f"data: {news}\n\n"
                    if json.loads(news)["settled"]:
                        return
                elif time.monotonic() - told > QUIET_SECONDS:
                    if not await still_allowed():
                        return
                    told = time.monotonic()
                    yield ": still here\n\n"
                await asyncio.sleep(EVERY_SECONDS)
        finally:
            self._open -= Counter([account])  # without those who watch nothing more
            self._seen.pop(request, None)

    async def _look(self, request: str) -> str:
        """How far it is, or was a moment ago, where somebody else has looked or is looking."""
        then, seen = self._seen.get(request, (-math.inf, ""))
        if time.monotonic() - then < EVERY_SECONDS:
            return seen
        self._seen[request] = (time.monotonic(), seen)
        try:
            seen = await run_in_threadpool(self._read, request)
        except FedForgetError:  # a busy database answers the next time
            return seen
        self._seen[request] = (time.monotonic(), seen)
        return seen

    def _read(self, id: str) -> str:
        request = self.ledger.requests.get(id)
        progress = self.ledger.work.progress([id]).get(id) if request.state in AT_WORK else None
        return json.dumps(
            {
                "state": request.state,
                "reason": request.reason,
                "stage": None if progress is None else progress.stage,
                "fraction": None if progress is None else progress.fraction,
                "settled": request.state in CLOSED,
            }
        )
