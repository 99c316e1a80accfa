"""Four eyes: where a federation wants them, who submitted or accepted a request does not decide about it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedforget.ledger.errors import ConflictError
from fedforget.ledger.schema import Event, Federation, Request
from fedforget.ledger.states import RequestState


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
