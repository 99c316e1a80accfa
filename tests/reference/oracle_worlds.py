"""A federation for tests of the oracle ensemble: it counts what is trained, can be cut off, and can lose a client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import small_worlds
from torch import Tensor, nn

from fedforget.audit.oracles import oracle_models
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule
from fedforget.federation.tasks import Reply, Task, Train
from fedforget.models import xavier_initialise
from fedforget.params import State, digest
from fedforget.requests import ErasureRequest
from fedforget.runs.store import FolderOracleCache

SCHEDULE = Schedule(rounds=3, lr=0.05, batch_size=8, seed=7, threads=1)
CLASS = ErasureRequest.of_class(0, 1)
EARLIER = ErasureRequest.of_class(1, 2)


class World(small_worlds.Tapped):
    """Counts the rounds of training that clients do, and can be cut off in the middle of one."""

    cut_after: int | None = None
    away: int | None = None

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        for reply in super().ask(task, state, to):
            if isinstance(task, Train) and len(self.trained) == self.cut_after:
                raise KeyboardInterrupt
            if not isinstance(task, Train) or reply.client != self.away:
                yield reply

    @property
    def trained(self) -> list[Task]:
        return [task for task, _, _ in self.log if isinstance(task, Train)]


def world(*layers: nn.Module) -> World:
    made = small_worlds.federation(normalised=True)
    made.__class__ = World
    if layers:
        made.model = xavier_initialise(nn.Sequential(*layers), 0)
        for client in made.clients:
            made.client(client).model = made.model
    return made  # type: ignore[return-value]


def oracles(federation: LocalFederation, count: int, folder: Path | None = None, **options: Any) -> list[State]:
    cache = None if folder is None else FolderOracleCache(folder)
    return oracle_models(federation, [CLASS], SCHEDULE, count, **{"data": "points", "cache": cache, **options})


def digests(states: Sequence[State]) -> list[str]:
    return [digest(state) for state in states]
