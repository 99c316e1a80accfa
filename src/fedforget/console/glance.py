"""What many pages show of the whole ledger, read once a second at most: figures, and what the federations hold."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from fedforget.ledger.book import Ledger
from fedforget.ledger.schema import Federation

SECONDS = 1.0
Value = TypeVar("Value")


class Glance:
    """Kept for a second. `forget` after a change that its maker will look for."""

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
        if time.monotonic() - then < SECONDS:
            return found
        fresh = read()
        self._kept[name] = (time.monotonic(), fresh)
        return fresh
