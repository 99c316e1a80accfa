"""What every part of the ledger stands on: the folder, the database, the clock, and the chain.

Whoever writes takes locks in one order, so that nobody waits in a circle: federation, requests, versions, and the
chain's head last of all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Select, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from fedforget.ledger.chain import Pin, canonical, hash_of
from fedforget.ledger.checks import searchable
from fedforget.ledger.clock import Clock, utc_now
from fedforget.ledger.database import Database
from fedforget.ledger.errors import MissingError
from fedforget.ledger.schema import Base, Event, Head

Row = TypeVar("Row", bound=Base)
SYSTEM = "system"
"""The actor where nobody asked for it."""


class Core:
    """One for a ledger; each part has it. What takes a `session` works in the caller's transaction."""

    def __init__(self, home: Path, database: Database, clock: Clock = utc_now) -> None:
        self.home, self.database, self.clock = home, database, clock
        self.reading, self.writing = database.reading, database.writing

    def append(
        self, session: Session, actor: str, kind: str, body: Mapping[str, Any] | None = None, request: str | None = None
    ) -> None:
        """One more event, in the caller's transaction. After all its other rows (see above)."""
        session.flush()  # what the caller added and changed
        number, previous = session.execute(select(Head.number, Head.hash).with_for_update(key_share=True)).one()
        event = Event(
            number=number + 1, at=self.clock(), actor=actor, kind=kind, request=request,
            body=canonical(dict(body or {})), previous=previous,
        )  # fmt: skip
        event.hash = hash_of(event.to_json())
        session.add(event)
        session.flush()

    def rows(self, query: Select[Any]) -> list[Any]:
        """What a query finds, in a transaction of its own."""
        with self.reading() as session:
            return list(session.scalars(query))

    def insert(self, table: type[Base]) -> Any:
        """An INSERT that may say what to do on a conflict."""
        return (sqlite if self.database.is_sqlite else postgresql).insert(table)


def named(session: Session, kind: type[Row], name: str) -> Row:
    """The account or federation of this name."""
    found = session.get(kind, searchable(name))
    if found is None:
        raise MissingError(f"There is no such {kind.__name__.lower()}.")
    return found


def head_of(session: Session) -> Pin:
    """The chain's newest event."""
    return Pin(*session.execute(select(Head.ledger, Head.number, Head.hash)).one())
