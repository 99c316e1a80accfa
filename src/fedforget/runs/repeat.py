"""Check the verdict `exact` where the data is: train once more on clients that never had the target, and compare bits.

whole    the same training from the recorded seeds; the digest of its model must be that of the model that forgot
spot     for a ridge head, without the dear part of that: the head must solve the normal equations

             sum over x of phi(x) (W^T phi(x) - 10 e_y)^T + lambda W = 0

         which have one solution, so that whatever solves them is the model. The sums A need d numbers for each
         number that this needs, so it takes little beside them; what is left is a pass through the backbone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fedforget.errors import InputError
from fedforget.federation.local import LocalFederation
from fedforget.federation.observed import Progress, Watched, silent
from fedforget.federation.ridge import Ridge
from fedforget.federation.rounds import train
from fedforget.federation.seam import thread_count
from fedforget.federation.shards import ROUNDS, Ensemble
from fedforget.methods.retrain import RetrainSettings, fresh_start
from fedforget.models import Prepared
from fedforget.params import State, copy_state, digest, state_of
from fedforget.requests import describe_requests
from fedforget.runs.folder import Run
from fedforget.runs.forget import results_of
from fedforget.runs.record import Result

CLOSE = 1e-9
"""How far from 0 the normal equations may be, as a part of their largest term: masks round, and so do sums."""


@dataclass(frozen=True)
class Repeated:
    """What was found of one exact model."""

    name: str
    target: str
    digest: str
    """Of the model that forgot."""
    holds: bool
    how: str
    """What was compared, in words."""


def repeat_run(folder: Path, *, spot: bool = False, device: str = "cpu", progress: Progress = silent) -> list[Repeated]:
    """Check every model of a run folder that was retrained and is called exact."""
    run = Run(folder)
    chosen = {place: result for place, result in results_of(run).items() if _retrained(result)}
    if not chosen:
        raise InputError(
            f"{folder} has no model that was retrained and is called exact, so there is nothing to repeat."
        )
    return [_repeated(run, place, result, spot, device, progress) for place, result in chosen.items()]


def _retrained(result: Result) -> bool:
    last = result.rungs[-1].name if result.rungs else result.method
    return result.exact and last == "retrain"


def _repeated(run: Run, place: Path, result: Result, spot: bool, device: str, progress: Progress) -> Repeated:
    schedule, gone = run.config.schedule, (*result.before.served, *result.requests)
    federation = run.config.build_federation(run.config.load_dataset(), device, erased=gone)
    state = copy_state(result.load_model(place), federation.device)
    said = (result.name, describe_requests(result.requests), digest(state))
    if spot:
        if not isinstance(federation.model, Ridge):
            raise InputError(f"{run.folder} has no ridge head, so it can only be repeated as a whole.")
        with thread_count(schedule.threads):
            off = residual(federation, federation.model, state)
        return Repeated(*said, off < CLOSE, f"the normal equations, solved but for {off:.1e} of their largest term")
    model = federation.model
    if isinstance(model, Ensemble):  # a request that came during the training was served after fewer rounds
        schedule = replace(schedule, rounds=int(state[ROUNDS]))
    watched = Watched(federation, "repeating", schedule.rounds * len(federation.clients), progress)
    prepared = isinstance(model, Prepared)  # what is retrained there begins where the first training began
    first = state_of(model) if prepared else fresh_start(model, schedule, RetrainSettings())
    again = train(watched, first, schedule)
    return Repeated(*said, digest(again) == said[2], "the bits of the same training on clients without the target")


def residual(federation: LocalFederation, model: Ridge, state: State) -> float:
    """How far the head in `state` is from solving its equations on what the clients hold, as a part of their largest
    term."""
    model.load_state_dict(state)
    return model.residual((client, client.retained(())) for client in map(federation.client, federation.clients))
