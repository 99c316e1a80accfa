"""Where a job is done: in this process, or on a Flower deployment (`executor_flower`)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from fedforget.federation.observed import Attentive
from fedforget.ledger.keeper import Keeper
from fedforget.runs.job import Job, Outcome
from fedforget.runs.serving import serve_job


class Executor(Protocol):
    """Does jobs for federations of one kind; `place` is what the ledger has of the federation."""

    def run_folder(self, place: str) -> Path:
        """The run that the federation was trained in."""

    def execute(self, place: str, folder: Path, job: Job, keeper: Keeper) -> Outcome:
        """Do the job of a folder that `job.prepare` made."""


class LocalExecutor:
    """The clients' data lies on this machine, as the run folder `place` says. The federation is built anew for every
    job, so that no sketch and no anchor of an earlier request is left in it."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def run_folder(self, place: str) -> Path:
        return Path(place)

    def execute(self, place: str, folder: Path, job: Job, keeper: Keeper) -> Outcome:
        keeper.check()
        federation = job.config.build_federation(job.config.load_dataset(), self.device)
        return serve_job(folder, Attentive(federation, keeper.check), keeper.progress, keeper.auditing)
