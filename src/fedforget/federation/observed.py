"""Federations that tell of the work: how far it is, and whether it is still wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from torch import Tensor

from fedforget.federation.seam import Federation, TargetSize
from fedforget.federation.tasks import Reply, Task, Withdraw
from fedforget.requests import ErasureRequest

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def silent(what: str, done: int, total: int) -> None:
    pass


class Observed:
    """A federation that passes everything on to another: who watches one says only what is different."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self.model, self.classes = federation.model, federation.classes
        self.normalisation, self.device = federation.normalisation, federation.device

    @property
    def clients(self) -> Sequence[int]:
        return self._federation.clients

    def check(self, requests: Sequence[ErasureRequest]) -> dict[int, TargetSize]:
        return self._federation.check(requests)

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        return self._federation.ask(task, state, to)


class Watched(Observed):
    """A federation that tells how far it is: one step for each reply, save to a withdrawal, which is no work."""

    def __init__(self, federation: Federation, what: str, total: int, progress: Progress, done: int = 0) -> None:
        super().__init__(federation)
        self._what, self._total, self._done, self._progress = what, total, done, progress
        progress(what, done, total)

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        for reply in super().ask(task, state, to):
            if not isinstance(task, Withdraw):
                self.add(1)
            yield reply

    def add(self, steps: int) -> None:
        self._done = min(self._done + steps, self._total)
        self._progress(self._what, self._done, self._total)


class Attentive(Observed):
    """A federation that asks, at every reply, whether the work is still wanted."""

    def __init__(self, federation: Federation, wanted: Callable[[], None]) -> None:
        super().__init__(federation)
        self._wanted = wanted

    def check(self, requests: Sequence[ErasureRequest]) -> dict[int, TargetSize]:
        self._wanted()
        return super().check(requests)

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        self._wanted()
        for reply in super().ask(task, state, to):
            self._wanted()
            yield reply
