"""Which rungs a climb tries, and why not the others: from what is known before the first one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from fedforget.audit.check import NOTHING_SEEN
from fedforget.errors import InputError
from fedforget.federation.sight import Sight, difference_error
from fedforget.methods import LadderSettings
from fedforget.models import Prepared
from fedforget.requests import ErasureRequest
from fedforget.runs.forecast import Forecast
from fedforget.runs.reference import Reference

SAMPLES_REMEMBERED = frozenset({"gap", "membership"})
"""Measures by which single samples are remembered. Overwriting does not reach such a memory: wherever it was tried, a
further round brought it back (docs/decisions/ladder.md). So the climb begins above it."""
SAMPLES = "Overwriting is not tried: single samples are remembered, and such a memory comes back."
DEAR = "Overwriting is not tried: it would cost not much less here than a model that never saw the target."
LOOKS_UNSEEN = "The target is known no better than unseen data of its kind, and nothing else tells that it was seen."
TELLS = 0.03
"""The largest standard error at which the other sites' unseen data tells whether a model does harm."""
FEW_HELD_OUT = (
    "The other sites hold out too few samples to tell whether a rebuilt model serves them as well, so the app's own "
    "rounds train it anew. at_most bounds the climb."
)
NOBODY_HOLDS_OUT = "No other site holds data out, so no check can say what a rung below retrain forgot or spoiled."


def of_a_feature(requests: Sequence[ErasureRequest]) -> bool:
    return any(request.kind == "feature" for request in requests)


def needs_check(model: nn.Module, requests: Sequence[ErasureRequest], settings: LadderSettings) -> bool:
    """Whether a rung may be climbed of which the check has to say something: of a feature there is no unseen data."""
    return not (isinstance(model, Prepared) or of_a_feature(requests) or settings.rungs == ("retrain",))


def leaves_unseen(requests: Sequence[ErasureRequest], reference: Reference | None) -> bool:
    """Whether somebody leaves who set nothing aside: it cannot be asked again, so only a model that never saw it
    counts."""
    leaves = any(request.kind == "client" for request in requests)
    return leaves and reference is not None and not reference.untouched.kind.count


def harm_is_hidden(untouched: Sight) -> bool:
    """Whether a model could be much worse than this one for the others, and their unseen data would not show it."""
    return difference_error(untouched.accuracy, untouched.accuracy) > TELLS


def rungs_to_try(
    model: nn.Module,
    requests: Sequence[ErasureRequest],
    settings: LadderSettings,
    forecast: Forecast,
    reference: Reference | None,
    own_training: bool = False,
) -> tuple[Sequence[str], str]:
    """(the rungs, from the lowest on; what is to be said of those that are left out, if anything). `own_training`:
    Retrain is the rounds of somebody's app, which lower rungs do not train as."""
    rungs = [name for name in settings.rungs if not (of_a_feature(requests) and name == "rebuild")]
    if isinstance(model, Prepared):
        return ["retrain"], ""
    if not needs_check(model, requests, settings):
        return rungs, ""
    if reference is None:
        if "retrain" not in rungs:
            raise InputError(f"{NOBODY_HOLDS_OUT} Let the sites hold data out, or let the climb go up to retrain.")
        return ["retrain"], NOBODY_HOLDS_OUT
    if "retrain" in rungs and reference.seconds < settings.exact_below:
        return ["retrain"], ""
    if own_training and "retrain" in rungs and harm_is_hidden(reference.untouched):
        return ["retrain"], FEW_HELD_OUT
    if "retrain" in rungs and leaves_unseen(requests, reference):
        steered = forecast.anew and reference.untouched.accuracy.count
        return [name for name in rungs if name == "retrain" or (name == "rebuild" and steered)], ""
    if rungs[0] == "overwrite" and len(rungs) > 1:
        if reference.sees & SAMPLES_REMEMBERED:
            return rungs[1:], SAMPLES
        if reference.sees and forecast.dear:
            return rungs[1:], DEAR
    return rungs, ""


def why_it_stays(settings: LadderSettings, forecast: Forecast, reference: Reference | None) -> str:
    """Why nothing is overwritten at the lowest rung, where nothing is seen; empty where it is."""
    if reference is None or reference.sees:
        return ""
    if reference.looks_unseen:
        return LOOKS_UNSEEN
    return f"{NOTHING_SEEN} {DEAR}" if forecast.dear and len(settings.rungs) > 1 else ""
