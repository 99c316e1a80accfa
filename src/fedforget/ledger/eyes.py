"""What a decision takes up, and whose it may be: where a federation wants four eyes, nobody decides about a request
that they submitted or accepted."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from fedforget.ledger.errors import ConflictError
from fedforget.ledger.intake import locked
from fedforget.ledger.schema import Candidate, Event, Federation, Request
from fedforget.ledger.states import RequestState

DECIDABLE = frozenset({RequestState.DECIDING, RequestState.FAILED})
"""A person decides what is done next."""


def taken(session: Session, federation: str, id: str, actor: str) -> tuple[list[Request], Candidate | None]:
    """The request with those that share its fate, locked, and the result that waited for a decision about them, if one
    did: it waits no longer."""
    requests, candidate = locked(session, Request.id == id), None
    if requests[0].state == RequestState.DECIDING:
        requests = locked(session, Request.claim == requests[0].claim)
        gone = delete(Candidate).where(Candidate.claim == requests[0].claim).returning(Candidate)
        candidate = session.scalars(gone).one()
    if requests[0].state in DECIDABLE:
        check_eyes(session, federation, requests, actor)
    return requests, candidate


def check_eyes(session: Session, federation: str, requests: Sequence[Request], actor: str) -> None:
    """Refuse a decision by somebody who brought one of these requests on its way."""
    if not session.scalars(select(Federation.four_eyes).where(Federation.name == federation)).one():
        return
    steps = (RequestState.RECEIVED, RequestState.ACCEPTED)
    ids = [request.id for request in requests]
    query = select(Event.actor, Event.kind).where(Event.request.in_(ids), Event.kind.in_(steps))
    brought = {_account(row.actor): row.kind for row in session.execute(query)}
    brought |= {request.asked_by: RequestState.RECEIVED for request in requests}
    if (step := brought.get(_account(actor))) is not None:
        did = "accepted" if step == RequestState.ACCEPTED else "submitted"
        raise ConflictError(
            f"{federation} wants four eyes: you {did} this request, so another officer must decide about it."
        )


def _account(actor: str) -> str:
    """Whose name it was done in: a command's actor may be 'os user maria as oscar'.

    >>> _account("os user maria as oscar"), _account("oscar")
    ('oscar', 'oscar')
    """
    return actor.rpartition(" as ")[2]
