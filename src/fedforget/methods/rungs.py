"""The rungs of the ladder, and its settings. Who climbs it: `runs/ladder.py`."""

from __future__ import annotations

from dataclasses import dataclass

from fedforget.errors import InputError
from fedforget.methods.checks import check_numbers

LADDER = "ladder"
RUNGS = ("overwrite", "rebuild", "retrain")
"""The methods that the ladder tries, the cheapest first."""
QUICK_S = 60.0
"""A Retrain that is forecast to take fewer seconds is quick: a ledger's federation and an attached app are retrained at
once then, and whoever else asks is told so."""


@dataclass(frozen=True)
class LadderSettings:
    """How far to climb, and what a rung may cost others."""

    lowest: str = RUNGS[0]
    at_most: str = RUNGS[-1]
    limit: float = 0.015
    """How much of the accuracy on other clients' unseen data may go, beside what fewer data cost any model."""
    exact_below: float = 0.0
    """Where Retrain is forecast to take fewer seconds, nothing else is tried."""

    def __post_init__(self) -> None:
        check_numbers("Ladder", self)
        for name in ("lowest", "at_most"):
            if getattr(self, name) not in RUNGS:
                raise InputError(f"The rung '{getattr(self, name)}' is unknown; choose one of {', '.join(RUNGS)}.")
        if not self.rungs:
            raise InputError(
                f"The climb would begin at {self.lowest} and end at {self.at_most}, which lies below it; "
                "choose a higher end or a lower beginning."
            )

    @property
    def rungs(self) -> tuple[str, ...]:
        return RUNGS[RUNGS.index(self.lowest) : RUNGS.index(self.at_most) + 1]
