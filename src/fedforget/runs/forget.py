"""Forget on a run folder, between two rounds of its training or after them; `audit` goes on from here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedforget.data.files import make_folder
from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.federation.observed import Progress, Watched, silent
from fedforget.federation.seam import Federation
from fedforget.methods import (
    DEFAULT_METHOD,
    LADDER,
    METHODS,
    Forgetting,
    check_history,
    check_prepared,
    check_servable,
    method_settings,
)
from fedforget.models import Prepared
from fedforget.params import State
from fedforget.requests import ErasureRequest, describe_requests, requests_id
from fedforget.runs.climb import SCOUT_RUNG, Climb
from fedforget.runs.folder import Run, Trunk
from fedforget.runs.ladder import forget
from fedforget.runs.record import MODEL, RESULT, Result
from fedforget.runs.store import FolderRungs, NotedModel, save_model
from fedforget.runs.told import TellingRungs


def serve_queue(run: Run, federation: Federation, state: State) -> State:
    """Serve what arrived since the last round. The trunk itself moves: later rounds train without the targets."""
    for path in run.queued():
        asked = read_queued(path)
        method, preset = asked.method, asked.preset
        fresh = tuple(request for request in asked.requests if request not in run.served)
        if fresh:
            unfinished = _Unfinished(run, fresh, method, preset, asked.settings, (run.served, run.rounds_done))
            try:
                result = forget(
                    federation, state, fresh, run.config.schedule, method, preset,
                    served=run.served, history=run.history, checkpoints=unfinished.rounds, kept=unfinished.rungs,
                    **asked.settings,
                )  # fmt: skip
            except FedForgetError as error:
                # The request fails, not the run: it leaves the queue, and training can go on without it.
                if isinstance(error, DivergedError):
                    _record_divergence(run, fresh, method, preset, error)
                path.unlink()
                raise
            state = result.state
            record_result(run, result, run.trunk, unfinished.retrain_seconds)
            run.save_round(run.rounds_done, state, (*run.served, *fresh))
            unfinished.clear()
        path.unlink()
    return state


def serve_late(run: Run, federation: Federation, progress: Progress) -> None:
    """Serve what arrived during the last round: after training, every request branches from the trained model.

    The queue is looked at once more after the lock is free, so nobody who found it taken is left waiting."""
    while run.queued():
        with run.training_lock() as alone:
            if not alone:
                return
            for path in run.queued():
                asked = read_queued(path)
                try:
                    branch_off(
                        run, run.trunk, federation, asked.requests, asked.method, asked.preset, progress, asked.settings
                    )
                finally:
                    path.unlink()


@dataclass(frozen=True)
class Asked:
    """A request that waits in the queue."""

    path: Path
    requests: tuple[ErasureRequest, ...]
    method: str
    preset: str
    settings: dict[str, Any]
    job: str = ""
    """The worker's job that it is, if a ledger asked: then the result is examined."""


def read_queued(path: Path) -> Asked:
    try:
        asked = json.loads(path.read_text())
        requests = tuple(ErasureRequest.from_json(values) for values in asked["requests"])
        job = str(asked.get("job", ""))
        return Asked(path, requests, asked["method"], asked["preset"], dict(asked["settings"]), job)
    except (ValueError, KeyError, TypeError):
        raise InputError(f"The queued request {path} is damaged; delete it and ask again.") from None


def forget_run(
    folder: Path,
    requests: Sequence[ErasureRequest],
    method: str = DEFAULT_METHOD,
    preset: str | None = None,
    *,
    progress: Progress = silent,
    device: str = "cpu",
    federation: Federation | None = None,
    adopt: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
    **overrides: Any,
) -> Path | None:
    """Serve requests on a run; the folder of the model that forgot. `say` is told how the climb goes on.

    On a finished run every method branches from the same model, the run's own; `adopt` makes the new one the run's own,
    from which the next request starts. On an unfinished run the request is served before the next round, which trains
    the model that forgot; if another process is training it right now, the request is queued there (None)."""
    run = Run(folder)
    preset, settings = method_settings(method, preset, **overrides)
    if not run.config.attached:  # an attached app's nodes say themselves what they do not hold
        federation = federation or run.config.build_federation(run.config.load_dataset(), device)
        federation.check(requests)
    check_servable(method, settings, requests)
    check_prepared(run.config.serving, method, settings)
    check_history(method, run.history)
    gone = [request for request in requests if request in run.served]
    if gone:
        raise InputError(f"The model has forgotten {describe_requests(gone)} already; there is nothing left to forget.")
    asked = [request.to_json() for request in requests]
    values = {"requests": asked, "method": method, "preset": preset, "settings": overrides}
    if federation is None:
        run.enqueue(requests_id(requests), values)
        return None
    if run.finished:
        branch = branch_off(run, run.trunk, federation, tuple(requests), method, preset, progress, overrides, say)
        if adopt:
            _adopt(run, branch)
        return branch
    run.enqueue(requests_id(requests), values)
    with run.training_lock() as alone:
        if not alone:
            return None
        if not run.finished:
            serve_queue(run, federation, run.load_model())
    if run.finished:
        serve_late(run, federation, progress)
    folder = branch_folder(run, requests, method, preset)
    return folder if (folder / RESULT).exists() else None


