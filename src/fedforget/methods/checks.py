"""What several methods look at in the same way: settings, targets, and replies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedforget.errors import DivergedError, InputError
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import Reply
from fedforget.params import State, first_non_finite
from fedforget.requests import ErasureRequest, covers


def check_numbers(method: str, settings: Any, *, above_zero: Sequence[str] = (), below_one: Sequence[str] = ()) -> None:
    """Refuse settings that are no finite number, 0 or larger. Those in `above_zero` must not be 0 either, and those in
    `below_one` must not reach 1."""
    for item in fields(settings):
        value = getattr(settings, item.name)
        if not isinstance(value, int | float):
            continue
        if not math.isfinite(value) or value < 0 or (value == 0 and item.name in above_zero):
            need = "above 0" if item.name in above_zero else "0 or larger"
            raise InputError(f"{method} setting '{item.name}' is {value}, but it must be a finite number {need}.")
        if item.name in below_one and value >= 1:
            raise InputError(f"{method} setting '{item.name}' is {value}, but it must be below 1.")


def check_settings(method: str, settings: Any, **bounds: Sequence[str]) -> None:
    """The same, and refuse words that a setting's annotation does not name."""
    for item in fields(settings):
        value, options = getattr(settings, item.name), options_of(settings.__class__)[item.name]
        words = words_among(options)
        if isinstance(value, str) and value not in words and str not in options:
            need = f"one of {', '.join(words)}" if words else "a number"
            raise InputError(f"{method} setting '{item.name}' is '{value}', but it must be {need}.")
    check_numbers(method, settings, **bounds)


@cache
def options_of(settings: Any) -> dict[str, tuple[Any, ...]]:
    """The types that each setting's annotation allows, one by one. Resolved once: a request makes a dozen settings."""
    hints = get_type_hints(settings)
    return {name: get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,) for name, hint in hints.items()}


def words_among(options: Sequence[Any]) -> list[str]:
    """The words that a setting takes."""
    return [word for option in options if get_origin(option) is Literal for word in get_args(option)]


def own(requests: Sequence[ErasureRequest], client: int) -> tuple[ErasureRequest, ...]:
    """Those of one client."""
    return tuple(request for request in requests if request.client == client)


def check_targets(federation: Federation, requests: Sequence[ErasureRequest], served: Sequence[ErasureRequest]) -> None:
    """Refuse, before any work, a client that asks for nothing but what it withdrew before."""
    if not served:
        return
    for client in sorted({request.client for request in requests}):
        if not is_new(federation, own(requests, client), own(served, client)):
            raise InputError(f"Client {client} withdrew all of that before; there is nothing left to forget.")


def is_new(federation: Federation, requests: Sequence[ErasureRequest], served: Sequence[ErasureRequest]) -> bool:
    """Whether one client's `requests` take anything that those it had `served` left: a sample, or a feature of some."""
    gone = [request for request in served if request.kind != "feature"]

    def samples(named: Sequence[ErasureRequest]) -> int:
        return sum(size.target for size in federation.check(named).values()) if named else 0

    if samples([*gone, *requests]) == samples(gone):
        return False
    blank = [request.feature for request in served if request.kind == "feature"]
    return any(request.kind != "feature" or not covers(blank, request.feature) for request in requests)


def finite(reply: Reply, method: str) -> State:
    """The reply's tensors; one that is not finite stops the method by name."""
    broken = first_non_finite(reply.tensors)
    if broken is not None:
        raise DivergedError(method, f"client {reply.client} sent a '{broken}' that is not finite.")
    return reply.tensors
