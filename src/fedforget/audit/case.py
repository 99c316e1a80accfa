"""What an audit is about: the same for every model that is examined, and for every measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fedforget.federation.rounds import AnyTask, Schedule
from fedforget.federation.seam import Federation
from fedforget.requests import ErasureRequest

Level = Literal["alone", "quick", "full"]


@dataclass(frozen=True)
class Case:
    """The target of `requests` in a federation, beside what was `served` before, and how closely it is looked at."""

    federation: Federation
    requests: tuple[ErasureRequest, ...]
    schedule: Schedule
    level: Level = "alone"
    served: tuple[ErasureRequest, ...] = ()

    @property
    def askers(self) -> list[int]:
        return sorted({request.client for request in self.requests})

    @property
    def exclude(self) -> tuple[ErasureRequest, ...]:
        """What no round may be trained on."""
        return (*self.served, *self.requests)

    def about(self, task: type[AnyTask], **more: Any) -> AnyTask:
        """A task about the target."""
        return self.schedule.about(task, self.requests, self.served, **more)
