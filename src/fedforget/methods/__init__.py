"""The methods: one table, one way to call them.

Adding a method is one file with a function

    def my_method(federation, state, requests, settings, schedule, served=()) -> (new state, curves)

and one line in `METHODS`, with the tasks of its own. It talks to the federation through `ask` alone and never changes
`state`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import NoneType
from typing import Any

from torch import Tensor

from fedforget.errors import DivergedError, InputError
from fedforget.federation.beside import CountBeside, CountElsewhere
from fedforget.federation.cost import Checkpoints, CheckpointStore, Cost, Meter
from fedforget.federation.history import History
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import Task, Withdraw
from fedforget.methods import cdp, federaser, fedosd, fedquit, frr, negation, pgd, sga
from fedforget.methods.checks import check_targets, options_of, own, words_among
from fedforget.methods.features import ReadFeatures
from fedforget.methods.fedaf.extensions.masked_sketch import BuildMaskedSketch, OfferKey
from fedforget.methods.fedaf.forgetting import Forget
from fedforget.methods.fedaf.method import forget_with_fedaf
from fedforget.methods.fedaf.settings import (
    CONVENTIONAL,
    CONVENTIONAL_REPLACING,
    LITERAL,
    OVERWRITE,
    PAPER,
    OverwriteSettings,
)
from fedforget.methods.fedaf.sketching import BuildSketch
from fedforget.methods.rebuild import RebuildSettings, rebuild
from fedforget.methods.retrain import RetrainSettings, retrain
from fedforget.methods.rungs import LADDER, RUNGS, LadderSettings
from fedforget.models import Prepared
from fedforget.params import State, copy_state, first_non_finite
from fedforget.requests import ErasureRequest

__all__ = [
    "DEFAULT_METHOD",
    "LADDER",
    "METHODS",
    "RUNGS",
    "Forgetting",
    "LadderSettings",
    "Method",
    "forget",
    "method_settings",
]
Curves = dict[str, list[float]]


@dataclass(frozen=True)
class Method:
    """A row of the table: the function, and its settings by preset. The first preset is the default."""

    run: Callable[..., tuple[State, Curves]]
    presets: Mapping[str, Any]
    summary: str
    tasks: tuple[type[Task], ...] = ()
    """What it asks of clients beside the tasks of every method (`federation/tasks.py`)."""
    resumable: bool = False
    """Whether the function takes `checkpoints` and goes on where an interruption left it."""
    from_scout: bool = False
    """Whether the function takes `scout`, which the ladder has trained."""
    needs_history: bool = False
    """Whether the function takes `history`, the clients' models that were kept in training."""
    no_feature: str = ""
    """Why it cannot serve a feature request; empty if it can."""
    check: Callable[[Any, Sequence[ErasureRequest]], object] | None = None
    """Refuses what the method cannot serve with its settings, whoever holds the data."""


