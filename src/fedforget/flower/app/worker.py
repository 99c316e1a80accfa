"""A job of the ledger's worker (`runs.job`), done in the server app: `out` is the job's folder, and the worker looks
there for how far it is, what came of it, or what went wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedforget.data.files import held_lock
from fedforget.errors import FedForgetError, InputError
from fedforget.federation.observed import Attentive
from fedforget.federation.seam import Federation
from fedforget.runs.job import Job, NotWanted, Reached, write_failure
from fedforget.runs.serving import serve_job

LOCK = ".flower"
TELL_EVERY_S = 0.5


@contextmanager
def telling_worker(folder: Path) -> Iterator[None]:
    """What goes wrong in the block is also for the worker to read, if the folder is a job's."""
    job = Job.read(folder)  # as it is now: later the folder may be another job's
    try:
        yield
    except FedForgetError as error:
        if job is not None:
            write_failure(folder, job, error)
        raise


def serve_for_worker(folder: Path, federation: Federation) -> dict[str, Any]:
    """Do the job of a folder. Two runs may be given the same one, if the worker died between: they take turns, and the
    second finds it done. A folder that has become another job's is left alone."""
    job = Job.read(folder)
    if job is None:
        raise InputError(f"{folder / 'job.json'} is damaged and cannot be read.")
    teller = _Teller(folder, job)
    try:
        with _turn(folder, teller):
            teller.check()
            outcome = serve_job(folder, Attentive(federation, teller.check), teller.progress, teller.auditing)
    except NotWanted:
        return {}
    return outcome.to_json()


class _Teller:
    """Writes down how far the job is, and looks whether it is still wanted."""

    def __init__(self, folder: Path, job: Job) -> None:
        self._folder, self._job = folder, job
        self._audits, self._told = False, 0.0

    def check(self) -> None:
        if Job.read(self._folder) != self._job:
            raise NotWanted

    def auditing(self) -> None:
        self._audits = True
        self._tell("auditing", 0, 1)

    def progress(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._told >= TELL_EVERY_S:
            self._tell(what, done, total)

    def _tell(self, what: str, done: int, total: int) -> None:
        self.check()
        self._told = time.monotonic()
        Reached(self._job.id, what, done, total, self._audits).write(self._folder)


@contextmanager
def _turn(folder: Path, teller: _Teller) -> Iterator[None]:
    while True:
        with held_lock(folder / LOCK) as ours:
            if ours:
                yield
                return
        teller.check()
        time.sleep(1.0)
