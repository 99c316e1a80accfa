"""Files are written beside their place and renamed: an interruption leaves the old one or the new one, never half."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedforget.errors import InputError


@contextmanager
def writing() -> Iterator[None]:
    """Turn a full disk or a forbidden folder into one sentence."""
    try:
        yield
    except OSError as error:
        where = f" at {error.filename}" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"There is no space left on the disk{where}; free some and run the same command again."
            ) from None
        raise InputError(f"Cannot write{where}: {error.strerror}.") from None


def write_bytes(path: Path, data: bytes) -> None:
    """Write atomically: into a file beside it, flushed to disk, then renamed."""
    part = path.with_name(path.name + ".part")
    with writing():
        try:
            with open(part, "wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


@contextmanager
def held_lock(path: Path, wait: bool = False) -> Iterator[bool]:
    """True for the one process that has the lock of this file; any other gets False, or is to `wait` for its turn. The
    lock dies with its process."""
    import fcntl

    with writing():
        opened = open(path, "ab")  # noqa: SIM115 (closed by the next line, errors in it are its own)
    with opened as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            yield False
            return
        yield True


def make_folder(folder: Path) -> None:
    with writing():
        folder.mkdir(parents=True, exist_ok=True)


def sha256_of_file(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, values: Any) -> None:
    write_text(path, json.dumps(values, indent=1) + "\n")
