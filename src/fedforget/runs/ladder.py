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
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedforget.audit.check import NEVER_SAW, NOTHING_SEEN, Check
from fedforget.audit.verdict import by_construction
from fedforget.errors import DivergedError, InputError
from fedforget.federation.cost import CheckpointStore, Cost, Meter
from fedforget.federation.history import History
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import Federation
from fedforget.methods import LADDER, Forgetting, LadderSettings, check_before, method_settings, withdrawals
from fedforget.methods import forget as forget_with
from fedforget.methods.scout import never_saw
from fedforget.models import Prepared, assumed_of
from fedforget.params import State, copy_state, digest
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import NOT_KEPT, STAYS, Climb, KeptRungs, Rung
from fedforget.runs.forecast import Forecast
from fedforget.runs.own_training import OwnTraining, retrained_by
from fedforget.runs.reference import Eyes, Reference


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
        self._requests, self._served = requests, served
        self._schedule, self._settings, self._kept, self._say = schedule, settings, kept, say
        self._training = training
        self._meter = Meter(federation, withdrawals(requests, schedule))
        self._eyes = Eyes(self._meter, requests, served, schedule)
        self._feature = any(request.kind == "feature" for request in requests)
        self._notes: list[str] = []

    def climb(self, checkpoints: CheckpointStore | None) -> Climb:
        """Rung after rung."""
        with self._meter.measured():
            self._forecast = Forecast.of(self._meter, self._requests, self._served, self._schedule)
            self._reference = self._looked() if self._needs_check else None
            rungs = self._rungs()
        tried: list[_Tried] = []
        for name in rungs:
            self._say(self._forecast.sentence(name, self._seconds))
            tried.append(self._kept_rung(name) or self._try(name, checkpoints if name == "retrain" else None))
            if tried[-1].rung.word in ENDS:
                break
        return self._ended(tried)

    # Which rungs.

    @property
    def _needs_check(self) -> bool:
        """Whether a rung may be climbed of which the check has to say something."""
        prepared = isinstance(self._federation.model, Prepared)
        return not (prepared or self._feature or self._settings.rungs == ("retrain",))

    def _looked(self) -> Reference | None:
        left, retrain, own = self._forecast.left, self._forecast.retrain, self._training is not None
        return self._eyes.reference(self._before, left, retrain, self._kept, needs_held_out=own)

    @property
    def _seconds(self) -> float | None:
        """How long Retrain will take, where the scout has told."""
        return None if self._reference is None else self._reference.seconds

    def _rungs(self) -> Sequence[str]:
        """Which rungs there are to try."""
        rungs = [name for name in self._settings.rungs if not (self._feature and name == "rebuild")]
        if isinstance(self._federation.model, Prepared):
            return ["retrain"]
        if not self._needs_check:
            return rungs
        if self._reference is None:
            return self._without_check(rungs)
        if "retrain" in rungs and self._reference.seconds < self._settings.exact_below:
            return ["retrain"]
        if "retrain" in rungs and self._leaves_unseen:
            steered = self._forecast.anew and self._reference.untouched.accuracy.count
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
        return DEAR if self._sees and self._forecast.dear else ""

    def _no_sense_in_overwriting(self) -> str:
        """Why the model stays as it is at the lowest rung, where nothing is seen; empty where it is overwritten."""
        if self._reference is None or self._sees:
            return ""
        if self._reference.looks_unseen:
            return LOOKS_UNSEEN
        return f"{NOTHING_SEEN} {DEAR}" if self._forecast.dear and len(self._settings.rungs) > 1 else ""

    @property
    def _sees(self) -> frozenset[str]:
        return frozenset() if self._reference is None else self._reference.sees

    @property
    def _leaves_unseen(self) -> bool:
        """Whether somebody leaves who set nothing aside: it cannot be asked again, so only Retrain counts."""
        leaves = any(request.kind == "client" for request in self._requests)
        return leaves and self._reference is not None and not self._reference.untouched.kind.count

    # A rung, and what the check says of it.

    def _try(self, name: str, checkpoints: CheckpointStore | None) -> _Tried:
        why = self._no_sense_in_overwriting() if name == "overwrite" else ""
        if why:
            rung = Rung(name, self._forecast.part(name), Cost(), "not enough evidence", f"{why} {STAYS}")
            return _Tried(rung, self._before)
        spent = Cost()
        try:
            made = self._made(name, checkpoints)
            spent = made.cost
            checked = self._reference is not None and name != "retrain"
            found, state = self._check(name, made) if checked else (None, made.state)
        except DivergedError as error:
            return _Tried(Rung(name, self._forecast.part(name), spent, "diverged", str(error)), None)
        word, reason = self._unchecked(name, made) if found is None else self._told(found)
        rung = Rung(name, self._forecast.part(name), spent, word, reason, found, made.notes, digest(state))
        if self._kept is not None:
            note = {"rung": rung.to_json(), "curves": made.curves, "cost": self._meter.so_far().to_json()}
            self._kept.save(name, state, note)
        return _Tried(rung, self._before if STAYS in rung.reason else state, made.curves)

    def _made(self, name: str, checkpoints: CheckpointStore | None) -> Forgetting:
        """The model of a rung, always from the model before."""
        if name == "retrain" and self._training is not None:
            return retrained_by(self._training, self._meter, self._requests, self._served, self._schedule)
        reference, overrides = self._reference, dict[str, Any]()
        if name == "overwrite" and not self._sees:
            overrides["enough"] = 0.0 if reference is None else reference.enough
        return forget_with(
            self._federation, self._before, self._requests, self._schedule, name,
            served=self._served, checkpoints=checkpoints, scout=None if reference is None else reference.model,
            **overrides,
        )  # fmt: skip

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
        """The check, and the model that is kept."""
        assert self._reference is not None
        limit = self._settings.limit + self._forecast.left.loss(self._reference.untouched.accuracy)
        with self._meter.measured():
            return self._eyes.check(
                self._reference, made.state, limit, overwritten=name == "overwrite", exact=made.exact
            )  # fmt: skip

    def _told(self, found: Check) -> tuple[str, str]:
        """The word and the reason of a rung that was checked. Where nothing is seen, nothing may be lost."""
        if found.word == "forgotten" and self._leaves_unseen:
            return "not enough evidence", HELD_NOTHING
        worse = found.word == "harmful" or (found.accuracy or 0.0) < 0
        if worse and not found.sees and found.word != "exact":
            return "not enough evidence", f"{found.reason} {STAYS}"
        return found.word, found.reason

    def _unchecked(self, name: str, made: Forgetting) -> tuple[str, str]:
        """The word and the reason where there is nothing to check, or nothing to check by."""
        if made.exact:
            return "exact", " ".join(by_construction(made.assumed)) if made.assumed else NEVER_SAW
        if self._training is not None and name == "retrain" and made.notes:
            return "not enough evidence", made.notes[0]
        return "not enough evidence", GIVEN_WEIGHTS if name == "retrain" else NO_CHECK

    # The end.

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
            rungs=tuple(one.rung for one in tried), checking=checking, retrain=self._forecast.retrain,
        )  # fmt: skip

    def _offer(self) -> str:
        if self._reference is None:
            return " Retrain is sure: --effort retrain."
        seconds = self._reference.seconds
        offered = f" Retrain is sure, and takes about {seconds:.1f} s here: --effort retrain."
        if self._forecast.anew and never_saw(self._meter, self._schedule):
            quicker = self._forecast.part("rebuild") * seconds
            offered += f" So is a rebuilt model here, about {quicker:.1f} s, if it harms nobody: --effort rebuild."
        return offered


SAMPLES_REMEMBERED = frozenset({"gap", "membership"})
"""Measures by which single samples are remembered. Overwriting does not reach such a memory: wherever it was tried, a
further round brought it back (docs/decisions/ladder.md). So the climb begins above it."""
ENDS = ("forgotten", "exact", "not enough evidence")
"""The words of a rung above which nothing is tried."""
SAMPLES = "Overwriting is not tried: single samples are remembered, and such a memory comes back."
DEAR = "Overwriting is not tried: it would cost not much less here than a model that never saw the target."
LOOKS_UNSEEN = "The target is known no better than unseen data of its kind, and nothing else tells that it was seen."
HELD_NOTHING = "The client that leaves set no data aside before the training, so there is nothing to hold it against."
GIVEN_WEIGHTS = "It was retrained, but from weights that were given, and nobody knows what those saw."
NOBODY_HOLDS_OUT = "No other site holds data out, so no check can say what a rung below retrain forgot or spoiled."
NO_CHECK = "A feature is of all data, so there is no unseen data to compare with."
