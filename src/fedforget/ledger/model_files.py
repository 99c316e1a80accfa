"""Model files: safetensors under the SHA-256 of their bytes, in <home>/models.

A file is whole on the disk before any row names it. One that no row names is left over from a worker that died, and is
swept after a while."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session
from torch import Tensor

from fedforget.data.files import sha256_of_file, writing
from fedforget.errors import InputError
from fedforget.ledger.core import SYSTEM, Core
from fedforget.ledger.privacy import make_folder, new_file
from fedforget.ledger.schema import Candidate, Version
from fedforget.ledger.states import VersionState
from fedforget.runs.store import model_bytes


class ModelFiles:
    """`ledger.models.folder`: the files that versions name."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def folder(self) -> Path:
        return self._core.home / "models"

    def path(self, sha256: str) -> Path:
        return model_file(self._core.home, sha256)

    def store(self, state: Mapping[str, Tensor]) -> str:
        """Write a model's file, if it is not there; its SHA-256."""
        return self.store_bytes(model_bytes(state))

    def store_bytes(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        make_folder(self.folder)
        part = self.folder / f"{sha256}-{secrets.token_hex(8)}"  # two workers may store the same bits at once
        with writing():
            with new_file(part) as file:
                file.write(data)
            os.replace(part, self.path(sha256))
            sync_folder(self.folder)
        return sha256

    def check(self, sha256: str) -> None:
        path = self.path(sha256)
        if not path.exists():
            raise InputError(f"The model file {path.name} is missing; restore it from a backup.")
        if sha256_of_file(path) != sha256:
            raise InputError(f"The model file {path.name} was changed: its SHA-256 is another.")

    def sweep(self, older_than: timedelta = timedelta(days=1), *, actor: str = SYSTEM) -> list[str]:
        """Delete models that no version and no waiting decision names, and write it down; their hashes.
        Young ones stay: a worker may be about to publish them."""
        limit = self._core.clock() - older_than
        old = [path for path in self.folder.glob("*") if _is_old(path, limit)]
        with self._core.reading() as session:
            named = named_files(session)
        gone = []
        for path in old:
            if path.stem not in named and _is_old(path, limit):
                path.unlink(missing_ok=True)
                gone.append(path.stem)
        if gone:
            with self._core.writing() as session:
                self._core.append(session, actor, "swept", {"models": sorted(gone)})
        return gone

    def destroy_unnamed(self, session: Session, sha256: str) -> list[str]:
        """Delete this file if nothing names it any more; the hashes of what was deleted."""
        if sha256 in named_files(session):
            return []
        with writing():
            self.path(sha256).unlink(missing_ok=True)
            sync_folder(self.folder)
        return [sha256]


def model_file(home: Path, sha256: str) -> Path:
    return home / "models" / f"{sha256}.safetensors"


def named_files(session: Session, but: Collection[tuple[str, int]] = ()) -> set[str]:
    """The models that a version which is there, or a waiting decision, names; `but` what these versions (federation,
    number) alone name."""
    there = select(Version.federation, Version.number, Version.sha256).where(Version.state != VersionState.DESTROYED)
    of_versions = {sha256 for name, number, sha256 in session.execute(there) if (name, number) not in but}
    return of_versions | set(session.scalars(select(Candidate.sha256)))


def _is_old(path: Path, limit: datetime) -> bool:
    """Whether it is there, and was written before `limit`."""
    try:
        return path.stat().st_mtime <= limit.timestamp()
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """A renamed or deleted file's name is on the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
