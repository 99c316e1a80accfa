"""The check between two rungs of the ladder: may the climb stop here? No model is retrained for it.

It looks at three models through the clients' eyes (`federation.beside`): the untouched one, the one that forgot, and a
*scout*, a fresh model that was trained without R for a small part of the training. R the target, K unseen data of its
kind, U the other clients' unseen data; r, k, u the shares that a model gives the label they were trained on.

    gap          r - k                          single samples are remembered
    membership   AUC(loss; R against K) - 1/2   so too, beyond the label
    excess       r - r_s u / u_s                R is known better than it would be by a model that never saw it: one
                                                that knows R beside U as the scout does (s). This sees a backdoor, and
                                                whatever else spreads from R to unseen data of its kind
    return       rise of r - rise of u          in a further round without R, of a model that was overwritten

Each is 0 for data that was never seen, up to what fresh Retrains differ by. So a measure with value v and standard
error e has the margin

    m = base + 3 e                              `BASE`, fixed on fresh Retrains (docs/decisions/check.md); of the gap
                                                at most half of what the untouched model does not know of K

    passes   v + z e < m: the upper confidence bound lies below the margin
    sees     the untouched model does not pass, and v - z e > base there: here this measure can tell
    accuses  v - z e > m on the model that forgot

where z leaves LEVEL / looks at each end. A rung is `forgotten` if some measure sees, every measure that sees passes, at
once and after a further round, and none accuses. Where no measure sees, a pass would prove nothing: the word is
`not enough evidence`, and who climbs does not use a model that knows other data any worse."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.audit.attacks import auc
from fedforget.audit.membership import FEWEST
from fedforget.audit.verdict import Reading
from fedforget.federation.beside import CountBeside, Sight, difference_error
from fedforget.federation.client import Client
from fedforget.federation.tasks import Reply

LEVEL = 0.1
"""The chance that memory beyond the margin passes, over all looks together."""
BASE = {"gap": 0.06, "membership": 0.03, "excess": 0.04, "return": 0.04}
"""What fresh Retrains differ by beside sampling error."""
ERRORS = 3.0
BETTER = 3.0
"""Where the model knows more than so many times as much of U as the scout does, the ratio says nothing."""

CheckWord = Literal["forgotten", "exact", "not forgotten", "harmful", "not enough evidence"]


@dataclass(frozen=True, kw_only=True)
class CheckBeside(CountBeside):
    """The same counts on the half that nobody steers by, and the AUC of the loss."""

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        both, logits = self.predictions(state, client)
        reply = self.counted(client, both, logits)
        if min(map(len, both)) < FEWEST or not all(bool(torch.isfinite(scores).all()) for scores in logits):
            return reply
        losses = [
            -F.cross_entropy(scores, samples.labels.cpu(), reduction="none")
            for samples, scores in zip(both, logits, strict=True)
        ]
        area = auc(*losses)
        assert area is not None, "neither side is empty"
        reply.numbers.update({"area": area.value, "area/error": area.error})
        return reply


@dataclass(frozen=True)
class Measured:
    """One measure on one model, as a share, and its margin."""

    name: str
    value: float
    error: float
    margin: float
    says: Literal["passes", "accuses", "unclear"]


@dataclass(frozen=True)
class Check:
    """What the check says of one rung, and why."""

    word: CheckWord
    reason: str
    sees: tuple[str, ...]
    """The measures that tell the untouched model from one that never saw R."""
    measured: tuple[Measured, ...] = ()
    accuracy: float | None = None
    """How many of the other clients' unseen samples the model knows, less those that the untouched one knows."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"sees": list(self.sees), "measured": [asdict(item) for item in self.measured]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Check:
        measured = tuple(Measured(**item) for item in values["measured"])
        return cls(values["word"], values["reason"], tuple(values["sees"]), measured, values["accuracy"])


def expected_share(model: Sight, scout: Sight | None, overwritten: bool) -> Reading | None:
    """r_s u / u_s: how much of R a model as good as this one knows that never saw it; None where nobody can tell. Of a
    scout that knows too little u itself: no model knows data that it never saw better than other such data. But a
    backdoor is known much less, so of a model that was only overwritten nobody can tell then. Where nobody else holds
    R's labels, u is of all that the others hold out: the scout knows nothing of such an R, so neither should a model
    that never saw it."""
    if scout is None or not scout.target.count:
        return None
    alone = model.known is None
    u, of_scout = _elsewhere(model, alone), _elsewhere(scout, alone)
    if u is None or of_scout is None:
        return None
    known = u.value
    if known > BETTER * of_scout.value or not of_scout.value:
        return None if overwritten or alone else u
    ratio = scout.target.value / of_scout.value
    errors = scout.target.error * known, scout.target.value * u.error, ratio * known * of_scout.error
    return Reading(min(1.0, ratio * known), math.hypot(*errors) / of_scout.value)


def _elsewhere(sight: Sight, alone: bool) -> Reading | None:
    """u, of R's labels, or of all labels where those are the asker's alone."""
    if alone:
        return Reading(sight.accuracy.value, sight.accuracy.error) if sight.accuracy.count else None
    return None if sight.known is None else Reading(sight.known, sight.known_error)


