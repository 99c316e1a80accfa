"""The ladder: overwrite, else rebuild, else retrain, and after each rung the check decides whether to stop.

    scout     a fresh model, trained without the target for a short time: what the check compares with
    rungs     from the cheapest on, each from the model before: what one left undone the next does not inherit
    prepared  with shards or a ridge head, Retrain is the one rung: of the shards that hold the target
              (federation/shards.py), of the head alone (federation/ridge.py)
    stop      where the check says `forgotten`, or where a model that harms nobody is `exact`: it never saw the target.
              Retrain is the last; of some networks rebuilding is so too (methods/rebuild.py)

Where nothing tells the model before from one that never saw the target, the check cannot say that a rung forgot. Then
the target is overwritten as far as it harms nothing, the word is `not enough evidence`, and Retrain is a person's to
ask for. A killed climb goes on at its rung."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import Tensor

from fedforget.audit.check import NEVER_SAW, NOTHING_SEEN, Check, CheckBeside, check, seen_in
from fedforget.audit.verdict import by_construction
from fedforget.errors import DivergedError, InputError
from fedforget.federation.cost import CheckpointStore, Cost, Meter
from fedforget.federation.history import History
from fedforget.federation.rounds import Schedule, further_round, run_round
from fedforget.federation.seam import Federation
from fedforget.federation.sight import Left, Sight, look
from fedforget.federation.tasks import CountSamples
from fedforget.methods import LADDER, RUNGS, Forgetting, LadderSettings, check_before, method_settings, withdrawals
from fedforget.methods import forget as forget_with
from fedforget.methods.rebuild import RebuildSettings, kernel_to_turn, last_part
from fedforget.methods.retrain import RetrainSettings, fresh_start, is_drawn
from fedforget.methods.scout import MIN_SAMPLES, never_saw, train_scout
from fedforget.models import Prepared, assumed_of
from fedforget.params import State, copy_state, digest
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import NOT_KEPT, SCOUT_RUNG, STAYS, Climb, KeptRungs, Rung

FURTHER = 0.05
"""At most so much of the training is the further round in which a memory may come back."""
OwnTraining = Callable[[State], tuple[State, Cost]]
"""(the model, the bill) of a whole training from these fresh weights, without what the clients have withdrawn: where
the training is not ours, as in an attached app."""


def forget(
    federation: Federation,
    state: Mapping[str, Tensor],
    requests: ErasureRequest | Sequence[ErasureRequest],
    schedule: Schedule,
    method: str = LADDER,
    preset: str | None = None,
    *,
    served: Sequence[ErasureRequest] = (),
    checkpoints: CheckpointStore | None = None,
    history: History | None = None,
    kept: KeptRungs | None = None,
    say: Callable[[str], None] = lambda sentence: None,
    **settings: Any,
) -> Forgetting:
    """Make the global model `state` forget the target of `requests`: climb the ladder, or use the one `method` named.

    `settings` are those of the ladder (`at_most`, ...) or of the method. The rest: see `climb` and `methods.forget`."""
    if method != LADDER:
        return forget_with(
            federation, state, requests, schedule, method, preset,
            served=served, checkpoints=checkpoints, history=history, **settings,
        )  # fmt: skip
    return climb(
        federation, state, requests, schedule, method_settings(LADDER, preset, **settings)[1],
        served=served, checkpoints=checkpoints, kept=kept, say=say,
    )  # fmt: skip


def climb(
    federation: Federation,
    state: Mapping[str, Tensor],
    requests: ErasureRequest | Sequence[ErasureRequest],
    schedule: Schedule,
    settings: LadderSettings | None = None,
    *,
    served: Sequence[ErasureRequest] = (),
    kept: KeptRungs | None = None,
    checkpoints: CheckpointStore | None = None,
    say: Callable[[str], None] = lambda sentence: None,
    training: OwnTraining | None = None,
) -> Climb:
    """Make the global model forget, on the lowest rung that does. `say` is told of each rung before it begins.

    `kept` and `checkpoints` let a killed climb go on: at its rung, and within Retrain at its round. `training` is
    another than ours, for Retrain."""
    asked = (requests,) if isinstance(requests, ErasureRequest) else tuple(requests)
    settings = settings or LadderSettings()
    check_before(federation, state, asked, LADDER, settings, served)
    climber = _Climber(federation, state, asked, tuple(served), schedule, settings, kept, say, training)
    return climber.climb(checkpoints)


@dataclass(frozen=True)
class _Reference:
    """What the check compares with, how long Retrain will take, and the scout itself."""

    untouched: Sight
    scout: Sight
    seconds: float
    model: State


@dataclass(frozen=True)
class _Tried:
    """A rung and its model; None where it left the finite numbers."""

    rung: Rung
    state: State | None
    curves: Mapping[str, list[float]] = field(default_factory=dict)


class _Climber:
    def __init__(
        self,
        federation: Federation,
        state: Mapping[str, Tensor],
        requests: tuple[ErasureRequest, ...],
        served: tuple[ErasureRequest, ...],
        schedule: Schedule,
        settings: LadderSettings,
        kept: KeptRungs | None,
        say: Callable[[str], None],
        training: OwnTraining | None,
    ) -> None:
        self._federation, self._before = federation, copy_state(state, federation.device)
        self._requests, self._served, self._exclude = requests, served, (*served, *requests)
        self._schedule, self._settings, self._kept, self._say = schedule, settings, kept, say
        self._training = training
        self._meter = Meter(federation, withdrawals(requests, schedule))
        self._feature = any(request.kind == "feature" for request in requests)
        self._reference: _Reference | None = None
        self._left, self._retrain, self._again = Left(0, 0), 0.0, 1.0
        self._anew = kernel_to_turn(federation.model) is None
        self._notes: list[str] = []

    def climb(self, checkpoints: CheckpointStore | None) -> Climb:
        """Rung after rung."""
        rungs = self._rungs()
        tried: list[_Tried] = []
        for name in rungs:
            self._say(self._forecast_sentence(name))
            tried.append(self._kept_rung(name) or self._try(name, checkpoints if name == "retrain" else None))
            if self._ends(tried[-1].rung):
                break
        return self._ended(tried)

    def _rungs(self) -> Sequence[str]:
        """Which rungs there are to try. Beside Retrain alone, the scout comes first."""
        rungs = [name for name in self._settings.rungs if not (self._feature and name == "rebuild")]
        with self._meter.measured():
            self._retrain = self._evaluations()
            if isinstance(self._federation.model, Prepared):
                self._again = self._part_again(self._federation.model)
                return ["retrain"]
            if not self._feature and rungs != ["retrain"]:
                self._reference = self._kept_reference() or self._scouted()
                if self._reference is None:
                    return self._without_check(rungs)
                quick = self._reference.seconds < self._settings.exact_below
                if "retrain" in rungs and quick:
                    return ["retrain"]
                if "retrain" in rungs and self._leaves_unseen:
                    steered = self._anew and self._reference.untouched.accuracy.count
                    return [name for name in rungs if name == "retrain" or (name == "rebuild" and steered)]
                why = self._no_overwriting() if rungs[0] == "overwrite" and len(rungs) > 1 else ""
                if why:
                    self._say(why)
                    self._notes.append(why)
                    return rungs[1:]
        return rungs

    def _without_check(self, rungs: Sequence[str]) -> Sequence[str]:
        """Where nobody holds data out, neither a memory nor harm can be seen, and only Retrain counts."""
        if "retrain" not in rungs:
            raise InputError(f"{NOBODY_HOLDS_OUT} Let the sites hold data out, or let the climb go up to retrain.")
        self._say(NOBODY_HOLDS_OUT)
        self._notes.append(NOBODY_HOLDS_OUT)
        return ["retrain"]

    def _no_overwriting(self) -> str:
        """Why the lowest rung is not tried; empty where it is."""
        if self._sees & SAMPLES_REMEMBERED:
            return SAMPLES
        return DEAR if self._sees and self._dear else ""

    def _no_sense_in_overwriting(self) -> str:
        """Why the model stays as it is at the lowest rung, where nothing is seen; empty where it is overwritten."""
        if self._looks_unseen():
            return LOOKS_UNSEEN
        nothing = self._reference is not None and not self._sees
        return f"{NOTHING_SEEN} {DEAR}" if nothing and self._dear and len(self._settings.rungs) > 1 else ""

    @property
    def _dear(self) -> bool:
        """Whether overwriting costs not much less than a model that never saw the target."""
        return self._anew and self._forecast("overwrite") > BARGAIN * self._forecast("rebuild")

    def _evaluations(self) -> float:
        """What Retrain would cost, from how many samples are left."""
        self._left = Left.count(self._meter, self._requests, self._served, self._schedule)
        model, schedule = self._federation.model, self._schedule
        each = model.evaluations if isinstance(model, Prepared) else 1.0
        return each * self._left.kept * schedule.rounds * schedule.epochs * schedule.participation

    def _part_again(self, model: Prepared) -> float:
        """The part of the samples that is gone through again."""
        clients = model.clients_beside((request.client for request in self._requests), self._meter.clients)
        count = CountSamples(
            seed=self._schedule.seed, threads=self._schedule.threads, exclude=self._exclude, unsummed=True
        )
        left = sum(reply.numbers["samples"] for reply in self._meter.ask(count, {}, clients))
        return left / max(1, self._left.kept)

    def _scouted(self) -> _Reference | None:
        """Train the scout, and look at it and at the model before; None in an app whose sites hold nothing out."""
        untouched = self._look(self._before)
        if self._training is not None and not untouched.accuracy.count:
            return None
        seconds, evaluations = self._meter.so_far().total_seconds, self._meter.cost.gradient_evaluations
        scout = train_scout(self._meter, self._schedule, self._left, self._exclude)
        seconds = self._meter.so_far().total_seconds - seconds
        evaluations = max(1.0, self._meter.cost.gradient_evaluations - evaluations)
        reference = _Reference(untouched, self._look(scout), seconds * self._retrain / evaluations, scout)
        if self._kept is not None:
            note = {"untouched": asdict(untouched), "scout": asdict(reference.scout), "seconds": reference.seconds}
            self._kept.save(SCOUT_RUNG, scout, {**note, "cost": self._meter.so_far().to_json()})
        return reference

    def _kept_reference(self) -> _Reference | None:
        known = None if self._kept is None else self._kept.load(SCOUT_RUNG)
        if known is None:
            return None
        note, scout = known
        self._meter.cost = Cost.from_json(note["cost"])
        untouched, of_scout = (Sight.from_json(note[name]) for name in ("untouched", "scout"))
        return _Reference(untouched, of_scout, float(note["seconds"]), copy_state(scout, self._federation.device))

    def _look(self, model: State) -> Sight:
        task = CheckBeside(
            seed=self._schedule.seed, threads=self._schedule.threads, requests=self._requests, served=self._served,
            half="judge",
        )  # fmt: skip
        with self._meter.stage("check"):
            return look(self._meter, model, task, self._schedule)

    def _try(self, name: str, checkpoints: CheckpointStore | None) -> _Tried:
        """One rung, and what the check says of it."""
        why = self._no_sense_in_overwriting() if name == "overwrite" else ""
        if why:
            rung = Rung(name, self._forecast(name), Cost(), "not enough evidence", f"{why} {STAYS}")
            return _Tried(rung, self._before)
        overrides: dict[str, Any] = {"enough": self._enough()} if name == "overwrite" and not self._sees else {}
        spent, scout = Cost(), None if self._reference is None else self._reference.model
        try:
            if name == "retrain" and self._training is not None:
                made = self._retrained(self._training)
            else:
                made = forget_with(
                    self._federation, self._before, self._requests, self._schedule, name,
                    served=self._served, checkpoints=checkpoints, scout=scout, **overrides,
                )  # fmt: skip
            spent = made.cost
            checked = self._reference is not None and name != "retrain"
            found, state = self._check(name, made) if checked else (None, made.state)
        except DivergedError as error:
            return _Tried(Rung(name, self._forecast(name), spent, "diverged", str(error)), None)
        rung = Rung(name, self._forecast(name), spent, *self._unchecked(name, made), None, made.notes, digest(state))
        if found is not None:
            rung = replace(rung, word=found.word, reason=found.reason, check=found)
            if found.word == "forgotten" and self._leaves_unseen:
                rung = replace(rung, word="not enough evidence", reason=HELD_NOTHING)
            if found.word == "harmful" and not found.sees:
                rung = replace(rung, word="not enough evidence", reason=f"{found.reason} {STAYS}")
        if self._kept is not None:
            note = {"rung": rung.to_json(), "curves": made.curves, "cost": self._meter.so_far().to_json()}
            self._kept.save(name, state, note)
        return _Tried(rung, self._before if STAYS in rung.reason else state, made.curves)

    def _retrained(self, training: OwnTraining) -> Forgetting:
        model, settings = self._federation.model, RetrainSettings()
        state, cost = training(fresh_start(model, self._schedule, settings))
        notes = self._trained_on_again()
        exact = is_drawn(model, self._schedule, settings) and not notes
        return Forgetting(state, "retrain", "default", self._requests, cost, settings, {}, notes, exact)

    def _trained_on_again(self) -> tuple[str, ...]:
        """Who no longer leaves out what was served: in an app's own training nobody but the nodes does."""
        asked = {request.client for request in self._served} & set(self._meter.clients)
        left: list[dict[int, float]] = []
        for exclude in ((), self._exclude) if asked else ():
            task = CountSamples(seed=self._schedule.seed, threads=self._schedule.threads, exclude=exclude)
            left.append({reply.client: reply.numbers["samples"] for reply in self._meter.ask(task, {}, asked)})
        return tuple(AGAIN.format(client) for client in sorted(asked) if left[0][client] != left[1][client])

    def _kept_rung(self, name: str) -> _Tried | None:
        known = None if self._kept is None else self._kept.load(name)
        if known is None:
            return None
        note, state = known
        rung = Rung.from_json(note["rung"])
        self._meter.cost = Cost.from_json(note["cost"])
        made = self._before if STAYS in rung.reason else copy_state(state, self._federation.device)
        return _Tried(rung, made, note["curves"])

    def _check(self, name: str, made: Forgetting) -> tuple[Check, State]:
        """The check, now and one further round on, and the model that is kept.

        The further round mends what overwriting spoiled, so there its model is kept. A rebuilt model was trained to its
        end, and a round at the full rate takes accuracy away again: there the round only shows what comes back. Where
        nothing is seen, or nothing could come back, the round would prove nothing, and is not made."""
        state = made.state
        with self._meter.measured():
            now = self._look(state)
            if made.exact or not self._sees:
                return self._compared(name, now, None, made.exact), state
            with self._meter.stage("check"):
                ordinary = further_round(self._schedule, self._schedule.rounds, self._exclude)
                share = min(1.0, FURTHER * self._schedule.rounds * self._schedule.epochs)
                task = replace(ordinary, epochs=1, share=share, min_samples=MIN_SAMPLES, purpose="check")
                further = run_round(self._meter, state, task)
            found = self._compared(name, now, self._look(further))
            return found, further if name == "overwrite" else state

    def _compared(self, name: str, now: Sight, later: Sight | None, exact: bool = False) -> Check:
        assert self._reference is not None
        untouched = self._reference.untouched
        limit = self._settings.limit + self._left.loss(untouched.accuracy)
        return check(
            untouched, now, later, self._reference.scout,
            looks=LOOKS, limit=limit, overwritten=name == "overwrite", exact=exact,
        )  # fmt: skip

    def _unchecked(self, name: str, made: Forgetting) -> tuple[str, str]:
        """The word and the reason where there is nothing to check, or nothing to check by."""
        if made.exact:
            return "exact", " ".join(by_construction(made.assumed)) if made.assumed else NEVER_SAW
        if self._training is not None and name == "retrain" and made.notes:
            return "not enough evidence", made.notes[0]
        return "not enough evidence", GIVEN_WEIGHTS if name == "retrain" else NO_CHECK

    def _ends(self, rung: Rung) -> bool:
        return rung.word in ("forgotten", "exact", "not enough evidence")

    @property
    def _sees(self) -> frozenset[str]:
        """What tells the model before from one that never saw the target."""
        reference = self._reference
        return frozenset() if reference is None else frozenset(seen_in(reference.untouched, reference.scout, LOOKS))

    @property
    def _leaves_unseen(self) -> bool:
        """Whether somebody leaves who set nothing aside: it cannot be asked again, so only Retrain counts."""
        leaves = any(request.kind == "client" for request in self._requests)
        return leaves and self._reference is not None and not self._reference.untouched.kind.count

    def _looks_unseen(self) -> bool:
        """Whether nothing is seen, and the target is known no better than unseen data of its kind: nothing is left to
        overwrite."""
        untouched = None if self._reference is None else self._reference.untouched
        if untouched is None or untouched.gap is None or self._sees:
            return False
        return untouched.gap <= untouched.gap_error

    def _enough(self) -> float:
        """Where nothing is seen, overwriting stops at the share of unseen data of the target's kind that is known."""
        kind = None if self._reference is None else self._reference.untouched.kind
        return min(0.99, kind.value) if kind is not None and kind.count else 0.0

    def _forecast(self, name: str) -> float:
        """As a part of Retrain's gradient evaluations."""
        if name == "retrain":
            return self._again
        if name == "rebuild":
            settings = RebuildSettings()
            last = last_part(self._federation.model, self._schedule, self._left, settings)
            return last + LOOKING + (0.0 if self._anew else settings.between)
        return min(1.0, (OVERWRITES + 2.0 * self._left.target) / max(self._retrain, 1.0))

    def _forecast_sentence(self, name: str) -> str:
        part = self._forecast(name)
        seconds = "" if self._reference is None else f", about {part * self._reference.seconds:.1f} s"
        return f"{name}: about {100 * part:.0f} % of a retraining{seconds}."

    def _ended(self, tried: Sequence[_Tried]) -> Climb:
        """The highest rung's model that does no harm; the one before, where none is left."""
        if all(one.state is None for one in tried):
            raise DivergedError("The ladder", "no rung stayed within the finite numbers; the old model is in place.")
        used = next((one for one in reversed(tried) if one.rung.word not in NOT_KEPT), None)
        last, checking = tried[-1].rung, self._meter.cost
        notes = [*self._notes, *self._meter.notes, *(note for one in tried for note in one.rung.notes)]
        if last.word not in ("forgotten", "exact"):
            notes.append(f"{last.reason}{'' if used else ' ' + STAYS}{self._offer() if last.name != 'retrain' else ''}")
        return Climb(
            state=self._before if used is None or used.state is None else used.state,
            method=LADDER, preset="default", requests=self._requests,
            cost=Cost.total([*(one.rung.cost for one in tried), checking]), settings=self._settings,
            curves={} if used is None else dict(used.curves), notes=tuple(dict.fromkeys(notes)),
            exact=last.word == "exact", assumed=assumed_of(self._federation.model) if last.word == "exact" else (),
            rungs=tuple(one.rung for one in tried), checking=checking, retrain=self._retrain,
        )  # fmt: skip

    def _offer(self) -> str:
        if self._reference is None:
            return " Retrain is sure: --effort retrain."
        seconds = self._reference.seconds
        offered = f" Retrain is sure, and takes about {seconds:.1f} s here: --effort retrain."
        if self._anew and never_saw(self._meter, self._schedule):
            quicker = self._forecast("rebuild") * seconds
            offered += f" So is a rebuilt model here, about {quicker:.1f} s, if it harms nobody: --effort rebuild."
        return offered


