"""What a climb compares every rung with: the model before and the scout, as the clients see them.

They are looked at once, before the first rung. What is seen in the model before decides where the climb begins."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from fedforget.audit.check import Check, CheckBeside, check, seen_in
from fedforget.federation.beside import Left, Sight, look
from fedforget.federation.cost import Cost, Meter
from fedforget.federation.rounds import Schedule, further_round, run_round
from fedforget.methods import RUNGS
from fedforget.methods.scout import MIN_SAMPLES, train_scout
from fedforget.params import State, copy_state
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import SCOUT_RUNG, KeptRungs

LOOKS = len(RUNGS) - 1
"""How often the check may let a rung pass."""
FURTHER = 0.05
"""At most so much of the training is the further round in which a memory may come back."""


@dataclass(frozen=True)
class Reference:
    """The model before and the scout, looked at, how long Retrain will take, and the scout itself."""

    untouched: Sight
    scout: Sight
    seconds: float
    model: State

    @property
    def sees(self) -> frozenset[str]:
        """What tells the model before from one that never saw the target."""
        return frozenset(seen_in(self.untouched, self.scout, LOOKS))

    @property
    def looks_unseen(self) -> bool:
        """Whether nothing is seen, and the target is known no better than unseen data of its kind: nothing is left to
        overwrite."""
        gap = self.untouched.gap
        return gap is not None and not self.sees and gap <= self.untouched.gap_error

    @property
    def enough(self) -> float:
        """Where nothing is seen, overwriting stops at the share of unseen data of the target's kind that is known."""
        kind = self.untouched.kind
        return min(0.99, kind.value) if kind.count else 0.0


@dataclass(frozen=True)
class Eyes:
    """How a climb looks: at that half of the held-out data which nothing steers by."""

    meter: Meter
    requests: tuple[ErasureRequest, ...]
    served: tuple[ErasureRequest, ...]
    schedule: Schedule

    def look(self, model: State) -> Sight:
        task = CheckBeside(
            seed=self.schedule.seed, threads=self.schedule.threads, requests=self.requests, served=self.served,
            half="judge",
        )  # fmt: skip
        with self.meter.stage("check"):
            return look(self.meter, model, task, self.schedule)

    def a_round_on(self, model: State) -> State:
        """The model after a further round without the target."""
        schedule = self.schedule
        with self.meter.stage("check"):
            ordinary = further_round(schedule, schedule.rounds, (*self.served, *self.requests))
            share = min(1.0, FURTHER * schedule.rounds * schedule.epochs)
            task = replace(ordinary, epochs=1, share=share, min_samples=MIN_SAMPLES, purpose="check")
            return run_round(self.meter, model, task)

    def check(
        self, reference: Reference, model: State, limit: float, *, overwritten: bool = False, exact: bool = False
    ) -> tuple[Check, State]:
        """What the check says of a rung's model, now and one further round on, and the model that is kept.

        The further round mends what overwriting spoiled, so there its model is kept. A rebuilt model was trained to its
        end, and a round at the full rate takes accuracy away again: there the round only shows what comes back. Where
        nothing is seen, or nothing could come back, the round would prove nothing, and is not made."""
        now, later, kept = self.look(model), None, model
        if reference.sees and not exact:
            further = self.a_round_on(model)
            later, kept = self.look(further), further if overwritten else model
        found = check(
            reference.untouched, now, later, reference.scout,
            looks=LOOKS, limit=limit, overwritten=overwritten, exact=exact,
        )  # fmt: skip
        return found, kept

    def reference(
        self, before: State, left: Left, retrain: float, kept: KeptRungs | None, *, needs_held_out: bool
    ) -> Reference | None:
        """The scout is trained, unless a climb that was killed has `kept` it. None where it `needs_held_out` and nobody
        holds anything out. `retrain`: what Retrain would cost, in gradient evaluations."""
        known = None if kept is None else kept.load(SCOUT_RUNG)
        if known is not None:
            note, model = known
            self.meter.cost = Cost.from_json(note["cost"])
            untouched, of_scout = (Sight.from_json(note[name]) for name in ("untouched", "scout"))
            return Reference(untouched, of_scout, float(note["seconds"]), copy_state(model, self.meter.device))
        untouched = self.look(before)
        if needs_held_out and not untouched.accuracy.count:
            return None
        seconds, evaluations = self.meter.so_far().total_seconds, self.meter.cost.gradient_evaluations
        scout = train_scout(self.meter, self.schedule, left, (*self.served, *self.requests))
        seconds = self.meter.so_far().total_seconds - seconds
        evaluations = max(1.0, self.meter.cost.gradient_evaluations - evaluations)
        found = Reference(untouched, self.look(scout), seconds * retrain / evaluations, scout)
        if kept is not None:
            note = {"untouched": asdict(untouched), "scout": asdict(found.scout), "seconds": found.seconds}
            kept.save(SCOUT_RUNG, scout, {**note, "cost": self.meter.so_far().to_json()})
        return found