FEDAF_TASKS = (Forget, BuildSketch, OfferKey, BuildMaskedSketch, ReadFeatures)
_SAMPLES_STAY = "it takes back what the samples' labels taught, and the samples stay"
_PAPER_SAYS_NOTHING = "it is the paper's, which says nothing of features"
METHODS: dict[str, Method] = {
    "overwrite": Method(
        forget_with_fedaf, {"default": OVERWRITE}, "overwrite the target with new memories: our FedAF", FEDAF_TASKS
    ),
    "rebuild": Method(
        rebuild,
        {"default": RebuildSettings()},
        "break the weights, and train on without the target for a short time",
        (CountBeside, CountElsewhere),
        from_scout=True,
        no_feature="it asks how well the target is known beside unseen data, and a feature is of all data",
    ),
    "retrain": Method(retrain, {"default": RetrainSettings()}, "train afresh without the target", resumable=True),
    "fedaf": Method(
        forget_with_fedaf,
        {"paper": PAPER, "literal": LITERAL},
        "the paper's FedAF",
        FEDAF_TASKS,
        no_feature=_PAPER_SAYS_NOTHING,
    ),
    "fedaf-c": Method(
        forget_with_fedaf,
        {"default": CONVENTIONAL, "replace": CONVENTIONAL_REPLACING},
        "new memories without the knowledge preserver",
        FEDAF_TASKS,
        no_feature=_PAPER_SAYS_NOTHING,
    ),
    "frr": Method(
        frr.retrain_rapidly,
        {"paper": frr.PAPER, "code": frr.CODE},
        "train afresh in second-order steps",
        (frr.TrainSecondOrder,),
        resumable=True,
    ),
    "sga": Method(
        sga.ascend,
        {"ewc": sga.EWC, "plain": sga.PLAIN},
        "climb the target's loss",
        (sga.Ascend, sga.MeasureFisher),
        no_feature=_SAMPLES_STAY,
    ),
    "cdp": Method(
        cdp.prune_and_tune,
        {"paper": cdp.PAPER, "code": cdp.CODE},
        "prune the channels that know the class",
        (cdp.MeasureActivity,),
        no_feature="it prunes the channels of a class, and a feature is of every class",
        check=lambda settings, requests: cdp.classes_of(requests),
    ),
    "pgd": Method(
        pgd.forget_with_pgd,
        {"default": pgd.PGDSettings()},
        "climb the target's loss near the others' mean",
        (pgd.Climb,),
        no_feature=_SAMPLES_STAY,
    ),
    "federaser": Method(
        federaser.forget_with_federaser,
        {"default": federaser.FedEraserSettings()},
        "go through the kept rounds again without the target",
        needs_history=True,
    ),
    "fedquit": Method(
        fedquit.forget_with_fedquit,
        {"default": fedquit.FedQUITSettings()},
        "imitate oneself without the trained label",
        (fedquit.Distil,),
        no_feature=_SAMPLES_STAY,
    ),
    "fedosd": Method(
        fedosd.forget_with_fedosd,
        {"default": fedosd.FedOSDSettings()},
        "forget across the retained gradients",
        (fedosd.MeanGradient,),
        no_feature=_SAMPLES_STAY,
    ),
    "not": Method(
        negation.forget_by_negation, {"default": negation.NegationSettings()}, "negate the first layer and train on"
    ),
}
DEFAULT_METHOD = LADDER
"""It has settings and no row: it is climbed (`runs/ladder.py`), and its rungs are methods."""


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


def method_settings(method: str, preset: str | None = None, /, **overrides: Any) -> tuple[str, Any]:
    """(name of the preset, settings) of a method, with single settings changed by name."""
    if method not in METHODS and method != LADDER:
        raise InputError(f"Method '{method}' is unknown; choose one of {', '.join((LADDER, *METHODS))}.")
    presets = {"default": LadderSettings()} if method == LADDER else METHODS[method].presets
    preset = preset or next(iter(presets))
    if preset not in presets:
        raise InputError(f"Method '{method}' has no preset '{preset}'; choose one of {', '.join(presets)}.")
    chosen = _opened(presets[preset], overrides)
    names = [item.name for item in fields(chosen)]
    for name in overrides:
        if name not in names:
            more = ". For a setting of one method, name that method" if method == LADDER else ""
            raise InputError(f"Method '{method}' has no setting '{name}'; it has {', '.join(names)}{more}.")
    _check_types(method, chosen, overrides)
    return preset, replace(chosen, **overrides)


def _opened(settings: Any, names: Iterable[str]) -> Any:
    """The settings themselves; FedAF's with all that our way has settled, where one of the names is of these: so an
    ablation takes a preset of ours apart."""
    opened = settings.opened() if isinstance(settings, OverwriteSettings) else settings
    added = {item.name for item in fields(opened)} - {item.name for item in fields(settings)}
    return opened if added.intersection(names) else settings


def setting_words(settings: Any, name: str) -> list[str]:
    """The words that a setting takes; none where there is no such setting."""
    return words_among(options_of(_opened(settings, [name]).__class__).get(name, ()))


def _check_types(method: str, preset: Any, overrides: Mapping[str, Any]) -> None:
    """Refuse a value that the setting's annotation rules out: a word for a number, a fraction for a count, NaN."""
    for name, value in overrides.items():
        options = options_of(preset.__class__)[name]
        words = words_among(options)
        numbers = [option for option in options if option in (int, float)]
        if isinstance(value, bool) or value is None:
            fits = type(value) in options
        elif isinstance(value, int | float):
            fits = (float in numbers or (int in numbers and isinstance(value, int))) and 0 <= value < math.inf
        else:
            fits = isinstance(value, str) and (value in words or str in options)
        if not fits:
            count = "a whole number, 0 or larger" if int in numbers else "a finite number, 0 or larger"
            allowed = [*([count] if numbers else []), *words, *(["true", "false"] if bool in options else [])]
            allowed += ["a name"] if str in options else []
            allowed += ["none"] if NoneType in options else []
            shown = f"'{value}'" if isinstance(value, str) else "none" if value is None else value
            raise InputError(f"Setting '{name}' of '{method}' is {shown}, but it must be {' or '.join(allowed)}.")


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
