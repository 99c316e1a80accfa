"""What people do to requests, the same for the pages and the API: both call these."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from fedforget.console.permissions import Permission
from fedforget.console.visitors import Visitor, too_often
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.intake import Submission
from fedforget.ledger.schema import Progress, Request
from fedforget.ledger.states import AT_WORK, RequestState
from fedforget.requests import ErasureRequest

Paper = TypeVar("Paper")


def submit(visitor: Visitor, federation: str, target: ErasureRequest, *, subject: str, ground: str) -> Submission:
    """A request in the visitor's name, not too many a minute. The same request of somebody else is not shown to who may
    not see it."""
    wait = visitor.console.submission_limit.take(f"account {visitor.name}")
    if wait:
        raise too_often(wait, "Too many requests at once; wait a minute.")
    found = visitor.ledger.requests.submit(federation, target, subject=subject, ground=ground, asked_by=visitor.name)
    if not found.created and visitor.only_own not in (None, found.request.asked_by):
        raise ConflictError("The same request is on file already; a data-protection officer can say more.")
    return found


def accept(visitor: Visitor, id: str) -> Request:
    """received -> accepted -> queued. Somebody who was interrupted in between comes here again."""
    if visitor.ledger.requests.get(id).state != RequestState.ACCEPTED:
        visitor.ledger.requests.accept(id, actor=visitor.name)
    return visitor.ledger.requests.queue(id, actor=visitor.name)


def paper(visitor: Visitor, id: str, what: str, read: Callable[[str], Paper | None]) -> Paper:
    """What `read` has of a request that they may see."""
    visitor.request(id)
    found = read(id)
    if found is None:
        raise MissingError(f"The request has no {what} yet.")
    return found


def progress_of(visitor: Visitor, requests: Iterable[Request]) -> dict[str, Progress]:
    """How far those are that a worker has."""
    at_work = [request.id for request in requests if request.state in AT_WORK]
    return visitor.ledger.work.progress(at_work) if at_work else {}


ACTIONS: dict[str, tuple[Permission, frozenset[RequestState]]] = {
    "accept": (Permission.ACCEPT, frozenset({RequestState.RECEIVED, RequestState.ACCEPTED})),
    "refuse": (
        Permission.REFUSE,
        frozenset({RequestState.RECEIVED, RequestState.ACCEPTED, RequestState.QUEUED, RequestState.FAILED}),
    ),
    "extend": (Permission.EXTEND, frozenset(RequestState) - {RequestState.DONE, RequestState.REFUSED}),
    "decide": (Permission.DECIDE, frozenset({RequestState.DECIDING})),
    "retry": (Permission.RETRY, frozenset({RequestState.FAILED})),
}
"""What a page offers for a request in these states."""


def offered(visitor: Visitor, request: Request) -> list[str]:
    """What this visitor can do with it now."""
    return [
        name
        for name, (permission, states) in ACTIONS.items()
        if visitor.may(permission)
        and request.state in states
        and not (name == "extend" and (request.extended >= 2 or request.due < visitor.ledger.clock()))
    ]
