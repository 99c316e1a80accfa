"""Retrain: start afresh and train on everything but the target. The gold standard, and the price to beat.

theta_not* = the same schedule from a fresh initialisation on D \\ R                      (the paper's section 2.1)

This is the one place where a result becomes `exact`, the verdict that no audit gives or takes: the model never saw the
target. That is so where it begins with fresh weights (`is_drawn`), as every round leaves out the target and all that
was served before. It is not so of weights that were given, such as pretrained ones: nobody knows what they saw. A
federation that prepared for it (`models.Prepared`) says what it assumes beside.

**Where there are shards** (`federation/shards.py`), only those that hold the target are trained again, from the weights
and with the draws that they had: for as many rounds as the model has behind it, so that the result is, bit for bit,
what training would have come to had the target never been there. The others never saw it and stay as they are. **A
ridge head** (`federation/ridge.py`) is solved again, on the same backbone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedforget.federation.cost import Checkpoints, Meter
from fedforget.federation.ridge import Ridge
from fedforget.federation.rounds import Schedule, run_round_of, train
from fedforget.federation.shards import ROUNDS, TRAINED, Ensemble, begun_again
from fedforget.models import assumed_of, fresh_copy
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
    federation.exact = isinstance(federation.model, Ridge) or is_drawn(federation.model, schedule, settings)
    federation.assumed = assumed_of(federation.model) if federation.exact else ()
    if isinstance(federation.model, Ensemble):
        return _retrain_shards(federation, federation.model, state, requests, settings, schedule, served, checkpoints)
    with federation.stage("training"):
        saved = None if checkpoints is None else checkpoints.load()
        start, current = saved or (0, fresh_start(federation.model, schedule, settings))
        save = None if checkpoints is None else checkpoints.save
        return train(federation, current, schedule, start=start, exclude=(*served, *requests), on_round=save), {}


def _retrain_shards(
    federation: Meter,
    ensemble: Ensemble,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: RetrainSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest],
    checkpoints: Checkpoints | None,
) -> tuple[State, dict[str, list[float]]]:
    """The ensemble of federations that never had the target; another `oracle` than the first begins elsewhere."""
    shards = ensemble.holding(request.client for request in requests)
    fresh = fresh_start(ensemble, schedule, settings) if settings.oracle else None
    with federation.stage("training"):
        saved = None if checkpoints is None else checkpoints.load()
        start, current = saved or (0, begun_again(ensemble, state, shards, fresh))
        for round in range(start, int(state[ROUNDS])):
            task = schedule.train_task(round, (*served, *requests))
            current = run_round_of(shards, federation, ensemble, current, task)
            if checkpoints is not None:
                checkpoints.save(round + 1, current)
    federation.notes += _told(ensemble, federation.clients, shards, current)
    return current, {}


def _told(ensemble: Ensemble, clients: Sequence[int], shards: Sequence[int], state: State) -> list[str]:
    """What a person should know of which shards were trained again."""
    again = ", ".join(f"{shard} (clients {_listed(ensemble.clients_of(shard, clients))})" for shard in shards)
    told = f"Trained again without the target: of {ensemble.shards} shards {again}."
    if len(shards) < ensemble.shards:
        told += " The rest never saw it and stays as it was, bit for bit."
    silent = [shard for shard in shards if not int(state[TRAINED][shard])]
    left = f"No data is left in shard {_listed(silent)}: the mean of the members goes on without it."
    return [told, left] if silent else [told]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


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
