"""One piece of a worker's work, as a run folder: what is to be forgotten, from which model, and what came of it.

    job.json       sealed: the requests, what was served before, the model to begin from, method, settings, audit level
    run.json state.json    as in any run folder; the run's own model is the ledger's version, where it lies
    forgotten/ audit.json report.html      as `forget_run` and `audit_run` leave them
    oracles/       kept for the next job of the federation
    outcome.json   sealed, written last: what forgot, and what was found
    progress.json failure.json     where a job is done elsewhere: how far it is, and why it came to nothing

So a job is served (`serving`) by the same code as a run, in this process or in Flower's server app, and one that was
interrupted goes on where it was. Nothing here knows of the database."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedforget.data.files import make_folder, writing
from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.methods import RUNGS
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import VERSION, Trunk
from fedforget.runs.record import MODEL, Figures, Result
from fedforget.runs.store import read_sealed, write_sealed


class NotWanted(BaseException):
    """The work on a job is not wanted any more. No `Exception`: an audit goes on with its next measure after those."""


@dataclass(frozen=True)
class Job:
    """What a worker is to do. The same job is the same folder content, whoever does it."""

    config: RunConfig
    version: int
    """The version to begin from."""
    model: str
    """Its file."""
    sha256: str
    requests: tuple[ErasureRequest, ...]
    served: tuple[ErasureRequest, ...]
    method: str
    preset: str
    settings: dict[str, Any] = field(default_factory=dict)
    level: str = "quick"
    history: str | None = None
    """Where the clients' models of training are kept, if they are."""
    exact: bool = False
    """Whether the version never saw what was served before, by the way it was made."""
    thresholds: dict[str, Any] = field(default_factory=dict)
    """What the measures are held against, as it was written down. A climb that began under others begins anew."""

    def to_json(self) -> dict[str, Any]:
        lists = {name: [request.to_json() for request in getattr(self, name)] for name in ("requests", "served")}
        values = {**vars(self), **lists, "config": self.config.to_json()}
        if not self.exact:  # as it was before there was `exact`: what was begun then is the same job
            del values["exact"]
        if not self.thresholds:
            del values["thresholds"]
        return values

    @property
    def id(self) -> str:
        """Names the job in what is written about it: a folder may be another job's by then."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Job:
        lists = {name: tuple(map(ErasureRequest.from_json, values[name])) for name in ("requests", "served")}
        return cls(**{**values, **lists, "config": RunConfig.from_json(values["config"])})

    @classmethod
    def read(cls, folder: Path) -> Job | None:
        """The job of a folder, None where there is none that can be read."""
        try:
            return cls.from_json(read_sealed(folder / "job.json"))
        except (InputError, ValueError, KeyError, TypeError, OSError):
            return None


def each_once(requests: Iterable[ErasureRequest]) -> tuple[ErasureRequest, ...]:
    """Each target once: two people may ask for the same."""
    return tuple(dict.fromkeys(requests))


def prepare(folder: Path, job: Job) -> None:
    """Make `folder` this job's. What an interruption left of the same job stays; of another, only its oracles do."""
    if Job.read(folder) != job:
        clear(folder)
        make_folder(folder)
        with writing():
            if job.history is not None:
                (folder / "history").symlink_to(job.history)
        write_sealed(folder / "run.json", {"version": VERSION, "config": job.config.to_json()})
        trunk = Trunk(job.model, job.sha256, job.served)
        write_sealed(folder / "state.json", {"round": job.config.schedule.rounds, **trunk.to_json()})
        write_sealed(folder / "job.json", job.to_json())


def clear(folder: Path) -> None:
    """Take everything away but the oracles and locks. The note goes first: without it, the rest is nobody's."""
    (folder / "job.json").unlink(missing_ok=True)
    for path in folder.iterdir() if folder.exists() else ():
        if path.name == "oracles" or path.name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Outcome:
    """What came of a job: what forgot, and what was found of it and of the model before."""

    job: str
    folder: str
    """Where the model that forgot lies, named from the job's folder."""
    result: Result
    before: Figures
    after: Figures

    @property
    def model(self) -> str:
        """Its file, named from the job's folder."""
        return f"{self.folder}/{MODEL}"

    @property
    def evidence(self) -> str:
        """And the file that the verdict on it was made from."""
        assert self.after.evidence is not None, "what a job made is judged"
        return self.after.evidence["file"]

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), **{name: getattr(self, name).to_json() for name in ("result", "before", "after")}}

    def write(self, folder: Path) -> None:
        write_sealed(folder / "outcome.json", self.to_json())

    @classmethod
    def read(cls, folder: Path, job: Job) -> Outcome | None:
        """What came of this very job; None where it is not done, or an earlier fedforget wrote what came of it."""
        values = _read(folder / "outcome.json", job)
        if values is None or "result" not in values:
            return None
        before, after = Figures.from_json(values["before"]), Figures.from_json(values["after"])
        return cls(values["job"], values["folder"], Result.from_json(values["result"]), before, after)


def rungs_tried(folder: Path) -> list[dict[str, Any]]:
    """The rungs that an unfinished climb of this folder has behind it, as `Rung.to_json` gives them."""
    found = []
    for path in folder.glob("forgotten/*/rungs/*.json"):
        try:
            found.append(read_sealed(path)["rung"])
        except (InputError, ValueError, KeyError, OSError):
            continue  # the scout is no rung; and a climb that ends clears all of it away
    return sorted(found, key=lambda rung: RUNGS.index(rung["name"]))


@dataclass(frozen=True)
class Reached:
    """How far a job is that is done elsewhere."""

    job: str
    what: str
    done: int
    total: int
    auditing: bool

    def write(self, folder: Path) -> None:
        write_sealed(folder / "progress.json", vars(self))

    @classmethod
    def read(cls, folder: Path, job: Job) -> Reached | None:
        values = _read(folder / "progress.json", job)
        return None if values is None else cls(**values)


def write_failure(folder: Path, job: Job, error: FedForgetError) -> None:
    final = isinstance(error, InputError | DivergedError)
    write_sealed(folder / "failure.json", {"job": job.id, "error": str(error), "final": final})


def raise_failure(folder: Path, job: Job) -> None:
    """Raise here what was raised where the job is done."""
    values = _read(folder / "failure.json", job)
    if values is not None:
        raise (InputError if values["final"] else FedForgetError)(values["error"])


def drop_failure(folder: Path) -> None:
    (folder / "failure.json").unlink(missing_ok=True)


def _read(path: Path, job: Job) -> dict[str, Any] | None:
    """What was written about this job; nothing else counts."""
    try:
        values = read_sealed(path)
    except (InputError, ValueError, OSError):
        return None
    return values if values.get("job") == job.id else None
