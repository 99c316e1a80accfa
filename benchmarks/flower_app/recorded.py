"""A federation that writes down how long each task took, whatever federation does the work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from fedforget.federation.seam import Federation, TargetSize
from fedforget.federation.tasks import Reply, Task
from fedforget.requests import ErasureRequest


class Recorded:
    """`asks` has a line for each task: its name, to how many clients it went, and the seconds until the last reply."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self.model, self.classes = federation.model, federation.classes
        self.normalisation, self.device = federation.normalisation, federation.device
        self.asks: list[dict[str, Any]] = []

    @property
    def clients(self) -> Sequence[int]:
        return self._federation.clients

    def check(self, requests: Sequence[ErasureRequest]) -> dict[int, TargetSize]:
        start = time.perf_counter()
        sizes = self._federation.check(requests)
        self.asks.append({"task": "check", "clients": len(sizes), "seconds": time.perf_counter() - start})
        return sizes

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        # The caller's own work between two replies does not count.
        spent, replies, start = 0.0, 0, time.perf_counter()
        for reply in self._federation.ask(task, state, to):
            spent += time.perf_counter() - start
            replies += 1
            yield reply
            start = time.perf_counter()
        spent += time.perf_counter() - start
        self.asks.append({"task": type(task).__name__, "clients": replies, "seconds": spent})
