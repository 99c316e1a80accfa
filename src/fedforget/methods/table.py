"""The table of the methods, and their settings by name. Adding a method is one line here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import NoneType
from typing import Any

from fedforget.errors import InputError
from fedforget.federation.beside import CountBeside, CountElsewhere
from fedforget.federation.tasks import Task
from fedforget.methods import cdp, federaser, fedosd, fedquit, frr, negation, pgd, sga
from fedforget.methods.checks import options_of, words_among
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
from fedforget.methods.rungs import LADDER, LadderSettings
from fedforget.params import State
from fedforget.requests import ErasureRequest

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
