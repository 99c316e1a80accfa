"""Weights whose time is over, and what lies beside them, are destroyed; the ledger keeps their hashes.

A file is deleted; what a disk, a snapshot or an older backup still holds of it is not ours to reach."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import select, tuple_, update
from sqlalchemy.orm import Session

from fedforget.files import sha256_of_file, writing
from fedforget.ledger.core import SYSTEM
from fedforget.ledger.model_files import sync_folder
from fedforget.ledger.schema import Candidate, Federation, Remains, Version, held_to
from fedforget.ledger.states import VersionState
from fedforget.ledger.versions import Versions


class Destruction(Versions):
    """Part of `book.Ledger`."""

    def destroy_superseded(self, *, actor: str = SYSTEM) -> list[Version]:
        """Delete the weights of versions that were superseded longer ago than their federation keeps them, their
        guards, and what remains beside them. Their hashes stay. Weights that a rollback made current again stay too."""
        return [version for row in self.federations() for version in self._destroy_in(row, actor)]

    def _destroy_in(self, federation: Federation, actor: str) -> list[Version]:
        limit = self.clock() - timedelta(days=federation.keep_days)
        with self.database.writing() as session:
            self._lock_federation(session, federation.name)
            mine = select(Version).where(Version.federation == federation.name).order_by(Version.number)
            due = list(
                session.scalars(mine.where(Version.state == VersionState.SUPERSEDED, Version.superseded <= limit))
            )
            session.expunge_all()
            if not due:
                return []
            numbers = {version.number for version in due}
            # The same bits may be another version, of this federation or another one, that is still wanted.
            wanted = set(
                session.scalars(
                    select(Candidate.sha256).union_all(
                        select(Version.sha256).where(
                            Version.state != VersionState.DESTROYED,
                            (Version.federation != federation.name) | Version.number.not_in(numbers),
                        )
                    )
                )
            )
            gone = [version for version in due if version.sha256 not in wanted]
            return [self._destroy(session, version, actor) for version in gone]

    def _destroy(self, session: Session, version: Version, actor: str) -> Version:
        """The files go first: what the ledger calls destroyed is not there any more, wherever we are interrupted."""
        now = self.clock()
        mine = (Remains.federation == version.federation, Remains.version == version.number)
        remains = list(session.scalars(select(Remains).where(*mine, Remains.destroyed.is_(None))))
        session.expunge_all()
        guard = self._last_guard(session, version)
        weights = [version.sha256] if guard is None else [version.sha256, guard]
        files = [(self.model_path(sha256), sha256) for sha256 in weights]
        files += [(self.home / row.path, row.sha256) for row in remains]
        with writing():
            for path, sha256 in files:
                # Another file in its place belongs to a later version, and goes with that one.
                if path.exists() and sha256_of_file(path) == sha256:
                    path.unlink()
                    sync_folder(path.parent)
        session.execute(update(Remains).where(*mine, Remains.destroyed.is_(None)).values(destroyed=now))
        query = update(Version).where(Version.federation == version.federation, Version.number == version.number)
        changed = session.scalars(query.values(state=VersionState.DESTROYED, destroyed=now).returning(Version)).one()
        said = {
            "federation": version.federation, "version": version.number, "sha256": version.sha256,
            "remains": [{"kind": row.kind, "path": row.path, "sha256": row.sha256} for row in remains],
        }  # fmt: skip
        self._append(session, actor, "destroyed", said | held_to(guard))
        return changed

    def _last_guard(self, session: Session, version: Version) -> str | None:
        """The guard of a version, if no other one that is there, and no waiting decision, has the same."""
        if version.guard is None:
            return None
        others = select(Version.guard).where(
            Version.guard == version.guard,
            Version.state != VersionState.DESTROYED,
            tuple_(Version.federation, Version.number) != (version.federation, version.number),
        )
        waiting = select(Candidate.guard).where(Candidate.guard == version.guard)
        return version.guard if session.scalar(others.union_all(waiting).limit(1)) is None else None
