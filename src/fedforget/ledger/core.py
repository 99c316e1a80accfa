"""What every part of the ledger stands on: the folder, the database, the clock, and the chain.

Whoever writes takes locks in one order, so that nobody waits in a circle: federation, requests, versions, and the
chain's head last of all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fedforget.errors import InputError
from fedforget.ledger.chain import Pin, canonical, hash_of
from fedforget.ledger.checks import check_id
from fedforget.ledger.clock import Clock, to_text, utc_now
from fedforget.ledger.database import Database
from fedforget.ledger.errors import MissingError
from fedforget.ledger.schema import Event, Head

SYSTEM = "system"
"""The actor where nobody asked for it."""


class Core:
    """The parts of `book.Ledger` derive from this."""

    def __init__(self, home: Path, database: Database, clock: Clock = utc_now) -> None:
        self.home, self.database, self.clock = home, database, clock

    def _append(
        self,
        session: Session,
        actor: str,
        kind: str,
        body: Mapping[str, Any] | None = None,
        request: str | None = None,
    ) -> dict[str, Any]:
        """One more event, as plain values, in the caller's transaction. After all its other rows (see above)."""
        number, previous = session.execute(select(Head.number, Head.hash).with_for_update(key_share=True)).one()
        at, text = self.clock(), canonical(dict(body or {}))
        values = {
            "number": number + 1, "at": to_text(at), "actor": actor, "kind": kind, "request": request,
            "body": json.loads(text), "previous": previous,
        }  # fmt: skip
        hash = hash_of(values)
        session.execute(insert(Event).values({**values, "at": at, "body": text, "hash": hash}))
        return {**values, "hash": hash}

    def append_event(
        self, actor: str, kind: str, body: Mapping[str, Any] | None = None, request: str | None = None
    ) -> int:
        """Write down something that changed no row: a denial, a download. Its number."""
        if not (kind.isprintable() and 0 < len(kind) <= 32 and actor.isprintable() and 0 < len(actor) <= 128):
            raise InputError("An event has a kind of 1 to 32 characters and an actor of 1 to 128.")
        try:
            with self.database.writing() as session:
                return int(self._append(session, actor, kind, body, request and check_id(request))["number"])
        except IntegrityError:
            raise MissingError(f"There is no request '{request}'.") from None

    def _head(self, session: Session) -> Pin:
        return Pin(*session.execute(select(Head.ledger, Head.number, Head.hash)).one())
