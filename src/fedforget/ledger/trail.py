"""The event trail: reading it, and checking that it is whole and that the rows tell the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Text, func, select, type_coerce
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fedforget.errors import InputError
from fedforget.ledger import triggers
from fedforget.ledger.chain import ChainCheck, Pin, check_events
from fedforget.ledger.checks import check_id, searchable
from fedforget.ledger.consistency import problems_of, settings_noted
from fedforget.ledger.core import SYSTEM, Core, head_of
from fedforget.ledger.errors import MissingError
from fedforget.ledger.intake import LARGEST_PAGE
from fedforget.ledger.recorded import SETTINGS_NOTED, read_settings
from fedforget.ledger.schema import Event, Federation, Request, Version
from fedforget.ledger.states import OPEN, RequestState

LAST = 2**62
"""No event has a higher number, and no database a much wider one."""
SOON = timedelta(days=7)


class Trail:
    """`ledger.trail`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def append(self, actor: str, kind: str, body: Mapping[str, Any] | None = None, request: str | None = None) -> None:
        """Write down something that changed no row: a denial, a download."""
        if not (kind.isprintable() and 0 < len(kind) <= 32 and actor.isprintable() and 0 < len(actor) <= 128):
            raise InputError("An event has a kind of 1 to 32 characters and an actor of 1 to 128.")
        try:
            with self._core.writing() as session:
                self._core.append(session, actor, kind, body, request and check_id(request))
        except IntegrityError:
            raise MissingError(f"There is no request '{request}'.") from None

    def events(
        self,
        *,
        request: str | None = None,
        kinds: Sequence[str] | None = None,
        actor: str | None = None,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The newest events first, those before the number `before`; with `after`, the oldest first after it."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise InputError(f"A page has 1 to {LARGEST_PAGE} events, not {limit}.")
        query = select(Event).order_by(Event.number.desc() if after is None else Event.number).limit(limit)
        if request is not None:
            query = query.where(Event.request == check_id(request))
        if kinds is not None:
            query = query.where(Event.kind.in_([searchable(kind) for kind in kinds]))
        if actor is not None:
            query = query.where(Event.actor == searchable(actor))
        if before is not None:
            query = query.where(Event.number < min(before, LAST))
        if after is not None:
            query = query.where(Event.number > max(0, min(after, LAST)))
        return self._core.rows(query)

    def head(self) -> Pin:
        """The newest event's number and hash: print it, or keep it in a file, to notice a chain written anew."""
        with self._core.reading() as session:
            return head_of(session)

    def note_settings(self, *, actor: str = SYSTEM) -> None:
        """Write down what console.toml says, where its last event says something else: a console begins with it, or a
        backup takes it along."""
        with self._core.writing() as session:
            now = read_settings(self._core.home)
            if now != settings_noted(session):
                self._core.append(session, actor, SETTINGS_NOTED, {"settings": now})

    def check_chain(self, *pins: Pin) -> ChainCheck:
        """Recompute every hash, and compare with what was pinned."""
        with self._core.database.snapshot() as connection, Session(connection) as session:
            return check_events(_raw_events(session), head_of(session), pins)

    def check(self, *pins: Pin) -> ChainCheck:
        """All of it: the chain, the rules in the database, each request and version against the events, each model
        file, certificate and document against its hash."""
        with self._core.database.snapshot() as connection, Session(connection) as session:
            head = head_of(session)
            return ChainCheck(head.number, head.hash, tuple(self.problems(session, *pins)))

    def problems(self, session: Session, *pins: Pin) -> list[str]:
        """What `check` finds, in the caller's transaction."""
        chain = check_events(_raw_events(session), head_of(session), pins)
        lost = [f"The rule '{name}' is missing from the database." for name in triggers.missing(session.connection())]
        found = [*chain.problems, *lost]
        try:
            return [*found, *problems_of(session, self._core.home)]
        except (ValueError, KeyError, TypeError, AttributeError):
            return [*found, "What the ledger holds makes no sense."]  # somebody wrote anything into it

    def figures(self, *, asked_by: str | None = None) -> dict[str, Any]:
        """What a monitor wants to know; of this account's requests alone, with `asked_by`."""
        now, own = self._core.clock(), () if asked_by is None else (Request.asked_by == searchable(asked_by),)
        states = select(Request.state, func.count()).where(*own).group_by(Request.state)
        late = select(func.count(Request.id)).where(Request.state.in_(OPEN), *own)
        queued = select(func.min(Request.changed)).where(Request.state == RequestState.QUEUED, *own)
        with self._core.reading() as session:
            oldest = session.scalar(queued)
            return {
                "requests": dict.fromkeys(map(str, RequestState), 0) | dict(session.execute(states).all()),
                "overdue": session.scalar(late.where(Request.due < now)) or 0,
                "due_soon": session.scalar(late.where(Request.due >= now, Request.due < now + SOON)) or 0,
                "events": head_of(session).number,
                "versions": session.scalar(select(func.count(Version.number))) or 0,
                "held": session.scalar(select(func.count(Federation.name)).where(Federation.lease_until > now)) or 0,
                "oldest_queued_seconds": 0.0 if oldest is None else (now - oldest).total_seconds(),
            }


def _raw_events(session: Session) -> Iterator[Mapping[str, Any]]:
    """All events as they lie in the table, oldest first, a few at a time."""
    columns = (
        Event.number, type_coerce(Event.at, Text).label("at"), Event.actor, Event.kind, Event.request, Event.body,
        Event.previous, Event.hash,
    )  # fmt: skip
    found = session.execute(select(*columns).order_by(Event.number), execution_options={"yield_per": 1000})
    return (row._asdict() for row in found)
