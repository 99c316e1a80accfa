"""Requests come in, are accepted or refused, and are owed by a date."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Unpack

from sqlalchemy import ColumnElement, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from fedforget.errors import InputError
from fedforget.ledger.chain import canonical, sha256_of
from fedforget.ledger.checks import check_id, check_reason, check_subject, check_word
from fedforget.ledger.clock import add_months, from_text, to_text
from fedforget.ledger.core import Core, named
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.federations import check_there
from fedforget.ledger.run_folders import check_held
from fedforget.ledger.schema import Account, Document, Federation, Request
from fedforget.ledger.search import Wanted, conditions, words_of
from fedforget.ledger.serving import CHOICES, CHOSEN, Choices, check_choices
from fedforget.ledger.states import AT_WORK, CLOSED, TRANSITIONS, Channel, Ground, RequestState
from fedforget.methods import check_servable, method_settings
from fedforget.requests import ErasureRequest

MONTHS = 1
"""How long a request may take (Article 12(3) GDPR)."""
MOST_EXTENSION = 2
"""By how many months more, where it is complex."""
LARGEST_PAGE = 500
OLDEST = timedelta(days=731)
IDENTITY = "identity checked"
"""What an event of it is called."""
Order = Literal["due", "received"]


@dataclass(frozen=True)
class Submission:
    request: Request
    created: bool
    """False: the same request was there before, and this is it."""


@dataclass(frozen=True)
class Page:
    """Some requests in order; `next` is the cursor of the page after, None at the end."""

    requests: tuple[Request, ...]
    next: str | None = None


class Requests:
    """Reached as `ledger.requests`: submit, accept, refuse, queue, extend, page, ..."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def submit(
        self,
        federation: str,
        target: ErasureRequest,
        *,
        subject: str,
        ground: str,
        asked_by: str,
        received: date | None = None,
        channel: str | None = None,
        actor: str | None = None,
    ) -> Submission:
        """A request comes in. The same one twice, also at the same moment, is one request, unless it was refused.

        Same is: the same federation, subject, client and target, whoever asks. `received`: the day on which it reached
        the organisation, if that was not now; the month runs from there. `actor` hands it in, where `asked_by` did not
        do so themselves."""
        subject, known_ground = check_subject(subject), check_word(Ground, ground, "legal ground")
        channel = None if channel is None else check_word(Channel, channel, "channel")
        text, now = canonical(target.to_json()), self._core.clock()
        arrived = now if received is None else _arrival(received, now)
        what: dict[str, Any] = {"federation": federation, "subject": subject, "client": target.client}
        what["target"], due = target.to_json(), add_months(arrived, MONTHS)
        with self._core.reading() as session:
            name = self._check_submission(session, federation, asked_by, target)
        id = uuid.uuid4().hex
        values = {
            "id": id, "federation": federation, "asked_by": asked_by, "subject": subject, "client": target.client,
            "target": text, "ground": known_ground, "channel": channel, "received": arrived, "due": due,
            "state": RequestState.RECEIVED, "changed": now, "not_before": now, "extended": 0, "attempts": 0,
            "failures": 0, "words": words_of(id, subject, federation, asked_by, known_ground, name),
        }  # fmt: skip
        told: dict[str, Any] = {"received": to_text(arrived), "channel": channel}
        with self._core.writing() as session:
            while True:
                fingerprint = sha256_of(canonical(what))
                new = self._core.insert(Request).values({**values, "fingerprint": fingerprint})
                new = new.on_conflict_do_nothing(index_elements=["fingerprint"])
                request = session.scalars(new.returning(Request)).one_or_none()
                if request is not None:
                    break
                same = session.scalars(select(Request).where(Request.fingerprint == fingerprint)).one()
                if same.state != RequestState.REFUSED:
                    return Submission(same, created=False)
                what["again"] = same.id  # asked again after it was refused: another request
            said = {**what, **told, "asked_by": asked_by, "ground": known_ground, "due": to_text(due)}
            self._core.append(session, actor or asked_by, RequestState.RECEIVED, said, request.id)
            return Submission(request, created=True)

    def _check_submission(self, session: Session, federation: str, asked_by: str, target: ErasureRequest) -> str:
        """Refuse what is not there; what is to be forgotten, in the federation's own words."""
        named(session, Account, asked_by)
        found = named(session, Federation, federation)
        check_there(target, found.description)
        if target.kind == "samples" and found.kind == "local":
            check_held(Path(found.place), target)
        check_servable(found.method, method_settings(found.method, found.preset, **found.settings)[1], [target])
        return target.describe(found.description["classes"])

    def page(
        self, *, order: Order = "received", limit: int = 50, after: str | None = None, **wanted: Unpack[Wanted]
    ) -> Page:
        """Requests by what is due first, or the newest first; page by page with `after`, a page's `next`."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise InputError(f"A page has 1 to {LARGEST_PAGE} requests, not {limit}.")
        query = select(Request).where(*conditions(**wanted))
        place = tuple_(getattr(Request, order), Request.id)
        if after is not None:
            query = query.where(place > _place(after) if order == "due" else place < _place(after))
        sorted_by = [column if order == "due" else column.desc() for column in place]
        found = self._core.rows(query.order_by(*sorted_by).limit(limit + 1))
        if len(found) <= limit:
            return Page(tuple(found))
        last = found[limit - 1]
        return Page(tuple(found[:limit]), f"{to_text(getattr(last, order))}~{last.id}")

    def get(self, id: str) -> Request:
        with self._core.reading() as session:
            return _get(session, id)

    def find(self, beginning: str) -> Request:
        """The one request whose id begins like this: people do not type 32 digits."""
        if re.fullmatch(r"[0-9a-f]{6,32}", beginning) is None:
            raise MissingError("A request is named by its id, or by the first 6 or more of its digits.")
        found = self._core.rows(select(Request).where(Request.id.startswith(beginning)).limit(2))
        if len(found) != 1:
            raise MissingError(f"There is {'no' if not found else 'more than one'} request '{beginning}...'.")
        return found[0]

    def accept(self, id: str, *, actor: str) -> Request:
        """received -> accepted: somebody has looked, and it is to be served."""
        return self._moved(id, RequestState.ACCEPTED, actor)

    def queue(self, id: str, *, actor: str) -> Request:
        """accepted -> queued: a worker may take it."""
        return self._moved(id, RequestState.QUEUED, actor, only_from=RequestState.ACCEPTED)

    def refuse(self, id: str, reason: str, *, actor: str) -> Request:
        """Not served, with the reason. Not once a worker has begun; `decisions.refuse` also refuses what waits."""
        return self._moved(id, RequestState.REFUSED, actor, reason=check_reason(reason), not_from=RequestState.DECIDING)

    def retry(self, id: str, *, actor: str) -> Request:
        """failed -> queued, by a person: it may fail as often again."""
        return self._moved(id, RequestState.QUEUED, actor, only_from=RequestState.FAILED)

    def extend(self, id: str, months: int, reason: str, *, actor: str) -> Request:
        """One or two months more, two in all, counted from when it was received; with a reason, before it is due."""
        reason = check_reason(reason)
        with self._core.writing() as session:
            request = _get(session, id, lock=True)
            if RequestState(request.state) in CLOSED:
                raise ConflictError(f"The request is {request.state}; there is nothing left to extend.")
            total = request.extended + months
            if months < 1 or total > MOST_EXTENSION:
                left = MOST_EXTENSION - request.extended
                raise ConflictError(f"The deadline can move by {left} more months at most, not by {months}.")
            if self._core.clock() > request.due:
                raise ConflictError("The deadline has passed; it can only be extended before.")
            request.extended, request.extension_reason = total, reason
            request.due = add_months(request.received, MONTHS + total)
            said = {"months": total, "reason": reason, "due": to_text(request.due)}
            self._core.append(session, actor, "extended", said, id)
            return request

    def choose(self, id: str, choices: Choices, *, actor: str) -> Request:
        """How this request alone is served; not while a worker has it. What is None is as the federation has it."""
        with self._core.writing() as session:
            request = _get(session, id, lock=True)
            if RequestState(request.state) in AT_WORK | CLOSED:
                raise ConflictError(f"The request is {request.state}; how it is served cannot be changed now.")
            said = {name: getattr(request, name) for name in CHOICES} | dict(choices)
            check_choices(named(session, Federation, request.federation), request.erasure, said)
            for name in CHOICES:
                setattr(request, name, said[name])
            self._core.append(session, actor, CHOSEN, said, id)
            return request

    def note_identity(self, id: str, how: str, *, actor: str) -> Request:
        """Somebody made sure that who asks is who they say; `how`, in words and without any number of a paper."""
        with self._core.writing() as session:
            request = _get(session, id, lock=True)
            if RequestState(request.state) in CLOSED:
                raise ConflictError(f"The request is {request.state}; there is nothing left to check.")
            self._core.append(session, actor, IDENTITY, {"how": check_reason(how)}, id)
            return request

    def _moved(
        self,
        id: str,
        state: RequestState,
        actor: str,
        *,
        reason: str | None = None,
        only_from: RequestState | None = None,
        not_from: RequestState | None = None,
    ) -> Request:
        with self._core.writing() as session:
            request = _get(session, id, lock=True)
            before = RequestState(request.state)
            if state not in TRANSITIONS[before] or only_from not in (None, before) or before == not_from:
                raise ConflictError(f"The request is {before}; it cannot become {state} by this.")
            if state == RequestState.QUEUED:
                request.attempts, request.failures, request.not_before = 0, 0, self._core.clock()
            self.move(session, [request], state, actor, reason=reason)
            return request

    def move(
        self,
        session: Session,
        requests: Sequence[Request],
        state: RequestState,
        actor: str,
        *,
        reason: str | None = None,
        said: Mapping[str, Any] | None = None,
        also: Mapping[str, Any] | None = None,
    ) -> None:
        """Another state for requests that the caller has locked, and `also` other columns; an event for each, with
        what is `said` in it. In the caller's transaction."""
        changes = {"state": state, "reason": reason, "changed": self._core.clock(), **(also or {})}
        for request in requests:
            body = {"from": request.state, **({} if reason is None else {"reason": reason}), **(said or {})}
            for name, value in changes.items():
                setattr(request, name, value)
            self._core.append(session, actor, state, body, request.id)

    def evidence_of(self, id: str) -> str | None:
        """The evidence file of a request, as text; None where there is none yet."""
        return self._document(Request.evidence, id)

    def report_of(self, id: str) -> str | None:
        """The report of a request, as HTML."""
        return self._document(Request.report, id)

    def _document(self, column: InstrumentedAttribute[str | None], id: str) -> str | None:
        query = select(Document.content).join(Request, column == Document.sha256).where(Request.id == check_id(id))
        with self._core.reading() as session:
            found = session.scalar(query)
            if found is None:
                _get(session, id)
            return found


