"""The methods: one way to call them. The table of them is in `table.py`.

Adding a method is one file with a function

    def my_method(federation, state, requests, settings, schedule, served=()) -> (new state, curves)

and one line in `METHODS`, with the tasks of its own. It talks to the federation through `ask` alone and never changes
`state`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedforget.errors import DivergedError, InputError
from fedforget.federation.cost import Checkpoints, CheckpointStore, Cost, Meter
from fedforget.federation.history import History
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import Withdraw
from fedforget.methods.checks import check_targets, own
from fedforget.methods.rungs import LADDER, QUICK_S, RUNGS, LadderSettings
from fedforget.methods.table import DEFAULT_METHOD, METHODS, Curves, Method, method_settings, setting_words
from fedforget.models import Prepared
from fedforget.params import State, copy_state, first_non_finite
from fedforget.requests import ErasureRequest

__all__ = [
    "DEFAULT_METHOD",
    "LADDER",
    "METHODS",
    "QUICK_S",
    "RUNGS",
    "Forgetting",
    "LadderSettings",
    "Method",
    "forget",
    "method_settings",
    "setting_words",
]


@dataclass(frozen=True)
class Forgetting:
    """What came of a request: the new global model, what it cost, and the curves seen on the way."""

    state: State
    method: str
    preset: str
    requests: tuple[ErasureRequest, ...]
    cost: Cost
    settings: Any
    curves: Curves = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a person should know of how it went."""
    exact: bool = False
    """Whether the model never saw the target, nor what was served before, by the way it was made: Retrain says so."""
    assumed: tuple[str, ...] = ()
    """What its being exact rests on, where the federation prepared for it."""


def check_history(method: str, history: History | None) -> None:
    """Refuse a method that needs the clients' models of training where none were kept, or not all are there."""
    if method == LADDER or not METHODS[method].needs_history:
        return
    if history is None:
        raise InputError(
            f"Method '{method}' needs the clients' models of training, but none were kept; "
            "train again with --history (in Python: train(..., history=MemoryHistory()))."
        )
    if not history.rounds:
        raise InputError(f"Method '{method}' needs kept rounds of training, but none is done yet; ask again after one.")
    history.check()


def check_servable(method: str, settings: Any, requests: Sequence[ErasureRequest]) -> None:
    """Refuse a method, or settings of it, that cannot serve what these requests ask for, whoever holds the data."""
    if method == LADDER:
        if settings.rungs != ("rebuild",):
            return
        method, settings = "rebuild", METHODS["rebuild"].presets["default"]
    feature, why = next((r for r in requests if r.kind == "feature"), None), METHODS[method].no_feature
    if feature is not None and why:
        can = ", ".join((LADDER, *(name for name, known in METHODS.items() if not known.no_feature)))
        raise InputError(f"Method '{method}' cannot forget {feature.describe()}: {why}; use one of {can}.")
    check = METHODS[method].check
    if check is not None:
        check(settings, requests)


def check_prepared(serving: str | None, method: str, settings: Any) -> None:
    """Refuse what a federation that prepared for forgetting has no use for: there Retrain is exact, and takes little.
    `serving`: what it has, as `models.Prepared` says it."""
    if serving is not None and "retrain" not in (settings.rungs if method == LADDER else (method,)):
        raise InputError(
            f"This federation {serving}, and no other method or rung is tried; leave it out, or name retrain."
        )


def check_before(
    federation: Federation,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    method: str,
    settings: Any,
    served: Sequence[ErasureRequest],
) -> None:
    """Refuse, before any work, what cannot be served: by anybody, by this method, after all that was served, or because
    the model is damaged. Nobody can ask a client that is away what is left there."""
    model = federation.model
    check_prepared(model.serving if isinstance(model, Prepared) else None, method, settings)
    here = set(federation.clients)
    gone = [request for request in served if request.client in here]
    federation.check(requests)
    if gone:
        federation.check((*gone, *requests))
        check_targets(federation, requests, served)
    check_servable(method, settings, requests)
    broken = first_non_finite(state)
    if broken is not None:
        raise InputError(f"The model to forget from is damaged: its '{broken}' is not finite.")


def withdrawals(requests: Sequence[ErasureRequest], schedule: Schedule) -> list[Withdraw]:
    """What each client that asks must note down, one task for each."""
    return [
        Withdraw(seed=schedule.seed, threads=schedule.threads, requests=own(requests, client))
        for client in sorted({request.client for request in requests})
    ]


def forget(
    federation: Federation,
    state: Mapping[str, Tensor],
    requests: ErasureRequest | Sequence[ErasureRequest],
    schedule: Schedule,
    method: str,
    preset: str | None = None,
    *,
    served: Sequence[ErasureRequest] = (),
    checkpoints: CheckpointStore | None = None,
    history: History | None = None,
    scout: State | None = None,
    **overrides: Any,
) -> Forgetting:
    """Make the global model `state` forget the target of `requests`.

    `schedule` is the one the federation trained with; `served` are earlier requests, whose data must stay away;
    `history` is what was kept of training, for the methods that need it. Everything is checked before any work, and
    `state` itself is never changed."""
    if method == LADDER:
        raise InputError("The ladder is no single method; fedforget.forget climbs it, methods.forget runs one method.")
    asked = (requests,) if isinstance(requests, ErasureRequest) else tuple(requests)
    preset, settings = method_settings(method, preset, **overrides)
    check_before(federation, state, asked, method, settings, served)
    check_history(method, history)
    meter = Meter(federation, withdrawals(asked, schedule))
    extra: dict[str, Any] = {}
    if checkpoints is not None and METHODS[method].resumable:
        extra["checkpoints"] = Checkpoints(checkpoints, meter)
    if METHODS[method].from_scout:
        extra["scout"] = scout
    if history is not None and METHODS[method].needs_history:
        extra["history"] = history
        meter.cost.stored_bytes = history.bytes
    with meter.measured():
        forgotten, curves = METHODS[method].run(
            meter, copy_state(state, federation.device), asked, settings, schedule, served, **extra
        )
    broken = first_non_finite(forgotten)
    if broken is not None:
        raise DivergedError(
            f"Method '{method}'", f"parameter '{broken}' is no longer finite; the old model is still in place."
        )
    return Forgetting(
        forgotten, method, preset, asked, meter.cost, settings, curves, tuple(meter.notes), meter.exact, meter.assumed
    )
