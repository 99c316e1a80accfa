"""Weights that are kept no longer, and what lies beside them, are destroyed; the ledger keeps their hashes.

A file is deleted; what a disk, a snapshot or an older backup still holds of it is not ours to reach.

No single reading of a clock destroys anything: what is to go is announced a day ahead, as an event. An announcement
counts a day later, unless an event after it is earlier: then the clock was wrong, and was set back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedforget.data.files import sha256_of_file, writing
from fedforget.ledger.clock import to_text
from fedforget.ledger.core import SYSTEM, Core
from fedforget.ledger.federations import Federations
from fedforget.ledger.model_files import ModelFiles, named_files, sync_folder
from fedforget.ledger.schema import Event, Federation, Remains, Request, Version
from fedforget.ledger.states import VersionState

ANNOUNCED = "destruction announced"
NOTICE = timedelta(days=1)
SKEW = timedelta(hours=1)
"""The clocks of several machines may differ by this."""


class Destruction:
    """`ledger.destruction`."""

    def __init__(self, core: Core, models: ModelFiles, federations: Federations) -> None:
        self._core, self._models, self._federations = core, models, federations

    def destroy_superseded(self, *, actor: str = SYSTEM) -> list[Version]:
        """Delete the weights of versions that were superseded longer ago than their federation keeps them, and were
        announced a day ago, with what remains beside them; announce what comes next. Their hashes stay. Weights that a
        rollback made current again stay too."""
        with self._core.reading() as session:
            names = sorted({version.federation for version in self._ending(session, self._core.clock())})
        if not names:
            return []
        with self._core.writing() as session:
            for name in names:
                self._federations.lock(session, name)
            now = self._core.clock()
            ending = {v: due for v, due in self._ending(session, now).items() if v.federation in names}
            announced = self._announced(session, ending, now)
            over = [version for version, due in ending.items() if due <= now]
            told = [version for version in over if announced.get(version, now) + NOTICE <= now]
            not_kept = [version for version in over if ending[version] == version.superseded]
            gone = self._unwanted(session, [*told, *not_kept])
            for version in self._unwanted(session, ending):
                if version not in gone and version not in announced:
                    said = {"federation": version.federation, "version": version.number, "sha256": version.sha256}
                    self._core.append(session, actor, ANNOUNCED, said | {"due": to_text(ending[version])})
            return [self._destroy(session, version, actor) for version in ending if version in gone]

    def _ending(self, session: Session, now: datetime) -> dict[Version, datetime]:
        """Superseded versions that are to be destroyed within the notice, each with its moment."""
        kept = (
            select(Version, Federation.keep_days)
            .join(Federation, Federation.name == Version.federation)
            .where(Version.state == VersionState.SUPERSEDED)
            .order_by(Version.federation, Version.number)
        )
        found = {version: kept_until(session, version, days) for version, days in session.execute(kept)}
        return {version: due for version, due in found.items() if due is not None and due <= now + NOTICE}

    def _announced(self, session: Session, versions: Iterable[Version], now: datetime) -> dict[Version, datetime]:
        """When these were announced, by a clock that was not set back since."""
        places = {(version.federation, version.number): version for version in versions}
        found: dict[Version, datetime] = {}
        for event in session.scalars(select(Event).where(Event.kind == ANNOUNCED).order_by(Event.number)):
            body = json.loads(event.body)
            version = places.get((body["federation"], body["version"]))
            earlier = select(Event.number).where(Event.number > event.number, Event.at < event.at - SKEW).limit(1)
            if version is not None and event.at <= now + SKEW and session.scalar(earlier) is None:
                found.setdefault(version, event.at)
        return found

    def _unwanted(self, session: Session, versions: Iterable[Version]) -> list[Version]:
        """Those whose bits are no other version, of their federation or another one, and no waiting result."""
        mine = {(version.federation, version.number): version for version in versions}
        wanted = named_files(session, but=mine)
        return [version for version in mine.values() if version.sha256 not in wanted]

    def _destroy(self, session: Session, version: Version, actor: str) -> Version:
        """The files go first: what the ledger calls destroyed is not there any more, wherever we are interrupted."""
        mine = (Remains.federation == version.federation, Remains.version == version.number)
        remains = list(session.scalars(select(Remains).where(*mine, Remains.destroyed.is_(None))))
        files = [(self._models.path(version.sha256), version.sha256)]
        files += [(self._core.home / row.path, row.sha256) for row in remains]
        with writing():
            for path, sha256 in files:
                # Another file in its place belongs to a later version, and goes with that one.
                if path.exists() and sha256_of_file(path) == sha256:
                    path.unlink()
                    sync_folder(path.parent)
        version.state, version.destroyed = VersionState.DESTROYED, self._core.clock()
        for row in remains:
            row.destroyed = version.destroyed
        said = {
            "federation": version.federation, "version": version.number, "sha256": version.sha256,
            "remains": [{"kind": row.kind, "path": row.path, "sha256": row.sha256} for row in remains],
        }  # fmt: skip
        self._core.append(session, actor, "destroyed", said)
        return version


def kept_until(session: Session, version: Version, days: int) -> datetime | None:
    """When a version's weights are kept no longer: `days` after it was superseded, or sooner or later as the requests
    want that it still knows, the first of them. None: it is current."""
    if version.superseded is None:
        return None
    later = select(Request.keep_days).where(Request.federation == version.federation, Request.version > version.number)
    said = [days if own is None else own for own in session.scalars(later.distinct())]
    return version.superseded + timedelta(days=min(said, default=days))
