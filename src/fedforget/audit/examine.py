"""Examine models: take every measure of a level on the model before, on the model that forgot, and on the oracles.

    alone    no oracle: figures, and no verdict but `exact`; what decides and retrains nothing is `audit.check`
    quick    3 oracles. Accuracy and loss on R, four attacks, what comes back after 1 round, and held-out samples of
             R's classes and of all. The loss on an honest target stands beside that on unseen samples of its kind
             (docs/decisions/audit.md)
    full     8 oracles, and what comes back after 1, 3 and 5 rounds

What is measured on private data is measured at the client that asks. Each figure becomes a `Reading`, and `judge` turns
the readings of all models into evidence and a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from torch import Tensor

from fedforget.audit.case import Case, Level
from fedforget.audit.distributions import FEWEST_JUDGED, percentage
from fedforget.audit.durability import ROUNDS, durability
from fedforget.audit.feature_sensitivity import about_features, measure_sensitivity
from fedforget.audit.label_loss import label_loss_gap
from fedforget.audit.measures import measure_clients
from fedforget.audit.membership import attack_membership
from fedforget.audit.verdict import Evidence, Reading, Verdict, conclude
from fedforget.errors import FedForgetError, InputError
from fedforget.federation.observed import Progress
from fedforget.federation.rounds import further_rounds
from fedforget.federation.tasks import Measure
from fedforget.params import State

ORACLES: dict[Level, int] = {"alone": 0, "quick": 3, "full": 8}
LATER: dict[Level, tuple[int, ...]] = {"alone": (1,), "quick": (1,), "full": ROUNDS}
"""After how many further ordinary rounds without R it is looked at again; the last counts for the verdict."""

ACCURACY = "accuracy on the target"
BEYOND = "accuracy on the target, beside unseen data"
REST = "unseen data of all classes"
WITHOUT = "unseen data without the feature"

Measured = TypeVar("Measured")


def check_level(level: str) -> Level:
    if level not in get_args(Level):
        raise InputError(f"Level '{level}' is unknown; choose one of {', '.join(get_args(Level))}.")
    return level  # type: ignore[return-value]


@dataclass(frozen=True)
class Examination:
    """What was read from one model; a measure that could not be taken is not in `readings`, and `notes` say why."""

    readings: dict[str, Reading]
    pictures: dict[str, Any]
    poisoned: bool
    samples: int
    fingerprint: int
    notes: tuple[str, ...] = ()
    feature: bool = False
    """Whether a feature is the target, so that other measures tell."""


def examine(case: Case, state: State, references: Sequence[Mapping[str, Tensor]] = ()) -> Examination:
    """Take every measure of the case's level on one model. `references` are oracles, for RMIA: examined before."""
    if any(request.kind == "feature" for request in case.requests):
        return _examine_feature(case, state)
    readings: dict[str, Reading] = {}
    pictures: dict[str, Any] = {}
    notes: list[str] = []

    def attempt(name: str, measure: Callable[[], Measured]) -> Measured | None:
        """What is measured; None, and a note, where it fails: it is missing then, and the others go on."""
        try:
            return measure()
        except FedForgetError as error:
            notes.append(f"{name} could not be taken: {error}")
            return None

    target, _ = measure_clients(case.federation, state, case.about(Measure))
    poisoned = bool(target.evidence)
    judged = target.evidence or target.count
    hits, right = (target.flipped_hits, target.flipped_as_true) if poisoned else (target.as_trained, target.as_true)
    _take(readings, {ACCURACY: percentage(hits, judged)})
    if poisoned:
        _take(readings, {"true class of the target": percentage(right, judged)})

    attacked = attempt("membership by any attack", lambda: attack_membership(case, state, references))
    samples, fingerprint = target.count, 0
    if attacked is not None:
        samples, fingerprint = attacked.target, attacked.fingerprint
        notes += attacked.notes
        pictures |= attacked.curves
        names = {"calibrated": "calibrated margin"}
        areas = {f"membership by {names.get(name, name)}": area for name, area in attacked.areas.items()}
        _take(readings, areas)
        gap = attacked.loss_gap
        if poisoned and "loss" in attacked.areas:
            gap = attempt(_loss(poisoned), lambda: label_loss_gap(case, state))
        _take(readings, {
            _loss(poisoned): gap,
            "loss spared, beside unseen data": attacked.calibrated_gap,
            "unseen data of the same classes": attacked.same_classes,
            REST: attacked.all_classes,
        })  # fmt: skip
        if not poisoned and ACCURACY in readings and REST in readings:
            known, rest = readings[ACCURACY], readings[REST]
            readings[BEYOND] = Reading(known.value - rest.value, math.hypot(known.error, rest.error))
    if judged < FEWEST_JUDGED:
        notes.append(f"Only {judged} of the target can be judged, and no share of fewer than {FEWEST_JUDGED} is read.")

    def back() -> Reading | None:
        lasting = durability(case, state, LATER[case.level])
        pictures["comes back"] = lasting.to_json()
        share = lasting.known[-1].bd_acc
        return None if share is None else percentage(share / 100.0 * judged, judged)

    _take(readings, {"comes back": attempt("comes back", back)})
    return Examination(readings, pictures, poisoned, samples, fingerprint, tuple(notes))


