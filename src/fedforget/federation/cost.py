"""What a request costs, from its arrival to the final model: time, gradients, bytes sent, stored and in memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from fedforget.federation.memory import number_in
from fedforget.federation.observed import Observed
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import Reply, Task, Withdraw
from fedforget.params import State, state_bytes


@dataclass
class Cost:
    """The whole bill of one request.

    `gradient_evaluations`: one sample's forward and backward pass = 1, a forward pass alone = 0.4.
    `bytes`: models and numbers sent between server and clients, both ways. `stored_bytes`: what had to be kept beside
    the model (sketches, histories). `peak_bytes`: the most memory in use at once, above what was in use before."""

    seconds: dict[str, float] = field(default_factory=dict)
    gradient_evaluations: float = 0.0
    bytes: int = 0
    stored_bytes: int = 0
    peak_bytes: int = 0

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    def to_json(self) -> dict[str, Any]:
        figures = {name: getattr(self, name) for name in _FIGURES}
        return {"seconds": self.total_seconds, "seconds_by_stage": dict(self.seconds), **figures}

    @classmethod
    def total(cls, costs: Iterable[Cost]) -> Cost:
        """The sum of bills; memory and storage at their highest."""
        whole = cls()
        for cost in costs:
            for stage, seconds in cost.seconds.items():
                whole.seconds[stage] = whole.seconds.get(stage, 0.0) + seconds
            whole.gradient_evaluations += cost.gradient_evaluations
            whole.bytes += cost.bytes
            whole.stored_bytes = max(whole.stored_bytes, cost.stored_bytes)
            whole.peak_bytes = max(whole.peak_bytes, cost.peak_bytes)
        return whole

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Cost:
        return cls(dict(values["seconds_by_stage"]), *(values[name] for name in _FIGURES))


_FIGURES = ("gradient_evaluations", "bytes", "stored_bytes", "peak_bytes")


class Meter(Observed):
    """A federation that writes down what everything costs. Methods run on a meter and name the stage they are in.

    Before the first task of a method, and only if it comes to that, the clients get their `withdrawals`."""

    def __init__(self, federation: Federation, withdrawals: Sequence[Withdraw] = ()) -> None:
        super().__init__(federation)
        self.cost = Cost()
        self.notes: list[str] = []
        self.exact = False
        """Set by a method whose new model never saw the target, nor what was served before, by the way it is made."""
        self.assumed: tuple[str, ...] = ()
        """What its being exact rests on, where the federation prepared for it (`models.Prepared`)."""
        self._withdrawals = list(withdrawals)
        self._stage = "server"
        self._mark = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time spent inside goes to `name`, save what a client itself names otherwise."""
        self._settle()
        before, self._stage = self._stage, name
        try:
            yield
        finally:
            self._settle()
            self._stage = before

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        while self._withdrawals:
            withdrawal = self._withdrawals.pop(0)
            for _ in self._ask(withdrawal, {}, {request.client for request in withdrawal.requests}):
                pass
        yield from self._ask(task, state, to)

    def _ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None) -> Iterator[Reply]:
        sent = state_bytes(state)
        for reply in super().ask(task, state, to):
            numbers = len(reply.numbers) + sum(len(curve) for curve in reply.curves.values())
            self.cost.bytes += sent + state_bytes(reply.tensors) + 8 * numbers
            self.cost.gradient_evaluations += reply.gradient_evaluations
            self.notes += reply.notes
            self.cost.stored_bytes = max(self.cost.stored_bytes, reply.stored_bytes)
            for stage, seconds in reply.seconds.items():
                self._add(stage, seconds)
                self._add(self._stage, -seconds)
            yield reply

    def _add(self, stage: str, seconds: float) -> None:
        self.cost.seconds[stage] = self.cost.seconds.get(stage, 0.0) + seconds

    def _settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self._add(self._stage, now - self._mark)
        self._mark = now

    def so_far(self) -> Cost:
        """The bill up to now."""
        self._settle()
        return self.cost

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Time and peak memory of the block."""
        self._mark = time.perf_counter()
        with PeakMemory(self.device) as peak:
            try:
                yield
            finally:
                self._settle()
        self.cost.peak_bytes = max(self.cost.peak_bytes, peak.bytes)


class CheckpointStore(Protocol):
    """Keeps the newest state of one long computation, with a note of its `round` and of its `cost`; where, is its own
    affair (`runs.store.NotedModel`)."""

    def load(self) -> tuple[dict[str, Any], State] | None: ...

    def save(self, state: State, round: int, *, cost: dict[str, Any]) -> None: ...


class Checkpoints:
    """How a method goes on after an interruption: the round and the model to go on from. What was spent before stays on
    the bill."""

    def __init__(self, store: CheckpointStore, meter: Meter) -> None:
        self._store = store
        self._meter = meter

    def load(self) -> tuple[int, State] | None:
        saved = self._store.load()
        if saved is None:
            return None
        note, state = saved
        self._meter.cost = Cost.from_json(note["cost"])
        return note["round"], state

    def save(self, round: int, state: State) -> None:
        self._store.save(state, round, cost=self._meter.so_far().to_json())


class PeakMemory:
    """The most memory in use at once inside the block, above what was in use at its start.

    On CUDA: the allocator's own figure. On Linux: the resident size's high-water mark, reset at the start. Elsewhere
    the mark cannot be reset, so the figure is how far the process's all-time peak rose."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.bytes = 0

    def __enter__(self) -> PeakMemory:
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
            self._start = torch.cuda.memory_allocated()
            return self
        with suppress(OSError), open("/proc/self/clear_refs", "w") as clear:
            clear.write("5")
        self._start = _status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        now = torch.cuda.max_memory_allocated() if self._cuda else _status("VmHWM")
        self.bytes = max(0, now - self._start)


def _status(field_name: str) -> int:
    kilobytes = number_in(Path("/proc/self/status"), field_name)
    if kilobytes is not None:
        return kilobytes * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
