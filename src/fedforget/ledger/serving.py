"""How a request is served: as its federation serves requests, but for what a person said of this one.

`effort` is one rung that is tried alone, `at_most` the highest; `method` stands in the federation's place, with its
first preset; `accuracy_limit` bounds what it may cost, and `keep_days` how long the models stay that still know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from fedforget.errors import InputError
from fedforget.ledger.checks import MOST_DAYS, check_limit, check_whole
from fedforget.ledger.schema import Federation, Request
from fedforget.methods import LADDER, RUNGS, check_prepared, check_servable, method_settings
from fedforget.requests import ErasureRequest

CHOSEN = "serving chosen"
"""What an event of such a choice is called."""
CHOICES = ("effort", "at_most", "method", "accuracy_limit", "keep_days")


class Choices(TypedDict, total=False):
    """What may be said of one request; None: as its federation has it."""

    effort: str | None
    at_most: str | None
    method: str | None
    accuracy_limit: float | None
    keep_days: int | None


def serving(federation: Federation, choices: Request | Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """(method, preset, settings) of a request with these choices."""
    said = choices if isinstance(choices, Mapping) else {name: getattr(choices, name) for name in CHOICES}
    if said.get("effort") is not None:
        return LADDER, "default", {"lowest": said["effort"], "at_most": said["effort"]}
    method, preset, settings = federation.method, federation.preset, dict(federation.settings)
    if said.get("method") not in (None, method):
        method, settings = str(said["method"]), {}
        preset, _ = method_settings(method)
    if said.get("at_most") is not None:
        settings["at_most"] = said["at_most"]
    return method, preset, settings


def limit_of(federation: Federation, request: Request) -> float:
    """How far retained accuracy may fall for this request."""
    return federation.accuracy_limit if request.accuracy_limit is None else request.accuracy_limit


def check_choices(federation: Federation, target: ErasureRequest, choices: Mapping[str, Any]) -> None:
    """Refuse in a sentence what could not be done."""
    for name in choices.keys() - {*CHOICES}:
        raise InputError(f"There is no choice '{name}'; there are {', '.join(CHOICES)}.")
    effort, at_most, method = choices.get("effort"), choices.get("at_most"), choices.get("method")
    for rung in (effort, at_most):
        if rung is not None and rung not in RUNGS:
            raise InputError(f"The rung '{rung}' is unknown; choose one of {', '.join(RUNGS)}.")
    if effort is not None and (at_most is not None or method not in (None, LADDER)):
        raise InputError("One rung alone was named, so neither a highest rung nor a method goes with it; choose one.")
    if at_most is not None and (method or federation.method) != LADDER:
        raise InputError("A highest rung is about the ladder; choose the method ladder, or leave the rung out.")
    name, preset, settings = serving(federation, choices)
    chosen = method_settings(name, preset, **settings)[1]
    check_servable(name, chosen, [target])
    check_prepared(federation.description.get("serving"), name, chosen)
    if choices.get("accuracy_limit") is not None:
        check_limit(choices["accuracy_limit"])
    if choices.get("keep_days") is not None:
        check_whole("keep_days", choices["keep_days"], 0, MOST_DAYS)
