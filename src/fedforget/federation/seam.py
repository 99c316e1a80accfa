"""The seam: everything an algorithm may ask of a federation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from fedforget.data.samples import Normalisation
from fedforget.errors import InputError
from fedforget.federation.tasks import Reply, Task
from fedforget.requests import ErasureRequest


class TargetSize(NamedTuple):
    """How much of a client's data a request takes, and how much it leaves."""

    target: int
    retained: int


class Federation(Protocol):
    """Everything an algorithm may ask of a federation."""

    model: nn.Module
    """The architecture, as a workspace: its weights mean nothing between two calls."""
    classes: int
    normalisation: Normalisation
    device: torch.device

    @property
    def clients(self) -> Sequence[int]:
        """The clients' numbers, ascending."""

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        """Run `task` on the model `state` at the clients `to` (default: all), and yield one reply from each, in
        ascending order of the clients. A task that fails at a client raises its error here."""

    def check(self, requests: Sequence[ErasureRequest]) -> dict[int, TargetSize]:
        """Refuse requests that cannot be served; else the size of the target at each client they name."""


@contextmanager
def thread_count(threads: int) -> Iterator[None]:
    """Run with this many threads: the count changes the order of float sums, hence the bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_something_is_left(sizes: dict[int, TargetSize], others: int) -> dict[int, TargetSize]:
    """`sizes`, unless neither the clients that ask nor the `others` would have a sample left."""
    if not others and not any(size.retained for size in sizes.values()):
        raise InputError("The target is all the data there is, so no model would be left; delete the model instead.")
    return sizes
