"""How things are measured: in turns, so that a slow moment of the machine meets all of them."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fedforget.experiments.cells import provenance
from fedforget.experiments.options import Options


@dataclass(frozen=True)
class Run(Options):
    """How a benchmark runs. `quick`: tiny sizes, to see that it works; its figures mean nothing."""

    repeats: int = 3
    say: Callable[[str], None] = lambda what: None

    @property
    def cuda(self) -> bool:
        return torch.device(self.device).type == "cuda"

    def circumstances(self) -> dict[str, Any]:
        """When, from which commit, on what and how it was measured. `load_before`: how many processes wanted a core in
        the minute before; above 0, the machine was not quiet."""
        load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
        return {
            **provenance(self.device), "device": torch.device(self.device).type, "torch": torch.__version__,
            "threads": self.threads, "repeats": self.repeats, "quick": self.quick, "load_before": load,
        }  # fmt: skip


@dataclass(frozen=True)
class Work:
    """Something to time."""

    run: Callable[[], Any]
    times: int = 1
    """How often in one turn; its median is the turn's time. For what is short beside the others."""


def in_turns(
    works: Mapping[str, Work], repeats: int, device: str, seen: Callable[[str, Any], None] | None = None
) -> dict[str, list[float]]:
    """Seconds of each work: all of them once without a clock, then `repeats` times one after another.

    `seen` gets what each timed run returned."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(1 + repeats):
        for name, work in works.items():
            taken = []
            for _ in range(work.times if turn else 1):
                _settle(device)
                start = time.perf_counter()
                result = work.run()
                _settle(device)
                taken.append(time.perf_counter() - start)
                if turn and seen is not None:
                    seen(name, result)
            if turn:
                times[name].append(statistics.median(taken))
    return times


def _settle(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios turn by turn: what slows the machine in one turn slows both.

    >>> ratio([2.0, 6.0, 2.0], [1.0, 3.0, 2.0])
    2.0
    """
    return statistics.median(a / b for a, b in zip(above, below, strict=True))
