"""The home is its owner's alone: folders 0700, files 0600, those that were there before too."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fedforget.data.files import writing
from fedforget.errors import InputError

log = logging.getLogger(__name__)
PARTS = ("models", "keys", "work", "runs", "console.toml", "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm")
"""What is ours in a home. What else somebody keeps there is not ours to close."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def close_to_others(home: Path) -> None:
    """Close an older home, if it is open and ours. It says so, once: then it is closed."""
    if not any(_open_to_others(path) for path in (home, home / "models", home / "ledger.sqlite")):
        return
    if home.stat().st_mode & stat.S_ISVTX:
        raise InputError(f"{home} is everybody's folder; give the ledger one of its own with --home.")
    _close(home)
    for part in PARTS:
        for path in (home / part, *(home / part).rglob("*")):
            _close(path)
    log.warning("Others could read %s; it and what the ledger keeps in it are their owner's alone now.", home)


def make_private(file: Path) -> None:
    """An empty file that only its owner reads, or one that is there closed to others, if it is ours."""
    with suppress(OSError):  # there already, or SQLite will say what is wrong
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    for end in ("", "-wal", "-shm"):
        _close(file.with_name(file.name + end))


def make_folder(folder: Path) -> None:
    """A folder that only its owner enters, if there is none."""
    with writing():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that others cannot read for a moment; after the block it is on the disk, or not there."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def make_nothing_for_others() -> None:
    """From now on, whatever this process and its children make is their owner's alone: for a program, not a library."""
    os.umask(OTHERS)


def _close(path: Path) -> None:
    with suppress(FileNotFoundError):  # a worker's own file may go at any moment
        if _open_to_others(path):
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS)


def _open_to_others(path: Path) -> bool:
    """Whether it is there, ours, and open; what a link points to is somebody else's."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid() and bool(found.st_mode & OTHERS)
