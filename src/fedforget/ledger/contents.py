"""Does a file hold a model? Told by what is in it, never by its name.

`model` what tensors are kept in (safetensors, torch, pickle, NumPy, HDF5), `archive` what holds such files, `clean`
what is text, a picture or a database of text and numbers, `unknown` everything else: it cannot be shown to be clean.
Weights that somebody wrote as text are not recognised."""

from __future__ import annotations

import codecs
import hashlib
import sqlite3
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

PIECE = 1 << 20
MODELS = {b"\x93NUMPY": "a NumPy array", b"\x89HDF\r\n\x1a\n": "an HDF5 file"}
PICTURES = {b"\x89PNG\r\n": "a picture", b"\xff\xd8\xff": "a picture", b"%PDF-": "a document"}
DATABASE = "a database of text and numbers"
ZIP, GZIP, SQLITE = b"PK\x03\x04", b"\x1f\x8b", b"SQLite format 3\0"


@dataclass(frozen=True)
class Contents:
    """What a file is, in a few words, and the SHA-256 of its bytes and of each model in an archive."""

    kind: Literal["model", "archive", "clean", "unknown"]
    what: str
    sha256: str
    models: dict[str, str] = field(default_factory=dict)
    """By their names in it."""


def look(path: Path) -> Contents:
    """What is in this file."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(PIECE)
        sha256 = hashlib.sha256(head)
        decoder, text = codecs.getincrementaldecoder("utf-8")(), b"\0" not in head
        piece = head
        while piece:
            try:
                decoder.decode(piece)
            except UnicodeDecodeError:
                text = False
            piece = file.read(PIECE)
            sha256.update(piece)
    digest, what = sha256.hexdigest(), _model(head, size)
    if what is not None:
        return Contents("model", what, digest)
    if head.startswith((ZIP, GZIP)) or head[257:262] == b"ustar":
        try:
            models = dict(_models_within(path, head))
        except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, RuntimeError, NotImplementedError):
            return Contents("unknown", "an archive that cannot be read", digest)
        if head.startswith(ZIP) and any(name.endswith(("/data.pkl", ".npy")) for name in models):
            return Contents("model", "what torch or NumPy writes", digest)
        word = "an archive with models in it" if models else "an archive with no model in it"
        return Contents("archive" if models else "clean", word, digest, models)
    if head.startswith(SQLITE):
        return _database(path, digest)
    beside = path.with_name(path.name.removesuffix("-wal").removesuffix("-shm"))
    if beside != path and beside.is_file() and look(beside).what == DATABASE:
        return Contents("clean", f"a part of {beside.name}, read with it", digest)
    for beginning, what in PICTURES.items():
        if head.startswith(beginning):
            return Contents("clean", what, digest)
    return Contents("clean", "text", digest) if text else Contents("unknown", "of no kind that is known", digest)


def _model(head: bytes, size: int) -> str | None:
    """What tensors are kept in, by how it begins; None: nothing of that kind."""
    length = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and 2 <= length <= size - 8:
        return "safetensors"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a pickle, such as torch writes"
    return next((what for beginning, what in MODELS.items() if head.startswith(beginning)), None)


def _models_within(path: Path, head: bytes) -> Iterator[tuple[str, str]]:
    """(name, SHA-256) of the models in an archive; an archive in it counts as one, since nobody looked into it."""
    for name, size, file in _members(path, head):
        beginning = file.read(PIECE)
        packed = beginning.startswith((ZIP, GZIP)) or beginning[257:262] == b"ustar"
        if packed or _model(beginning, size) is not None:
            sha256 = hashlib.sha256(beginning)
            while piece := file.read(PIECE):
                sha256.update(piece)
            yield name, sha256.hexdigest()


def _members(path: Path, head: bytes) -> Iterator[tuple[str, int, IO[bytes]]]:
    if head.startswith(ZIP):
        with zipfile.ZipFile(path) as zipped:
            for info in zipped.infolist():
                with zipped.open(info) as file:
                    yield info.filename, info.file_size, file
        return
    with tarfile.open(path, "r:*") as tar:
        for entry in tar:
            content = tar.extractfile(entry) if entry.isreg() else None
            if content is not None:
                yield entry.name, entry.size, content


def _database(path: Path, digest: str) -> Contents:
    """One whose columns take text and numbers alone, and hold no other."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
                blobs = " OR ".join(f"typeof(\"{column}\") = 'blob'" for column in columns)
                if connection.execute(f'SELECT 1 FROM "{table}" WHERE {blobs} LIMIT 1').fetchone():
                    return Contents("unknown", f"a database with bytes in its table {table}", digest)
    except sqlite3.Error:
        return Contents("unknown", "a database that cannot be read", digest)
    return Contents("clean", DATABASE, digest)
