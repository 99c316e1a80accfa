"""How a long computation goes on after an interruption, without knowing where its state is kept."""

from __future__ import annotations

from typing import Any, Protocol

from fedforget.federation.cost import Cost, Meter
from fedforget.params import State


class CheckpointStore(Protocol):
    """Keeps the newest state of one computation, with what it has cost so far."""

    def load(self) -> tuple[int, State, dict[str, Any]] | None: ...

    def save(self, round: int, state: State, cost: dict[str, Any]) -> None: ...


class Checkpoints:
    """What a method sees: the round and the model to go on from. What was spent before stays on the bill."""

    def __init__(self, store: CheckpointStore, meter: Meter) -> None:
        self._store = store
        self._meter = meter

    def load(self) -> tuple[int, State] | None:
        saved = self._store.load()
        if saved is None:
            return None
        round, state, cost = saved
        self._meter.start_from(Cost.from_json(cost))
        return round, state

    def save(self, round: int, state: State) -> None:
        self._store.save(round, state, self._meter.so_far().to_json())
