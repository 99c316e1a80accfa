"""Retrain: start afresh and train on everything but the target. The gold standard, and the price to beat.

theta_not* = the same schedule from a fresh initialisation on D \\ R                      (the paper's section 2.1)

This is the one place where a result becomes `exact`, the verdict that no audit gives or takes: the model never saw the
target. That is so where it begins with fresh weights (`is_drawn`), as every round leaves out the target and all that
was served before. It is not so of weights that were given, such as pretrained ones: nobody knows what they saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedforget.federation.cost import Checkpoints, Meter
from fedforget.federation.rounds import Schedule, train
from fedforget.models import fresh_copy
from fedforget.params import State, state_of
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_seed


@dataclass(frozen=True)
class RetrainSettings:
    """Retrain has no knob: it repeats the federation's own schedule. `oracle` is the number of the repetition."""

    oracle: int = 0


def retrain(
    federation: Meter,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: RetrainSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
    checkpoints: Checkpoints | None = None,
) -> tuple[State, dict[str, list[float]]]:
    """The global model of a federation that never had the target."""
    federation.exact = is_drawn(federation.model, schedule, settings)
    with federation.stage("training"):
        saved = None if checkpoints is None else checkpoints.load()
        start, current = saved or (0, fresh_start(federation.model, schedule, settings))
        save = None if checkpoints is None else checkpoints.save
        return train(federation, current, schedule, start=start, exclude=(*served, *requests), on_round=save), {}


def fresh_start(model: nn.Module, schedule: Schedule, settings: RetrainSettings) -> State:
    """New initial weights: Retrain must not inherit the draw that the first training began with."""
    return state_of(fresh_copy(model, derive_seed(schedule.seed, "retrain", settings.oracle)))


def is_drawn(model: nn.Module, schedule: Schedule, settings: RetrainSettings) -> bool:
    """Whether the fresh start is a draw throughout. What another draw has just the same was given to the network, and
    may have been trained; a constant, as most biases are, tells nothing."""
    one, other = (fresh_start(model, schedule, RetrainSettings(settings.oracle + place)) for place in (0, 1))
    names = [name for name, _ in model.named_parameters()]
    given = [name for name in names if torch.equal(one[name], other[name])]
    return all(bool((one[name] == one[name].flatten()[:1]).all()) for name in given)