def _arrival(day: date, now: datetime) -> datetime:
    """When a request of this day came in: at the day's beginning, or now, if that is today. Elsewhere it is tomorrow
    already, by up to 14 hours."""
    if day > (now + timedelta(hours=14)).date():
        raise InputError(f"The day of receipt, {day}, lies in the future; enter the day on which the request came in.")
    if day < (now - OLDEST).date():
        raise InputError(f"The day of receipt, {day}, is more than two years ago; look at the year.")
    return now if day >= now.date() else datetime(day.year, day.month, day.day, tzinfo=UTC)


def _get(session: Session, id: str, lock: bool = False) -> Request:
    found = session.get(Request, check_id(id), with_for_update={"key_share": True} if lock else None)
    if found is None:
        raise MissingError(f"There is no request '{id}'.")
    return found


def locked(session: Session, *where: ColumnElement[bool], limit: int | None = None) -> list[Request]:
    """These requests as they are, oldest first. Nobody else changes them before the caller's transaction is over."""
    query = select(Request).where(*where).order_by(Request.received, Request.id).limit(limit)
    return list(session.scalars(query.with_for_update(key_share=True)))


def _place(cursor: str) -> tuple[datetime, str]:
    """The moment and the id of the last request before the page of this cursor."""
    moment, _, id = cursor.partition("~")
    try:
        return from_text(moment), check_id(id)
    except ValueError:
        raise InputError("This is no cursor of a page; leave it out to begin at the first.") from None
