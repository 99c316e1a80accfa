"""Downloads that can break: resumed from a `.part` file, checked, and renamed only when they are whole."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedforget.errors import InputError

Progress = Callable[[int, int | None], None]
"""Called with the bytes done and, where the server says it, the bytes in all."""

TIMEOUT_SECONDS = 30.0
BLOCK = 1 << 18


class _Broken(Exception):
    """A mirror failed; the text says how. The next mirror may do better."""


def matches(path: Path, md5: str) -> bool:
    """Whether the file is there and whole. Against damage only: md5 is what the data sets' authors published."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == md5


def verify(path: Path, md5: str) -> None:
    """Refuse a file that is missing or damaged, before anything is learned from it."""
    if not path.is_file():
        raise InputError(f"The data file {path} is missing; put it there, or remove its folder to have all downloaded.")
    try:
        whole = matches(path, md5)
    except OSError as error:
        raise InputError(f"The data file {path} cannot be read ({error.strerror}).") from None
    if not whole:
        raise InputError(f"The data file {path} is damaged (its md5 is wrong); copy it again.")


def fetch(urls: str | Sequence[str], destination: Path, md5: str) -> Path:
    """Bring `destination` into place from the first of the `urls` that works; a file that is already right is kept.

    What a broken connection has brought stays in a `.part` file, and the next mirror or the next call goes on there.
    A bar is drawn, if somebody can see it."""
    mirrors = [urls] if isinstance(urls, str) else list(urls)
    part = destination.with_name(destination.name + ".part")
    try:
        if matches(destination, md5):
            return destination
        destination.parent.mkdir(parents=True, exist_ok=True)
        with _bar(destination.name) as report:
            reasons = []
            for url in mirrors:
                try:
                    if not matches(part, md5):  # a call that was killed just before the rename left it whole
                        _receive(url, part, report)
                    if matches(part, md5):
                        os.replace(part, destination)
                        return destination
                    part.unlink()
                    reasons.append(f"{url} sent a file with a wrong md5 sum")
                except _Broken as error:
                    reasons.append(f"{url}: {error}")
        have = part.stat().st_size if part.exists() else 0
    except OSError as error:
        raise _cannot_write(destination, error) from None
    why = "; ".join(reasons)
    if have:
        raise InputError(
            f"The download of {destination.name} broke off after {have:,} bytes ({why}); run it again to resume."
        )
    raise InputError(
        f"{destination.name} could not be downloaded ({why}); check the connection and run it again, "
        f"or put the file into {destination.parent}."
    )


def _receive(url: str, part: Path, report: Progress) -> None:
    """Append to `part` what it lacks. Raises `_Broken` for the network's faults and OSError for the disk's."""
    start = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "fedforget"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            part.unlink()  # longer than the file on the server, so it is not a part of it
            return _receive(url, part, report)
        raise _Broken(f"HTTP {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(_reason(error)) from None
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT and _range_start(response) == start
        if start and not resumed:
            start = 0
            if response.status != http.HTTPStatus.OK:
                part.unlink()
                raise _Broken("it sent another range than the one asked for")
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        done = start
        report(done, total)
        with part.open("ab" if start else "wb") as file:
            for block in _blocks(response):
                file.write(block)
                done += len(block)
                report(done, total)
    if total is not None and done < total:
        raise _Broken("the connection was closed early")


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body, with every fault of the network turned into `_Broken`, so that an OSError can only be the disk's."""
    while True:
        try:
            block = response.read(BLOCK)
        except http.client.IncompleteRead as error:
            yield error.partial
            raise _Broken("the connection was closed early") from None
        except (OSError, http.client.HTTPException) as error:
            raise _Broken(_reason(error)) from None
        if not block:
            return
        yield block


def _range_start(response: http.client.HTTPResponse) -> int | None:
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found[1]) if found else None


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def _cannot_write(destination: Path, error: OSError) -> InputError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InputError(
            f"The disk is full: {destination.name} does not fit into {destination.parent}; "
            "free some space and run it again to resume."
        )
    return InputError(
        f"{destination.name} cannot be written to {destination.parent} ({error.strerror or error}); "
        "set XDG_CACHE_HOME to a folder you may write to."
    )


@contextmanager
def _bar(name: str) -> Iterator[Progress]:
    """A Rich progress bar on a terminal, else nothing. Rich is optional here: the numerics run without it."""
    try:
        if not sys.stderr.isatty():
            raise ImportError
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"Downloading {name}", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