def memory(
    model: Sight, scout: Sight | None, now: Sight | None = None, overwritten: bool = False
) -> dict[str, Reading]:
    """The measures that can be taken; `now` is the same model before a further round."""
    found: dict[str, Reading] = {}
    if model.gap is not None:
        found["gap"] = Reading(model.gap, model.gap_error)
    if model.area is not None:
        found["membership"] = Reading(model.area[0] - 0.5, model.area[1])
    expected = expected_share(model, scout, overwritten)
    if expected is not None and model.target.count:
        error = math.hypot(model.target.error, expected.error)
        found["excess"] = Reading(model.target.value - expected.value, error)
    if now is not None and model.target.count and model.known is not None and now.known is not None:
        rise = (model.target.value - now.target.value) - (model.known - now.known)
        found["return"] = Reading(rise, math.hypot(model.target.error, now.target.error))
    return found


def base_of(name: str, untouched: Sight) -> float:
    """Of data that is known well no gap is large: at 94 % of K, 6 points are all that there can be."""
    if name != "gap" or not untouched.kind.count:
        return BASE[name]
    return min(BASE[name], (1 - untouched.kind.value) / 2)


def judged(readings: Mapping[str, Reading], untouched: Sight, looks: int, when: str = "") -> list[Measured]:
    """Each measure beside its margin."""
    z, found = quantile(looks), []
    for name, reading in readings.items():
        margin = base_of(name, untouched) + ERRORS * reading.error
        low, high = reading.value - z * reading.error, reading.value + z * reading.error
        says: Literal["passes", "accuses", "unclear"] = (
            "passes" if high < margin else "accuses" if low > margin else "unclear"
        )
        found.append(Measured(name + when, reading.value, reading.error, margin, says))
    return found


def quantile(looks: int) -> float:
    """z."""
    return NormalDist().inv_cdf(1 - LEVEL / looks)


def seen_in(untouched: Sight, scout: Sight | None, looks: int) -> tuple[str, ...]:
    """The measures by which the untouched model is told from one that never saw R."""
    measured, z = judged(memory(untouched, scout), untouched, looks), quantile(looks)
    failed = [item for item in measured if item.says != "passes"]
    return tuple(item.name for item in failed if item.value - z * item.error > base_of(item.name, untouched))


def check(
    untouched: Sight,
    model: Sight,
    later: Sight | None,
    scout: Sight | None,
    *,
    looks: int,
    limit: float,
    overwritten: bool = False,
    exact: bool = False,
) -> Check:
    """What the check says of `model`, and of `later`, the same one further round on. `limit`: how much accuracy may go.
    Of a model that was only `overwritten` a rise in the further round accuses it, and the later model is kept. Of one
    that never saw R, and is `exact`, only the accuracy is asked for."""
    sees = seen_in(untouched, scout, looks)
    measured = judged(memory(model, scout, None, overwritten), untouched, looks)
    if later is not None:
        now = model if overwritten else None
        measured += judged(memory(later, scout, now, overwritten), untouched, looks, LATER)
    kept = later if later is not None and overwritten else model
    lost = loss_of_accuracy(untouched, kept)
    accuracy = None if lost is None else -lost.value

    def told(word: CheckWord, reason: str) -> Check:
        return Check(word, reason, sees, tuple(measured), accuracy)

    accused = [item for item in measured if item.says == "accuses"]
    needed = [*sees, "return"]
    unclear = [item for item in measured if item.says == "unclear" and item.name.removesuffix(LATER) in needed]
    if sees and (accused or unclear) and not exact:
        return told("not forgotten", _sentence((accused or unclear)[0]))
    asked = [name + when for name in sees for when in ("", *([] if later is None else [LATER]))]
    missing = [name for name in asked if name not in {item.name for item in measured}]
    if missing and not exact:
        return told("not forgotten", f"{missing[0].capitalize()} could not be measured on the model that forgot.")
    worse = "" if lost is None else f"The other clients' unseen data is known {100 * lost.value:.1f} points worse."
    if lost is not None and lost.value - lost.error > limit:
        return told("harmful", worse)
    if overwritten and class_lost(untouched, kept):
        return told("harmful", CLASS_LOST)
    if exact:
        return told("exact", NEVER_SAW if lost is not None else f"{NEVER_SAW} {COST_UNKNOWN}")
    if not sees:
        return told("not enough evidence", f"{NOTHING_SEEN} {worse}" if lost and lost.value > 0 else NOTHING_SEEN)
    names = ", ".join(sees)
    why = f"No measure tells it from a model that never saw the target; on the model before, {names} did."
    return told("forgotten", why)


LATER = " one round later"
NEVER_SAW = "It was trained afresh without the target."
COST_UNKNOWN = "Nobody else holds data out, so what it costs others is not known."
CLASS_LOST = "Unseen data with the target's labels, which other clients hold too, is hardly known any more."
NOTHING_SEEN = "Nothing tells the model before from one that never saw the target, so passing would prove nothing."


def loss_of_accuracy(before: Sight, after: Sight) -> Reading | None:
    """How much less of the other clients' unseen data is known."""
    one, other = before.accuracy, after.accuracy
    if not one.count or one.count != other.count:
        return None
    return Reading(one.value - other.value, difference_error(one, other))


def _sentence(item: Measured) -> str:
    """Why a measure does not let the rung pass."""
    return (
        f"{item.name[0].upper()}{item.name[1:]} is {100 * item.value:.1f} points (standard error "
        f"{100 * item.error:.1f}); to pass, it must lie clearly below {100 * item.margin:.1f}."
    )


def class_lost(before: Sight, after: Sight) -> bool:
    """Whether unseen data with R's labels, which other clients hold too, has become unknown: less than half as much of
    it is known as before. Retrain loses some of it, where R was much of what there was; overwriting must not lose it
    all."""
    one, other = before.known, after.known
    return one is not None and other is not None and other < one / 2