def branch_folder(run: Run, requests: Sequence[ErasureRequest], method: str, preset: str) -> Path:
    return run.folder / "forgotten" / f"{method}-{preset}-{requests_id(requests)}"


def _adopt(run: Run, branch: Path) -> None:
    """Make the model of `branch` the run's own."""
    result = Result.read(branch)
    if result.before != run.trunk:
        raise InputError(f"{run.folder} has another model by now than the one {branch} began from; forget again.")
    served = (*run.served, *result.requests)
    run.save_round(run.rounds_done, result.load_model(branch), served)


def branch_off(
    run: Run,
    trunk: Trunk,
    federation: Federation,
    requests: tuple[ErasureRequest, ...],
    method: str,
    preset: str,
    progress: Progress,
    overrides: Mapping[str, Any],
    say: Callable[[str], None] = lambda sentence: None,
) -> Path:
    folder = branch_folder(run, requests, method, preset)
    schedule = run.config.schedule
    whole = method == LADDER or METHODS[method].resumable
    working = len(federation.clients)
    if isinstance(federation.model, Prepared):
        working = len(federation.model.clients_beside({r.client for r in requests}, federation.clients))
    total = schedule.rounds * working if whole else working + 1
    watched = Watched(federation, method if preset == "default" else f"{method} ({preset})", total, progress)
    unfinished = _Unfinished(run, requests, method, preset, overrides, (trunk.served,))
    try:
        result = forget(
            watched, run.load_trunk(trunk), requests, schedule, method, preset,
            served=trunk.served, checkpoints=unfinished.rounds, history=run.history,
            kept=TellingRungs(unfinished.rungs, say), say=say, **overrides,
        )  # fmt: skip
    except DivergedError as error:
        _record_divergence(run, requests, method, preset, error)
        raise
    record_result(run, result, trunk, unfinished.retrain_seconds)
    unfinished.clear()
    return folder


class _Unfinished:
    """What a request's folder keeps of its method or climb, so that a killed one goes on: at its rung, or its round."""

    def __init__(
        self,
        run: Run,
        requests: Sequence[ErasureRequest],
        method: str,
        preset: str,
        overrides: Mapping[str, Any],
        begun: tuple[Any, ...],
    ) -> None:
        """`begun` says where it began; what began elsewhere does not count."""
        folder = branch_folder(run, requests, method, preset)
        belongs = (method_settings(method, preset, **overrides)[1], *begun)
        self.rounds = NotedModel(folder / "unfinished", settings=repr(belongs))
        self.rungs = FolderRungs(folder, belongs)

    @property
    def retrain_seconds(self) -> float | None:
        """What Retrain was forecast to take, where that was measured."""
        scout = self.rungs.load(SCOUT_RUNG)
        return None if scout is None else float(scout[0]["seconds"])

    def clear(self) -> None:
        self.rounds.drop()
        self.rungs.clear()


def record_result(run: Run, made: Forgetting, before: Trunk, retrain_seconds: float | None = None) -> None:
    """Write down a model that forgot, and the one it came from. result.json comes last: a folder without it is not a
    result. `retrain_seconds`: what Retrain was forecast to take."""
    folder = branch_folder(run, made.requests, made.method, made.preset)
    make_folder(folder)
    (folder / RESULT).unlink(missing_ok=True)
    climbed: dict[str, Any] = {}
    if isinstance(made, Climb):
        seconds = {} if retrain_seconds is None else {"seconds": retrain_seconds}
        climbed = {"rungs": made.rungs, "retrain": {"gradient_evaluations": made.retrain, **seconds}}
    Result(
        made.method, made.preset, made.requests, before, save_model(folder / MODEL, made.state),
        made.exact, made.assumed, vars(made.settings), made.cost, made.curves, made.notes, **climbed,
    ).write(folder)  # fmt: skip


def _record_divergence(
    run: Run, requests: tuple[ErasureRequest, ...], method: str, preset: str, error: DivergedError
) -> None:
    """Write down that there is no model, and why."""
    folder = branch_folder(run, requests, method, preset)
    make_folder(folder)
    Result(method, preset, requests, run.trunk, diverged=str(error)).write(folder)
    (folder / MODEL).unlink(missing_ok=True)


def results_of(run: Run) -> dict[Path, Result]:
    """Every finished result by its folder, oldest first."""
    found = sorted(run.folder.glob(f"forgotten/*/{RESULT}"), key=lambda path: (path.stat().st_mtime, path))
    return {path.parent: Result.read(path.parent) for path in found}
