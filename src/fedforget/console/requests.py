"""Requests: what people do to them, the API for it, and their papers. The other pages are in `request_pages`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Path, Query
from fastapi import Response as Answer
from starlette.responses import Response

from fedforget.console.models import (
    AcceptedOut,
    AgainIn,
    ChoicesIn,
    DecisionIn,
    EventOut,
    ExtensionIn,
    IdentityIn,
    ManyIn,
    OptionOut,
    ProgressOut,
    ReasonIn,
    RequestOut,
    RequestPage,
    SubmissionIn,
)
from fedforget.console.permissions import Permission
from fedforget.console.problems import API
from fedforget.console.rendering import file_to_keep
from fedforget.console.security import REPORT_POLICY
from fedforget.console.visitors import Visitor, allow, guarded_router, too_often
from fedforget.errors import FedForgetError, InputError
from fedforget.ledger.errors import ConflictError, MissingError, NotHeldError
from fedforget.ledger.intake import Submission
from fedforget.ledger.schema import Progress, Request
from fedforget.ledger.states import AT_WORK, CLOSED, OPEN, TRANSITIONS, Ground, RequestState
from fedforget.requests import ErasureRequest

api = guarded_router(prefix=API, tags=["requests"])
pages = guarded_router(include_in_schema=False)
Paper = TypeVar("Paper")
Id = Annotated[str, Path(max_length=64, description="The request's id, 32 hexadecimal digits.")]
Reader = Annotated[Visitor, allow(Permission.SEE_REQUESTS)]
JSON_FILE: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {"schema": {"type": "object"}}}}}
HTML_FILE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {"schema": {"type": "string"}}}}}


def submit(
    visitor: Visitor, federation: str, target: ErasureRequest, *, subject: str, ground: str,
    received: date | None = None, channel: str | None = None,
) -> Submission:  # fmt: skip
    """A request in the visitor's name, not too many a minute. The same request of somebody else is not shown to who may
    not see it, nor how many samples a client holds."""
    wait = visitor.console.submission_limit.take(f"account {visitor.name}")
    if wait:
        raise too_often(wait, "Too many requests at once; wait a minute.")
    try:
        found = visitor.ledger.requests.submit(
            federation, target, subject=subject, ground=ground, asked_by=visitor.name, received=received,
            channel=channel,
        )  # fmt: skip
    except NotHeldError as error:
        if visitor.may(Permission.SEE_COUNTS):
            raise
        raise InputError(f"Not all of these samples are client {error.client}'s; look at their numbers.") from None
    if not found.created and visitor.only_own not in (None, found.request.asked_by):
        raise ConflictError("The same request is on file already; a data-protection officer can say more.")
    return found


def accept(visitor: Visitor, id: str) -> Request:
    """received -> accepted -> queued. Somebody who was interrupted in between comes here again."""
    if visitor.ledger.requests.get(id).state != RequestState.ACCEPTED:
        visitor.ledger.requests.accept(id, actor=visitor.name)
    return visitor.ledger.requests.queue(id, actor=visitor.name)


def accept_all(visitor: Visitor, ids: Iterable[str]) -> list[AcceptedOut]:
    """Each by itself: what cannot be accepted says why, and keeps none of the others back."""
    found = []
    for id in dict.fromkeys(ids):
        try:
            found.append(AcceptedOut(id=id, state=accept(visitor, id).state, problem=None))
        except FedForgetError as error:
            found.append(AcceptedOut(id=id, state=None, problem=str(error)))
    return found


def progress_of(visitor: Visitor, requests: Iterable[Request]) -> dict[str, Progress]:
    """How far those are that a worker has."""
    at_work = [request.id for request in requests if request.state in AT_WORK]
    return visitor.ledger.work.progress(at_work) if at_work else {}


ACTIONS: dict[str, tuple[Permission, frozenset[RequestState]]] = {
    "accept": (Permission.ACCEPT, frozenset({RequestState.RECEIVED, RequestState.ACCEPTED})),
    "refuse": (Permission.REFUSE, frozenset(s for s, next in TRANSITIONS.items() if RequestState.REFUSED in next)),
    "extend": (Permission.EXTEND, OPEN),
    "decide": (Permission.DECIDE, frozenset({RequestState.DECIDING})),
    "again": (Permission.DECIDE, frozenset({RequestState.DECIDING, RequestState.FAILED})),
    "choose": (Permission.CHOOSE, OPEN - AT_WORK - {RequestState.DECIDING}),
    "identity": (Permission.CHECK_IDENTITY, OPEN),
    "retry": (Permission.RETRY, frozenset({RequestState.FAILED})),
    "withdraw": (Permission.WITHDRAW, frozenset({RequestState.DONE})),
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


@api.get("/requests")
def list_requests(
    visitor: Reader,
    state: Annotated[list[RequestState] | None, Query(description="Only in these states.")] = None,
    federation: Annotated[str | None, Query(max_length=64)] = None,
    subject: Annotated[str | None, Query(max_length=64)] = None,
    text: Annotated[str | None, Query(max_length=200, description="Parts of words, each to be found.")] = None,
    ground: Ground | None = None,
    verdict: Annotated[str | None, Query(max_length=32)] = None,
    received_from: datetime | None = None,
    received_before: datetime | None = None,
    due_before: datetime | None = None,
    order: Literal["received", "due"] = "received",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[str | None, Query(max_length=100, description="The cursor `next` of the page before.")] = None,
) -> RequestPage:
    """Requests, newest first or what is due first; a requester sees their own."""
    page = visitor.ledger.requests.page(
        states=state, federation=federation, subject=subject, text=text, ground=ground, verdict=verdict,
        received_from=_in_utc(received_from), received_before=_in_utc(received_before), due_before=_in_utc(due_before),
        order=order, limit=limit, after=after, asked_by=visitor.only_own,
    )  # fmt: skip
    return RequestPage.model_construct(requests=_shown(visitor, page.requests), next=page.next)


def _in_utc(moment: datetime | None) -> datetime | None:
    """As everywhere here, where no time zone is said."""
    try:
        return moment and (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise InputError(f"{moment} is no moment of this calendar in UTC; name a later or an earlier one.") from None


def _shown(visitor: Visitor, rows: Sequence[Request]) -> list[RequestOut]:
    """With what the audit says of each, and how far those are that a worker has."""
    now, said = visitor.ledger.clock(), visitor.ledger.versions.verdicts(rows)
    progress = {id: ProgressOut.of(row) for id, row in progress_of(visitor, rows).items()}
    return [
        RequestOut.of(
            row, target=row.erasure.to_json(), describes=row.erasure.describe(), verdict=said.get(row.id),
            overdue=row.state not in CLOSED and row.due < now, progress=progress.get(row.id),
        )
        for row in rows
    ]  # fmt: skip


def _one(visitor: Visitor, row: Request) -> RequestOut:
    return _shown(visitor, [row])[0]


@api.post("/requests", status_code=201, responses={200: {"model": RequestOut, "description": "It was there before."}})
def submit_request(
    visitor: Annotated[Visitor, allow(Permission.SUBMIT)], submission: SubmissionIn, answer: Answer
) -> RequestOut:
    """A new request; the same one twice is one request (200)."""
    found = submit(
        visitor, submission.federation, submission.erasure(), subject=submission.subject, ground=submission.ground,
        received=submission.received, channel=submission.channel,
    )  # fmt: skip
    if not found.created:
        answer.status_code = 200
    return _one(visitor, found.request)


@api.post("/requests/accept")
def accept_requests(visitor: Annotated[Visitor, allow(Permission.ACCEPT)], many: ManyIn) -> list[AcceptedOut]:
    """Several at once; each is queued, or says why it was not."""
    return accept_all(visitor, many.ids)


@api.get("/requests/{id}")
def one_request(visitor: Reader, id: Id) -> RequestOut:
    """One request, with how far it is."""
    return _one(visitor, visitor.request(id))


@api.get("/requests/{id}/events")
def events_of_request(visitor: Reader, id: Id) -> list[EventOut]:
    """What happened to it, oldest first."""
    visitor.request(id)
    return [EventOut(**event.to_json()) for event in visitor.ledger.trail.events(request=id, after=0, limit=500)]


@api.post("/requests/{id}/accept")
def accept_request(visitor: Annotated[Visitor, allow(Permission.ACCEPT)], id: Id) -> RequestOut:
    """To be served: it is queued for a worker."""
    return _one(visitor, accept(visitor, id))


@api.post("/requests/{id}/refuse")
def refuse_request(visitor: Annotated[Visitor, allow(Permission.REFUSE)], id: Id, refusal: ReasonIn) -> RequestOut:
    """Not to be served, with the reason."""
    return _one(visitor, visitor.ledger.decisions.refuse(id, refusal.reason, actor=visitor.name))


@api.post("/requests/{id}/identity")
def note_identity(
    visitor: Annotated[Visitor, allow(Permission.CHECK_IDENTITY)], id: Id, identity: IdentityIn
) -> RequestOut:
    """Somebody made sure that who asks is who they say."""
    return _one(visitor, visitor.ledger.requests.note_identity(id, identity.how, actor=visitor.name))


@api.post("/requests/{id}/choose")
def choose_for_request(visitor: Annotated[Visitor, allow(Permission.CHOOSE)], id: Id, choices: ChoicesIn) -> RequestOut:
    """How this request alone is served; not while a worker has it."""
    return _one(visitor, visitor.ledger.requests.choose(id, choices.said(), actor=visitor.name))


@api.get("/requests/{id}/options")
def options_of_request(visitor: Annotated[Visitor, allow(Permission.DECIDE)], id: Id) -> list[OptionOut]:
    """What can be done next where it waits for a decision or failed, what it costs here and what it buys."""
    return [OptionOut(**vars(option)) for option in visitor.ledger.decisions.options(visitor.request(id))]


@api.post("/requests/{id}/extend")
def extend_request(visitor: Annotated[Visitor, allow(Permission.EXTEND)], id: Id, extension: ExtensionIn) -> RequestOut:
    """One or two months more, two in all, with the reason."""
    return _one(visitor, visitor.ledger.requests.extend(id, extension.months, extension.reason, actor=visitor.name))


@api.post("/requests/{id}/decide")
def decide_request(visitor: Annotated[Visitor, allow(Permission.DECIDE)], id: Id, decision: DecisionIn) -> RequestOut:
    """Publish what the gate held, or reject it."""
    visitor.ledger.versions.decide(id, decision.publish, decision.reason, actor=visitor.name)
    return _one(visitor, visitor.ledger.requests.get(id))


@api.post("/requests/{id}/again")
def try_request_again(visitor: Annotated[Visitor, allow(Permission.DECIDE)], id: Id, again: AgainIn) -> RequestOut:
    """Have it tried on one rung, where it waits for a decision or failed; what waited is destroyed."""
    visitor.ledger.decisions.again(id, again.effort, actor=visitor.name)
    return _one(visitor, visitor.ledger.requests.get(id))


@api.post("/requests/{id}/retry")
def retry_request(visitor: Annotated[Visitor, allow(Permission.RETRY)], id: Id) -> RequestOut:
    """Queue a failed request again."""
    return _one(visitor, visitor.ledger.requests.retry(id, actor=visitor.name))


@api.post("/requests/{id}/withdraw")
def withdraw_certificate(visitor: Annotated[Visitor, allow(Permission.WITHDRAW)], id: Id, why: ReasonIn) -> RequestOut:
    """Its certificate does not hold, as was found later; the request fails, with the reason."""
    return _one(visitor, visitor.ledger.withdrawals.withdraw(id, why.reason, actor=visitor.name))


@api.get("/requests/{id}/certificate", response_class=Response, responses=JSON_FILE)
@pages.get("/requests/{id}/certificate.json")
def certificate_of_request(visitor: Reader, id: Id) -> Response:
    """The signed record, byte for byte. Withdrawn: the header `x-fedforget-withdrawn` says when."""
    found = paper_of(visitor, id, "certificate", visitor.ledger.versions.certificate_of)
    withdrawn = {} if found.withdrawn is None else {"x-fedforget-withdrawn": found.withdrawn.isoformat()}
    return file_to_keep(f"certificate-{id[:12]}.json", found.content, **withdrawn)


@api.get("/requests/{id}/evidence", response_class=Response, responses=JSON_FILE)
@pages.get("/requests/{id}/evidence.json")
def evidence_of_request(visitor: Reader, id: Id) -> Response:
    """The evidence file, byte for byte."""
    found = paper_of(visitor, id, "evidence", visitor.ledger.requests.evidence_of)
    return file_to_keep(f"evidence-{id[:12]}.json", found)


@api.get("/requests/{id}/report", response_class=Response, responses=HTML_FILE)
@pages.get("/requests/{id}/report")
def report_of_request(
    visitor: Reader, id: Id, download: Annotated[str, Query(include_in_schema=False)] = ""
) -> Response:
    """The report, one HTML file."""
    found = paper_of(visitor, id, "report", visitor.ledger.requests.report_of)
    # In a sandbox, as a page of its own: it is a file, and whatever is in it can do nothing here.
    sandbox = {"content-security-policy": REPORT_POLICY}
    if download:
        return file_to_keep(f"report-{id[:12]}.html", found, **sandbox)
    return Response(found, media_type="text/html", headers=sandbox)


def paper_of(visitor: Visitor, id: str, what: str, read: Callable[[str], Paper | None]) -> Paper:
    """What `read` has of a request that they may see."""
    visitor.request(id)
    found = read(id)
    if found is None:
        raise MissingError(f"The request has no {what} yet.")
    return found