SAMPLES_REMEMBERED = frozenset({"gap", "membership"})
"""Measures by which single samples are remembered. Overwriting does not reach such a memory: wherever it was tried, a
further round brought it back (docs/decisions/ladder.md). So the climb begins above it."""
LOOKS = len(RUNGS) - 1
"""How often the check may let a rung pass."""
OVERWRITES = 3000.0
"""About what overwriting evaluates beside the target: a sketch, a reminder, a recovery."""
LOOKING = 0.02
"""About what steering the rebuilding takes of a training."""
BARGAIN = 0.1
"""Where rebuilding is exact, overwriting is tried only if it is forecast to cost less than this part of that."""
SAMPLES = "Overwriting is not tried: single samples are remembered, and such a memory comes back."
DEAR = "Overwriting is not tried: it would cost not much less here than a model that never saw the target."
LOOKS_UNSEEN = "The target is known no better than unseen data of its kind, and nothing else tells that it was seen."
HELD_NOTHING = "The client that leaves set no data aside before the training, so there is nothing to hold it against."
GIVEN_WEIGHTS = "It was retrained, but from weights that were given, and nobody knows what those saw."
AGAIN = (
    "Client {}'s node no longer leaves out all that was withdrawn there, so the app trained on that again; give the "
    "node the state-dir of then, unless its operator took the request back."
)
NOBODY_HOLDS_OUT = "No other site holds data out, so no check can say what a rung below retrain forgot or spoiled."
NO_CHECK = "A feature is of all data, so there is no unseen data to compare with."
