"""Where a job is done: in this process, or on a Flower deployment (`executor_flower`)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from fedforget.federation.observed import Attentive
from fedforget.runs.job import Job, Outcome
from fedforget.runs.serving import serve_job


class Watch(Protocol):
    """Who an executor tells how it goes. Each of these raises where the work is not wanted any more."""

    def progress(self, what: str, done: int, total: int) -> None: ...

    def auditing(self) -> None:
        """The model has forgotten; what follows is the audit."""

    def check(self) -> None:
        """Nothing to tell, only: is the work still wanted?"""


class Executor(Protocol):
    """Does jobs for federations of one kind; `place` is what the ledger has of the federation."""

    def run_folder(self, place: str) -> Path:
        """The run that the federation was trained in."""

    def execute(self, place: str, folder: Path, job: Job, watch: Watch) -> Outcome:
        """Do the job of a folder that `job.prepare` made."""


class LocalExecutor:
    """The clients' data lies on this machine, as the run folder `place` says. The federation is built anew for every
    job, so that no sketch and no anchor of an earlier request is left in it."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def run_folder(self, place: str) -> Path:
        return Path(place)

    def execute(self, place: str, folder: Path, job: Job, watch: Watch) -> Outcome:
        watch.check()
        federation = job.config.build_federation(job.config.load_dataset(), self.device)
        return serve_job(folder, Attentive(federation, watch.check), watch.progress, watch.auditing)
