"""Where the methods stand between the model before forgetting and Retrain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedforget.federation.cost import Cost
from fedforget.runs.climb import Rung
from fedforget.runs.told import ending

Row = dict[str, Any]
NAMES = {
    "before": "Before forgetting", "retrain": "Retrain", "ladder": "Ladder",
    "overwrite": "Overwrite", "rebuild": "Rebuild", "fedaf": "FedAF", "fedaf-c": "FedAF-C",
    "fedosd": "FedOSD", "federaser": "FedEraser", "fedquit": "FedQuit", "frr": "FRR", "sga": "SGA", "cdp": "CDP",
    "pgd": "PGD", "not": "NoT",
}  # fmt: skip


class Comparison:
    """Where the methods stand between the model before forgetting and Retrain."""

    def __init__(self, audit: dict[str, Any]) -> None:
        def first(method: str, preset: str | None) -> Row:
            return next((row for row in rows if (row["method"], row["preset"]) == (method, preset)), {})

        rows: list[Row] = audit["rows"]
        self.count: int = audit["target_samples"]
        self.classes: list[str] = audit["classes"]
        self.before, self.retrain = first("before", None), first("retrain", "default")
        others = [row for row in rows if row not in (self.before, self.retrain)]
        self.default: Row | None = first("ladder", "default") or (others[0] if others else None)
        """The row the summary is about: the default method, or the first there is."""
        self.some_came_back = any(map(self.came_back, rows))

    def tolerance(self, share: float) -> float:
        """Points that so few samples cannot tell apart: one point, one sample, or two standard errors of `share`."""
        count = max(1, self.count)
        return max(1.0, 100.0 / count, 2.0 * math.sqrt(share * (100.0 - share) / count)) + 1e-9

    @staticmethod
    def later(row: Row) -> float | None:
        """BD Acc on R after one further round."""
        return (row.get("after_one_round") or {}).get("bd_acc")

    def came_back(self, row: Row) -> bool:
        """The share rose in the further round, and to more than Retrain's."""
        now, later, goal = row.get("bd_acc"), self.later(row), self.later(self.retrain)
        if now is None or later is None or later <= now:
            return False
        return goal is None or later > goal + self.tolerance(goal)

    def standing(self, row: Row) -> str:
        """In one word; the template has the sentence for each."""
        now, start, goal = (r.get("bd_acc") for r in (row, self.before, self.retrain))
        if now is None or start is None or goal is None:
            return "stopped" if row.get("note") else "alone"
        slack = self.tolerance(goal)
        if now > goal + slack:
            return "kept" if now - goal > (start - goal) / 2 else "part"
        if now < goal - slack:
            return "beyond"
        if start <= goal + slack:
            return "unclear"
        return "back" if self.came_back(row) else "forgot"


@dataclass(frozen=True)
class Climbed:
    """A row of the ladder, and what is said of its climb."""

    row: Row
    rungs: list[Rung]
    said: list[str]


def climbs(rows: Sequence[Row]) -> list[Climbed]:
    """What the ladder did, rung by rung, where it was climbed."""
    found = []
    for row in rows:
        rungs = [Rung.from_json(rung) for rung in row.get("rungs") or ()]
        if rungs:
            said = ending(rungs, row["notes"], Cost.from_json(row), row.get("retrain_forecast"))
            found.append(Climbed(row, rungs, said))
    return found


def row_name(row: Row) -> str:
    name = NAMES.get(row["method"]) or str(row["method"])
    return name if row["preset"] in (None, "default") else f"{name} ({row['preset']})"
