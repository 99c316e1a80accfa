"""Where workers work: <home>/work/FEDERATION/NUMBER, a folder for one worker at a time.

Number 0 serves, unless somebody is in it who was taken for dead and is not: then the next does. Who is in a folder
holds its lock, which dies with its process. Oracles stay there for the next request of the federation; as files that
hold what the version before holds, the ledger destroys them with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from fedforget.data.files import held_lock
from fedforget.ledger.privacy import make_folder
from fedforget.methods import METHODS
from fedforget.runs.job import Job, clear

LOCK = ".worker"
KINDS = {"checkpoints": "checkpoint", "history": "history", "oracles": "oracle"}
"""What lies in which folder of a run."""


def work_folder(home: Path, federation: str) -> Path:
    return home / "work" / federation


@contextmanager
def workplace(home: Path, federation: str) -> Iterator[Path]:
    """A folder for this worker alone."""
    for number in count():
        folder = work_folder(home, federation) / str(number)
        make_folder(folder)
        with held_lock(folder / LOCK) as alone:
            if alone:
                yield folder
                return


def sweep(home: Path, federation: str, version: int) -> None:
    """Clear the folders of jobs that began from another version than the current one: nobody goes on with them."""
    for folder in work_folder(home, federation).glob("[0-9]*"):
        with held_lock(folder / LOCK) as alone:
            job = Job.read(folder) if alone else None
            if job is not None and job.version != version:
                clear(folder)


def remains(home: Path, federation: str, run: Path, method: str) -> tuple[tuple[str, str], ...]:
    """(kind, path under `home`) of files that hold what the version before holds: the oracles of all jobs so far, and
    the models in the run folder it was trained in, if that is under `home`. A history stays where the method needs it.
    """
    found = [("oracle", path) for path in work_folder(home, federation).glob("*/oracles/*") if path.is_file()]
    needed = method in METHODS and METHODS[method].needs_history
    if run.resolve().is_relative_to(home.resolve()):
        for path in run.rglob("*.safetensors"):
            kind = path.relative_to(run).parts[0]
            if kind != "history" or not needed:
                found.append((KINDS.get(kind, "model"), path))
    root = home.resolve()
    return tuple(sorted((kind, path.resolve().relative_to(root).as_posix()) for kind, path in found))
