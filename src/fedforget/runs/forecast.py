"""What each rung of the ladder will cost, said before it is climbed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedforget.federation.beside import Left
from fedforget.federation.cost import Meter
from fedforget.federation.rounds import Schedule
from fedforget.federation.tasks import CountSamples
from fedforget.methods.rebuild import RebuildSettings, kernel_to_turn, last_part
from fedforget.models import Prepared
from fedforget.requests import ErasureRequest

OVERWRITES = 3000.0
"""About what overwriting evaluates beside the target: a sketch, a reminder, a recovery."""
LOOKING = 0.02
"""About what steering the rebuilding takes of a training."""
BARGAIN = 0.1
"""Where rebuilding is exact, overwriting is tried only if it is forecast to cost less than this part of that."""


@dataclass(frozen=True)
class Forecast:
    """Every part is of Retrain's gradient evaluations."""

    left: Left
    retrain: float
    """Those, from how many samples are left."""
    again: float
    """The part that Retrain itself goes through again: less than all in a federation that prepared for it."""
    rebuilding: float
    anew: bool
    """Whether rebuilding builds anew, without the weights of the model before."""

    @classmethod
    def of(
        cls, meter: Meter, requests: Sequence[ErasureRequest], served: Sequence[ErasureRequest], schedule: Schedule
    ) -> Forecast:
        left, model, settings = Left.count(meter, requests, served, schedule), meter.model, RebuildSettings()
        each, again = 1.0, 1.0
        if isinstance(model, Prepared):
            each = model.evaluations
            clients = model.clients_beside((request.client for request in requests), meter.clients)
            count = CountSamples(seed=schedule.seed, threads=schedule.threads, exclude=(*served, *requests))
            again = sum(reply.numbers["samples"] for reply in meter.ask(count, {}, clients)) / max(1, left.kept)
        retrain = each * left.kept * schedule.rounds * schedule.epochs * schedule.participation
        anew = kernel_to_turn(model) is None
        rebuilding = last_part(model, schedule, left, settings) + LOOKING + (0.0 if anew else settings.between)
        return cls(left, retrain, again, rebuilding, anew)

    def part(self, rung: str) -> float:
        if rung == "retrain":
            return self.again
        if rung == "rebuild":
            return self.rebuilding
        return min(1.0, (OVERWRITES + 2.0 * self.left.target) / max(self.retrain, 1.0))

    @property
    def dear(self) -> bool:
        """Whether overwriting costs not much less than a model that never saw the target."""
        return self.anew and self.part("overwrite") > BARGAIN * self.part("rebuild")

    def sentence(self, rung: str, retrain_seconds: float | None) -> str:
        part = self.part(rung)
        seconds = "" if retrain_seconds is None else f", about {part * retrain_seconds:.1f} s"
        return f"{rung}: about {100 * part:.0f} % of a retraining{seconds}."
