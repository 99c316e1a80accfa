"""A backup's archive, read with bounds: it may be a stranger's, and made to unpack to far more than it is.

Nothing is read whole but the manifest and one row at a time, and neither is longer than it may be. All of it together
unpacks to a limit at most, and each file to the size that the manifest declares."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fedforget.errors import InputError
from fedforget.ledger.privacy import make_folder, new_file
from fedforget.ledger.recorded import SETTINGS_FILE

SCHEMA = "fedforget/backup/1"
MANIFEST = "manifest.json"
LONGEST_MANIFEST = 1 << 24
LONGEST_ROW = 1 << 25
"""A report with its pictures is a row."""
PIECE = 1 << 20
MOST_FILES = 100_000
UNPACKS_TO = 1 << 30
UNPACKS_TIMES = 100
"""All of it may unpack to this much, or to this many times its size. Weights shrink by a tenth, rows to a tenth."""
FLAT = re.compile(rb'\s*+\{(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+\}\s*+', re.DOTALL)
"""A row: nothing in it lies within something else, so it takes little more room than its text."""
OURS = re.compile(r"(models/[0-9a-f]{64}\.safetensors|keys/[0-9a-f]{16}(\.public)?\.pem)")


class Archive:
    """An opened archive. Its files are checked as they are read."""

    def __init__(self, tar: tarfile.TarFile, entries: dict[str, tarfile.TarInfo]) -> None:
        self._tar, self._entries = tar, entries
        with self._open(MANIFEST) as file:
            text = file.read(LONGEST_MANIFEST + 1)
        if len(text) > LONGEST_MANIFEST:
            raise InputError("The backup is damaged: its manifest is longer than a manifest can be.")
        self.manifest: dict[str, Any] = json.loads(text)
        if self.manifest.get("schema") != SCHEMA:
            raise InputError(f"This is a backup of another kind; this fedforget reads {SCHEMA}.")
        self.revision, self.pin = str(self.manifest["revision"]), str(self.manifest["pin"])
        self.rows: dict[str, int] = {str(name): int(count) for name, count in self.manifest["rows"].items()}
        self._sums: dict[str, str] = dict(self.manifest["files"])
        sizes = self.manifest.get("sizes", {})  # an archive from before they were declared has none
        for name in self._sums:
            if self._entries[name].size != sizes.get(name, self._entries[name].size):
                raise InputError(f"The backup is damaged: {name} has another size than its manifest declares.")

    def check_tables(self) -> None:
        """Every table is as it was written."""
        for name in self._sums:
            if name.startswith("tables/"):
                self._copy(name, None)

    def table(self, name: str) -> Iterator[tuple[dict[str, Any], int]]:
        """The rows of a table, one after another, each with the length of its text."""
        with self._open(f"tables/{name}.jsonl") as file:
            while line := file.readline(LONGEST_ROW + 1):
                if len(line) > LONGEST_ROW:
                    raise InputError(f"The backup is damaged: a row of {name} is longer than a row can be.")
                if FLAT.fullmatch(line) is None:
                    raise InputError(f"The backup is damaged: a row of {name} is no row.")
                yield json.loads(line), len(line)

    def unpack(self, home: Path) -> None:
        """Write everything but the tables under the home: models, keys, the console's settings, and what the rows say
        remains beside a version. What else somebody put into the archive has no business there."""
        beside = {str(row["path"]) for row, _ in self.table("remains")} if "remains" in self.rows else set()
        for name in self._sums:
            if name.startswith("tables/"):
                continue
            if not (OURS.fullmatch(name) or name == SETTINGS_FILE or (name in beside and _lies_beside(name))):
                raise InputError(f"The backup holds a file with the name {name!r:.80}, which is not one of ours.")
            place = home / name
            make_folder(place.parent)
            with new_file(place) as target:
                self._copy(name, target)

    def _copy(self, name: str, target: IO[bytes] | None) -> None:
        sha = hashlib.sha256()
        with self._open(name) as source:
            while data := source.read(PIECE):
                sha.update(data)
                if target is not None:
                    target.write(data)
        if sha.hexdigest() != self._sums[name]:
            raise InputError(f"The backup is damaged: {name} is not as it was written.")

    def _open(self, name: str) -> IO[bytes]:
        file = self._tar.extractfile(self._entries[name])
        assert file is not None, "only files are among the entries"
        return file


def _lies_beside(name: str) -> bool:
    """Whether a worker could have left this beside a version: somewhere under the home, and in the place of nothing
    that the ledger lives on."""
    path = PurePosixPath(name)
    in_place = path.parts[0] in ("models", "keys") or path.parts[0].startswith("ledger.sqlite")
    return name.isprintable() and not path.is_absolute() and ".." not in path.parts and not in_place


class _Bounded:
    """An unpacked stream that ends with a sentence where it would go on too long, or be read too much at once."""

    def __init__(self, file: gzip.GzipFile, limit: int) -> None:
        self._file, self._limit = file, limit

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        assert whence == os.SEEK_SET
        self._check(place)
        return self._file.seek(place)

    def read(self, size: int) -> bytes:
        if not 0 <= size <= LONGEST_MANIFEST + 1:  # nothing else of ours is read whole
            raise InputError("The backup is damaged: a header in it is longer than a header can be.")
        self._check(self.tell() + size - tarfile.RECORDSIZE)
        return self._file.read(size)

    def _check(self, place: int) -> None:
        if place > self._limit:
            raise InputError(f"The archive unpacks to more than {self._limit:,} bytes, as no backup of ours does.")


@contextmanager
def opened(archive: Path) -> Iterator[Archive]:
    """An archive to read from; whatever is wrong with it is one sentence."""
    try:
        limit = max(UNPACKS_TO, UNPACKS_TIMES * archive.stat().st_size)
        with gzip.open(archive, "rb") as file, tarfile.open(fileobj=_Bounded(file, limit), mode="r:") as tar:  # type: ignore[call-overload]
            yield Archive(tar, _entries(tar))
    except OSError as error:
        raise InputError(f"{archive} cannot be read: {error.strerror or error}.") from None
    except (tarfile.TarError, EOFError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{archive} is no backup of a ledger, or it is damaged ({type(error).__name__}).") from None


def _entries(tar: tarfile.TarFile) -> dict[str, tarfile.TarInfo]:
    """The files in an archive by their names. One with holes would unpack to more than passes through our hands."""
    entries: dict[str, tarfile.TarInfo] = {}
    for entry in tar:
        if len(entries) >= MOST_FILES:
            raise InputError(f"The archive holds more than {MOST_FILES:,} files, as no backup of ours does.")
        if not entry.isreg() or entry.issparse() or entry.name in entries:
            raise InputError(f"The backup holds {entry.name!r:.80}, which is no plain file, or is in it twice.")
        entries[entry.name] = entry
    return entries
