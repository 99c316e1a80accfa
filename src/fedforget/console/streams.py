"""Live progress: server-sent events. One look at the ledger for each watched request, however many people watch it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool

from fedforget.console.problems import DeniedError
from fedforget.errors import FedForgetError
from fedforget.ledger.book import Ledger
from fedforget.ledger.states import RequestState

EVERY_SECONDS = 0.5
QUIET_SECONDS = 15.0
"""After so long without news a comment is sent, so that nobody in between takes the connection for dead."""
SETTLED = frozenset({RequestState.DONE, RequestState.REFUSED})
Look = Callable[[], Awaitable[bool]]


class Streams:
    """Who watches what. `close` ends them all, so that a server can stop."""

    def __init__(self, ledger: Ledger, per_account: int) -> None:
        self.ledger, self.per_account = ledger, per_account
        self._news: dict[str, asyncio.Task[None]] = {}
        self._watchers: dict[str, set[asyncio.Queue[str | None]]] = {}
        self._open: Counter[str] = Counter()
        self._closed = False

    def close(self) -> None:
        """From the event loop, or when it has ended."""
        self._closed = True
        for request in self._watchers:
            self._tell(request, None)

    def _tell(self, request: str, news: str | None) -> None:
        for queue in self._watchers.get(request, ()):
            if queue.full():  # a slow reader misses what is old
                queue.get_nowait()
            queue.put_nowait(news)

    def check(self, account: str) -> None:
        """Each stream holds a connection: nobody gets them all."""
        if self._open[account] >= self.per_account:
            raise DeniedError(429, "Too many pages watch at once; close some.", {"retry-after": "5"})

    async def watch(self, request: str, account: str, still_allowed: Look) -> AsyncIterator[str]:
        """The request's state and progress, now and whenever they change, until it is settled."""
        queue: asyncio.Queue[str | None] = asyncio.Queue(100)
        self._open[account] += 1
        self._watchers.setdefault(request, set()).add(queue)
        if request not in self._news:
            self._news[request] = asyncio.create_task(self._look(request))
        try:
            news: str | None = await run_in_threadpool(self._now, request)
            while news is not None and not self._closed:
                yield f"data: {news}\n\n"
                if json.loads(news)["settled"]:
                    break
                news = await self._next(queue, still_allowed)
                while news == "":
                    yield ": still here\n\n"
                    news = await self._next(queue, still_allowed)
        finally:
            self._leave(request, account, queue)

    async def _next(self, queue: asyncio.Queue[str | None], still_allowed: Look) -> str | None:
        """The next news; "" when there was none for a while; None: the end."""
        try:
            return await asyncio.wait_for(queue.get(), QUIET_SECONDS)
        except TimeoutError:
            return "" if await still_allowed() else None

    def _leave(self, request: str, account: str, queue: asyncio.Queue[str | None]) -> None:
        self._open[account] -= 1
        if self._open[account] <= 0:
            del self._open[account]
        watchers = self._watchers.get(request, set())
        watchers.discard(queue)
        if not watchers:
            self._watchers.pop(request, None)
            task = self._news.pop(request, None)
            if task is not None:
                task.cancel()

    async def _look(self, request: str) -> None:
        """Tell the watchers of one request what is new."""
        last: str | None = None
        while True:
            with contextlib.suppress(FedForgetError):  # a busy database answers the next time
                news = await run_in_threadpool(self._now, request)
                if news != last:
                    last = news
                    self._tell(request, news)
            await asyncio.sleep(EVERY_SECONDS)

    def _now(self, request: str) -> str:
        return json.dumps(progress_of(self.ledger, request))


def progress_of(ledger: Ledger, id: str) -> dict[str, Any]:
    """How far a request is, for the page's bar."""
    request = ledger.requests.get(id)
    progress = ledger.work.progress([id]).get(id)
    at_work = request.state in (RequestState.FORGETTING, RequestState.AUDITING)
    fraction = progress.fraction if progress is not None and at_work else None
    return {
        "state": request.state,
        "reason": request.reason,
        "stage": progress.stage if progress is not None and at_work else None,
        "fraction": fraction,
        "settled": request.state in SETTLED,
    }
