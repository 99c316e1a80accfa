"""What a climb leaves: its rungs, what came of it, and what is kept until it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedforget.audit.check import Check
from fedforget.federation.cost import Cost
from fedforget.methods import Forgetting
from fedforget.params import State

SCOUT_RUNG = "scout"
"""The name under which the scout is kept, beside the rungs."""
NOT_KEPT = ("harmful", "diverged")
"""The words of rungs whose model is not used."""
NOT_DONE = ("not forgotten", *NOT_KEPT)
"""Words of a climb after which the target is still in the model."""
STAYS = "So the model stays as it was."


@dataclass(frozen=True)
class Rung:
    """One rung that was climbed: what it was forecast to cost, what it cost, and what the check said."""

    name: str
    forecast: float
    """As a part of Retrain's gradient evaluations."""
    cost: Cost
    word: str
    reason: str
    check: Check | None = None
    notes: tuple[str, ...] = ()
    model: str = ""
    """The digest of the weights that it made; empty where it made none."""

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("name", "forecast", "word", "reason", "model")},
            "cost": self.cost.to_json(),
            "check": None if self.check is None else self.check.to_json(),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Rung:
        found = values["check"]
        return cls(
            values["name"], values["forecast"], Cost.from_json(values["cost"]), values["word"], values["reason"],
            None if found is None else Check.from_json(found), tuple(values["notes"]), values.get("model", ""),
        )  # fmt: skip


@dataclass(frozen=True)
class Climb(Forgetting):
    """What came of a request on the ladder. `cost` is the whole bill: the rungs', and the checks' as well."""

    rungs: tuple[Rung, ...] = ()
    checking: Cost = field(default_factory=Cost)
    """What the scout and the looks cost."""
    retrain: float = 0.0
    """What Retrain was forecast to cost, in gradient evaluations."""

    @property
    def word(self) -> str:
        """What is said of the model: that of the highest rung that was kept; of the last one, where none was."""
        kept = [rung.word for rung in self.rungs if rung.word not in NOT_KEPT]
        return kept[-1] if kept else self.rungs[-1].word


class KeptRungs(Protocol):
    """Keeps the models of a climb that is not finished, by name, with a note on each."""

    def load(self, name: str) -> tuple[dict[str, Any], State] | None: ...

    def save(self, name: str, state: State, note: Mapping[str, Any]) -> None: ...
