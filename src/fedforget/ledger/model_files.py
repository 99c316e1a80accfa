"""Model files, and guards beside them: safetensors under the SHA-256 of their bytes, in <home>/models.

A file is whole on the disk before any row names it. One that no row names is left over from a worker that died, and is
swept after a while."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session
from torch import Tensor

from fedforget.data.files import sha256_of_file, write_bytes, writing
from fedforget.errors import InputError
from fedforget.federation.guard import Guard
from fedforget.ledger.core import SYSTEM, Core
from fedforget.ledger.schema import Candidate, Version
from fedforget.ledger.states import VersionState
from fedforget.params import State
from fedforget.runs.store import load_model, model_bytes


class ModelFiles(Core):
    """Part of `book.Ledger`."""

    @property
    def models(self) -> Path:
        return self.home / "models"

    def model_path(self, sha256: str) -> Path:
        return self.models / f"{sha256}.safetensors"

    def store_model(self, state: Mapping[str, Tensor]) -> str:
        """Write a model's file, if it is not there; its SHA-256."""
        return self.store_model_bytes(model_bytes(state))

    def store_model_bytes(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.model_path(sha256)
        with writing():
            self.models.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self.models / f"{sha256}-{secrets.token_hex(8)}"  # two workers may store the same bits at once
        write_bytes(part, data)
        with writing():
            part.chmod(0o600)
            os.replace(part, path)
            sync_folder(self.models)
        return sha256

    def store_guard(self, guard: Guard | None) -> str | None:
        """Write a guard's file, if there is a guard; its SHA-256."""
        return None if guard is None else self.store_model(guard.to_state())

    def load_model(self, sha256: str) -> State:
        """The model of this hash; one that was changed is refused."""
        return load_model(self.model_path(sha256), sha256)

    def load_guard(self, sha256: str | None) -> Guard | None:
        """The guard of a version: who goes on training its model holds the rounds to it."""
        return None if sha256 is None else Guard.from_state(self.load_model(sha256))

    def check_model(self, sha256: str) -> None:
        self._check_file("model", sha256)

    def check_guard(self, sha256: str | None) -> None:
        if sha256 is not None:
            self._check_file("guard", sha256)

    def _check_file(self, what: str, sha256: str) -> None:
        path = self.model_path(sha256)
        if not path.exists():
            raise InputError(f"The {what} file {path.name} is missing; restore it from a backup.")
        if sha256_of_file(path) != sha256:
            raise InputError(f"The {what} file {path.name} was changed: its SHA-256 is another.")

    def sweep_models(self, older_than: timedelta = timedelta(days=1), *, actor: str = SYSTEM) -> list[str]:
        """Delete models and guards that no version and no waiting decision names, and write it down; their hashes.
        Young ones stay: a worker may be about to publish them."""
        limit = self.clock() - older_than
        old = [path for path in self.models.glob("*") if _is_old(path, limit)]
        with self.database.reading() as session:
            named = self._named(session)
        gone = []
        for path in old:
            if path.stem not in named and _is_old(path, limit):
                path.unlink(missing_ok=True)
                gone.append(path.stem)
        if gone:
            self.append_event(actor, "swept", {"models": sorted(gone)})
        return gone

    def _named(self, session: Session) -> set[str | None]:
        """The files that a version which is there, or a waiting decision, names."""
        kept = Version.state != VersionState.DESTROYED
        named = {hash for row in session.execute(select(Version.sha256, Version.guard).where(kept)) for hash in row}
        return named | {hash for row in session.execute(select(Candidate.sha256, Candidate.guard)) for hash in row}

    def _destroy_unnamed(self, session: Session, *wanted: str | None) -> list[str]:
        """Delete those of these files that nothing names any more; their hashes."""
        gone = sorted({sha256 for sha256 in wanted if sha256 is not None} - self._named(session))
        with writing():
            for sha256 in gone:
                self.model_path(sha256).unlink(missing_ok=True)
            if gone:
                sync_folder(self.models)
        return gone


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
