"""Serve a job: forget, and audit, as `fedforget forget` and `fedforget audit` do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from fedforget.data.files import make_folder, write_bytes
from fedforget.errors import InputError
from fedforget.federation.observed import Progress
from fedforget.federation.seam import Federation
from fedforget.models import assumed_of
from fedforget.requests import ErasureRequest, covers, describe_requests, overlap
from fedforget.runs.audit import audit_run
from fedforget.runs.folder import Run, Trunk
from fedforget.runs.forget import branch_folder, branch_off
from fedforget.runs.job import Job, Outcome, each_once
from fedforget.runs.record import BEFORE, MODEL, Result

NOTHING = ("none", "forgotten before")
"""The method and preset where there was nothing left to forget."""


def serve_job(folder: Path, federation: Federation, progress: Progress, auditing: Callable[[], None]) -> Outcome:
    """Forget and audit; `auditing` is called in between. A job that is done already is not done again."""
    job, run = Job.read(folder), Run(folder)
    if job is None:
        raise InputError(f"{folder} holds no job of a worker, or it was changed.")
    done = Outcome.read(folder, job)
    if done is not None:
        auditing()
        return done
    fresh, known, gone = split(federation, job)
    result = None
    if fresh:
        branch = branch_folder(run, fresh, job.method, job.preset)
        result = _whole_result(branch, run.trunk)
        if result is None:
            branch_off(run, run.trunk, federation, fresh, job.method, job.preset, progress, job.settings)
            result = Result.read(branch)
    audited = fresh
    if known or gone:
        audited = each_once((*fresh, *known))
        served = [request for request in job.served if request not in known]
        result = _also_about(run, result, audited, served, _notes(fresh, known, gone), federation, job.exact)
    assert result is not None, "a job has at least one request"
    auditing()
    # Retrain is the first of the oracles: there it would be judged against itself.
    retrained = result.method == "retrain" or any(rung.name == "retrain" for rung in result.rungs)
    level = "alone" if retrained else job.level
    audit = audit_run(folder, audited, level=level, progress=progress, federation=federation)
    place = branch_folder(run, audited, result.method, result.preset).relative_to(folder).as_posix()
    outcome = Outcome(job.id, place, result, audit.row(BEFORE), audit.row(result.name))
    outcome.write(folder)
    return outcome


def split(
    federation: Federation, job: Job
) -> tuple[tuple[ErasureRequest, ...], tuple[ErasureRequest, ...], tuple[ErasureRequest, ...]]:
    """(what is left to forget, the served requests that have the rest, features whose samples are all gone).

    A request whose whole target went before needs no method any more; it is audited with those that took it. Beside
    other features a feature whose samples went is not: no measure judges features and samples together."""

    def size(requests: Sequence[ErasureRequest]) -> int:
        return sum(part.target for part in federation.check(requests).values()) if requests else 0

    fresh: list[ErasureRequest] = []
    known: list[ErasureRequest] = []
    taken: dict[ErasureRequest, list[ErasureRequest]] = {}
    for request in job.requests:
        served = [other for other in job.served if other.client == request.client]
        takers = [other for other in served if other.kind != "feature"]
        blank = [other for other in served if other.kind == "feature"]
        if takers and size((*takers, request)) == size(takers):
            whole = size((request,))
            taken[request] = [other for other in takers if size((other, request)) < size((other,)) + whole]
        elif request.kind == "feature" and covers([other.feature for other in blank], request.feature):
            known += [other for other in blank if overlap(other.feature, request.feature)]
        else:
            fresh.append(request)
    if any(request.kind == "feature" for request in (*fresh, *known)):
        return tuple(fresh), each_once(known), tuple(taken)
    return tuple(fresh), each_once((*known, *(other for takers in taken.values() for other in takers))), ()


def _notes(
    fresh: Sequence[ErasureRequest], known: Sequence[ErasureRequest], gone: Sequence[ErasureRequest]
) -> list[str]:
    """What a person should know of a result that is not about what was asked alone."""
    notes = []
    if known and fresh:
        notes.append("The version before had forgotten some of this already; that part is examined again.")
    elif known:
        notes.append(
            "The version before had forgotten all of this already; its model stays as it is, and is examined again."
        )
    if gone:
        notes.append(
            f"All samples of {describe_requests(gone)} had been withdrawn before, so nothing of it is left to measure; "
            "the evidence is about the rest."
        )
    return notes


def _whole_result(folder: Path, trunk: Trunk) -> Result | None:
    """A finished result; one that is not whole, that diverged, or that began elsewhere, counts as not there."""
    try:
        result = Result.read(folder)
        result.load_model(folder)
    except (InputError, ValueError, OSError):
        return None
    return result if result.before == trunk else None


def _also_about(
    run: Run,
    result: Result | None,
    audited: tuple[ErasureRequest, ...],
    served: Sequence[ErasureRequest],
    notes: Sequence[str],
    federation: Federation,
    exact: bool,
) -> Result:
    """The same model as a result that is about `audited`, with `served` before it: the model of `result`, or, where
    nothing was left to forget, the run's own as it is, which is as `exact` as it was."""
    trunk = run.trunk
    if result is None:
        result = Result(*NOTHING, audited, trunk, trunk.sha256, exact, assumed_of(federation.model) if exact else ())
        source = run.folder / trunk.model
    else:
        branch = branch_folder(run, result.requests, result.method, result.preset)
        source = branch / MODEL
    folder = branch_folder(run, audited, result.method, result.preset)
    make_folder(folder)
    write_bytes(folder / MODEL, source.read_bytes())
    result = replace(
        result, requests=audited, before=replace(trunk, served=tuple(served)),
        notes=tuple(dict.fromkeys((*result.notes, *notes))),
    )  # fmt: skip
    result.write(folder)
    return result