def _examine_feature(case: Case, state: State) -> Examination:
    """The samples stay, so nothing that asks for them can tell: it is the sensitivity to the feature that is looked at,
    now and after further rounds, and the accuracy without the feature."""
    size = sum(part.target for part in case.federation.check(case.requests).values())
    if not about_features(case.requests):
        why = "Features and samples cannot be judged together; serve and audit each request by itself."
        return Examination({}, {}, False, size, 0, (why,), feature=True)

    now = measure_sensitivity(case, state)
    readings: dict[str, Reading] = {}
    _take(readings, {"sensitivity to the feature": now.target, "sensitivity on unseen data": now.unseen})
    *_, (_, later) = further_rounds(case.federation, state, case.schedule, case.exclude, LATER[case.level][-1])
    _take(readings, {"sensitivity comes back": measure_sensitivity(case, later).target})
    _take(readings, {WITHOUT: percentage(now.right, now.count)})
    return Examination(readings, {}, False, size, 0, feature=True)


def _take(readings: dict[str, Reading], found: Mapping[str, Reading | None]) -> None:
    readings.update({name: reading for name, reading in found.items() if reading is not None})


def _loss(poisoned: bool) -> str:
    """What a model that is less sure of everything, or trained for a shorter time, loses on honest samples is no sign
    that it saw them: so the loss stands beside that on unseen data of their kind. A backdoor spreads to that, and is
    held against unseen data without the trigger (`audit.label_loss`)."""
    return "loss below clean unseen data" if poisoned else "loss below unseen data"


def judge(
    subject: Examination,
    before: Examination | None,
    oracles: Sequence[Examination],
    *,
    exact: bool = False,
    assumed: Sequence[str] = (),
) -> tuple[list[Evidence], Verdict]:
    """The readings side by side, and what they say. A measure of the level that somebody lacks is missing, not passed.

    On a poisoned target a model that gives the poisoned label less often than an oracle is not over-forgotten: there
    the true class tells. A model that knows honest data better than an oracle, and all unseen data too, is just better:
    there the accuracy stands beside that on unseen data (`BEYOND`). The entropy has no end that would be worse than
    never having seen R. What the model knows of all classes (`REST`) has that end alone. `exact`: the subject never saw
    the target, by the way it was made, and `assumed` is what that rests on."""
    poisoned = subject.poisoned

    def compared(name: str, over: bool = True, memory: bool = True, rest: bool = False) -> Evidence:
        return Evidence(
            name, "high", subject.readings.get(name), None if before is None else before.readings.get(name),
            tuple(o.readings[name] for o in oracles) if all(name in o.readings for o in oracles) else (),
            over, memory, rest,
        )  # fmt: skip

    if subject.feature:
        names = ["sensitivity to the feature", "sensitivity on unseen data", "sensitivity comes back"]
        evidence = [*map(compared, names), compared(WITHOUT, memory=False, rest=True)]
        return evidence, conclude(evidence, with_oracle=True, exact=exact, assumed=assumed)
    evidence = [compared(BEYOND if BEYOND in subject.readings else ACCURACY, over=not poisoned)]
    if poisoned:
        evidence.append(compared("true class of the target", memory=False))
    evidence += [
        compared(_loss(poisoned), over=not poisoned),
        compared("membership by loss", over=not poisoned),
        compared("membership by entropy", over=False),
        compared("membership by rmia", over=not poisoned),
        compared("membership by calibrated margin", over=not poisoned),
        compared("loss spared, beside unseen data", over=not poisoned),
        compared("comes back", over=not poisoned),
        compared("unseen data of the same classes", memory=False),
        compared(REST, memory=False, rest=True),
    ]
    return evidence, conclude(evidence, with_oracle=True, exact=exact, assumed=assumed)


def examine_oracles(case: Case, oracles: Sequence[State], progress: Progress) -> list[Examination]:
    """Every oracle, with the others as its references."""
    for state in oracles:
        attack_membership(case, state)
    found = []
    for number, state in enumerate(oracles):
        progress("examining oracles", number, len(oracles))
        found.append(examine(case, state, [other for other in oracles if other is not state]))
    progress("examining oracles", len(oracles), len(oracles))
    return found
