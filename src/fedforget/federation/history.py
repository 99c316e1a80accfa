"""What a server keeps of training for a method that goes through it once more (FedEraser): every `interval`-th round,
the model that went out and the models that came back. A client's update is its model less the one that went out.

Recording streams: a reply is written down and passed on, so the average still sees one model at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from fedforget.errors import InputError
from fedforget.federation.tasks import Reply
from fedforget.params import State, copy_state, state_bytes


class History(Protocol):
    """Keeps rounds of training; where, is its own affair. A round counts once it is finished."""

    @property
    def interval(self) -> int:
        """Every so-many-th round is kept, beginning with round 0."""

    @property
    def rounds(self) -> Sequence[int]:
        """The kept rounds, ascending."""

    @property
    def bytes(self) -> int:
        """What keeping them takes."""

    def check(self) -> None:
        """Refuse a history of which a part is missing or damaged."""

    def sent(self, round: int) -> State:
        """The model that went out."""

    def returned(self, round: int) -> Iterator[tuple[int, State]]:
        """(client, the model that it sent back), one at a time, in ascending order of the clients."""

    def begin(self, round: int, state: Mapping[str, Tensor]) -> None:
        """Start a round anew: what an interruption left of it is void."""

    def add(self, round: int, client: int, state: Mapping[str, Tensor]) -> None: ...

    def finish(self, round: int) -> None: ...


def recorded(
    replies: Iterable[Reply], history: History | None, round: int, state: Mapping[str, Tensor]
) -> Iterator[Reply]:
    """The same replies to a round that began with `state`; the history keeps them where it keeps this round."""
    if history is None or round % history.interval:
        yield from replies
        return
    history.begin(round, state)
    for reply in replies:
        if reply.numbers["samples"] > 0:
            history.add(round, reply.client, reply.tensors)
        yield reply
    history.finish(round)


def check_interval(interval: int) -> int:
    if not isinstance(interval, int) or isinstance(interval, bool) or interval < 1:
        raise InputError(f"The history's interval is {interval!r}, but it must be a whole number, 1 or larger.")
    return interval


class MemoryHistory:
    """A history in this process, in main memory whatever device trains.

    >>> history = MemoryHistory(interval=2)
    >>> list(history.rounds)
    []
    """

    def __init__(self, interval: int = 2) -> None:
        self.interval = check_interval(interval)
        self._sent: dict[int, State] = {}
        self._returned: dict[int, dict[int, State]] = {}
        self._finished: set[int] = set()

    @property
    def rounds(self) -> Sequence[int]:
        return sorted(self._finished)

    @property
    def bytes(self) -> int:
        kept = [state for round in self.rounds for state in (self._sent[round], *self._returned[round].values())]
        return sum(map(state_bytes, kept))

    def check(self) -> None:
        pass

    def sent(self, round: int) -> State:
        return copy_state(self._sent[round])

    def returned(self, round: int) -> Iterator[tuple[int, State]]:
        for client, state in sorted(self._returned[round].items()):
            yield client, copy_state(state)

    def begin(self, round: int, state: Mapping[str, Tensor]) -> None:
        self._finished.discard(round)
        self._sent[round], self._returned[round] = copy_state(state, "cpu"), {}

    def add(self, round: int, client: int, state: Mapping[str, Tensor]) -> None:
        self._returned[round][client] = copy_state(state, "cpu")

    def finish(self, round: int) -> None:
        self._finished.add(round)
