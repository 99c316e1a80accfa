"""The guard for later rounds (not in the paper): what the forgetting moved most may not move back."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedforget.federation.cost import Meter
from fedforget.federation.guard import Guard
from fedforget.methods.fedaf.settings import PaperSettings
from fedforget.params import State, trainable

HELD = "Every later round must be held to this model's guard, as it was where it was measured what comes back."


def hold(federation: Meter, original: Mapping[str, Tensor], forgotten: State, settings: PaperSettings) -> None:
    """From here on rounds are held to what was forgotten, now and before."""
    if federation.guard is not None:
        federation.guard = federation.guard.including(forgotten)
    if settings.held:
        own = Guard.of(original, forgotten, trainable(federation.model), settings.held)
        federation.guard = own if federation.guard is None else federation.guard.then(own)
        federation.notes.append(HELD)
