"""Does the sketch fit? Its s x m numbers are planned before any work, from the memory that is left.

What is `auto` gives way in this order, and a note says so:

    float32, s rows -> bfloat16, s rows -> bfloat16, fewer rows -> the last layers alone

Sums over bfloat16 rows are made in float32, so a gradient loses its ninth bit and no more. Fewer rows see fewer
directions. Where only the last layers are sketched, only they move in the forgetting (the recovery round moves all):
what does not move needs no protection. What the user set himself is never changed: then it fits, or is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import nn

from fedforget.errors import InputError
from fedforget.federation.cost import Meter
from fedforget.federation.memory import available_bytes
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import TargetSize
from fedforget.methods.fedaf.settings import FullSettings
from fedforget.params import trainable, weight_count
from fedforget.requests import ErasureRequest

FEWEST_ROWS = 50
"""Rather than fewer rows for all layers, so many for the last ones."""
USABLE = 0.8
"""The part of the memory at hand that a sketch may take whose size the user chose."""
PLANNED = 0.5
"""The part that a planned sketch may take: the rest is for activations, gradients and copies of the model."""


@dataclass(frozen=True)
class Plan:
    """What is to be forgotten, where, and how: the same for every step. What was `served` before stays away."""

    federation: Meter
    requests: tuple[ErasureRequest, ...]
    served: tuple[ErasureRequest, ...]
    settings: FullSettings
    schedule: Schedule

    @property
    def exclude(self) -> tuple[ErasureRequest, ...]:
        """What no round may be trained on."""
        return (*self.served, *self.requests)

    @cached_property
    def sizes(self) -> Mapping[int, TargetSize]:
        """How much the clients that ask, or asked before, lose and keep."""
        return self.federation.check(self.exclude)


def planned(federation: Meter, asked: FullSettings, requests: Sequence[ErasureRequest]) -> FullSettings:
    """The settings with numbers for every `auto`, of a sketch that fits; or a refusal, before any work."""
    settings, gave_way = fit_sketch(federation.model, asked, federation.device)
    if requests and settings.preserver in ("sketch", "pca"):
        with only_from(federation.model, settings.first_moved):
            plan_sketch(federation.model, int(settings.sketch_rows), settings.planned_dtype, federation.device)
        federation.notes += [gave_way] if gave_way else []
    return settings


def fit_sketch(model: nn.Module, asked: FullSettings, device: torch.device) -> tuple[FullSettings, str]:
    """(the settings with numbers for every `auto`, of a sketch that fits if any does; what had to give way)."""
    settings = asked.for_network(weight_count(model))
    weights = weight_count(model)
    free = int(PLANNED * available_bytes(device))
    rows = int(settings.sketch_rows)
    if rows * weights * settings.planned_dtype.itemsize <= free:
        return settings, ""
    fitting = replace(settings, sketch_dtype="bfloat16") if asked.sketch_dtype == "auto" else settings
    if rows * weights * fitting.planned_dtype.itemsize <= free:
        return fitting, _note(f"it is kept as {fitting.sketch_dtype}")
    if asked.sketch_rows != "auto":
        return settings, ""  # who asks for so many rows is told that they do not fit
    fewer = free // (weights * fitting.planned_dtype.itemsize)
    if fewer >= FEWEST_ROWS:
        return replace(fitting, sketch_rows=fewer), _note(f"it has {fewer} rows of {fitting.sketch_dtype}, not {rows}")
    first = _last_layers(model, free // (FEWEST_ROWS * fitting.planned_dtype.itemsize))
    if first is None:
        return settings, ""
    return (
        replace(fitting, sketch_rows=FEWEST_ROWS, first_moved=first),
        _note(
            f"it has {FEWEST_ROWS} rows of {fitting.sketch_dtype} over the layers from '{first}' on, and only they move"
        ),
    )


def plan_sketch(model: nn.Module, rows: int, dtype: torch.dtype, device: torch.device) -> int:
    """Bytes of the s x m sketch, or a refusal, before any work, that says which s would fit."""
    size = weight_count(model)
    per_row = size * dtype.itemsize
    needed, free = rows * per_row, int(USABLE * available_bytes(device))
    if needed > free:
        fits = free // per_row
        advice = f"use {fits} rows or fewer" if fits else "use a smaller model"
        smaller = {torch.int64: ", or set sketch_masked to false", torch.float32: ", or store it as bfloat16"}
        raise InputError(
            f"A sketch of {rows} rows for {size:,} parameters needs {needed / 2**30:.2f} GiB, but only "
            f"{free / 2**30:.2f} GiB of memory may be used; {advice}{smaller.get(dtype, '')}."
        )
    return needed


def _note(what: str) -> str:
    return f"The whole sketch would not fit into memory, so {what}."


def _last_layers(model: nn.Module, weights: int) -> str | None:
    """The first of the last parameters that have no more than so many weights together."""
    first = None
    for name, parameter in reversed(trainable(model).items()):
        weights -= parameter.numel()
        if weights < 0:
            break
        first = name
    return first


@contextmanager
def only_from(model: nn.Module, first: str | None) -> Iterator[None]:
    """Inside, only the parameter `first` and those after it can be trained; None: all that could be."""
    parameters = trainable(model)
    fixed = [] if first is None else list(parameters)[: list(parameters).index(first)]
    for name in fixed:
        parameters[name].requires_grad_(False)
    try:
        yield
    finally:
        for name in fixed:
            parameters[name].requires_grad_(True)
