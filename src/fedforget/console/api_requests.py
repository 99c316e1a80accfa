"""The API: requests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from fastapi import Response as Answer
from starlette.responses import Response

from fedforget.console import cases
from fedforget.console.models import (
    DecisionIn,
    EventOut,
    ExtensionIn,
    ProgressOut,
    ReasonIn,
    RequestOut,
    RequestPage,
    SubmissionIn,
)
from fedforget.console.permissions import Permission
from fedforget.console.problems import API
from fedforget.console.security import REPORT_POLICY
from fedforget.console.visitors import Visitor, allow, guarded_router
from fedforget.ledger.schema import Progress, Request
from fedforget.ledger.states import CLOSED, RequestState

router = guarded_router(prefix=API, tags=["requests"])
Id = Annotated[str, Path(max_length=64, description="The request's id, 32 hexadecimal digits.")]
Reader = Annotated[Visitor, allow(Permission.SEE_REQUESTS)]
JSON_FILE: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {"schema": {"type": "object"}}}}}
HTML_FILE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {"schema": {"type": "string"}}}}}


@router.get("/requests")
def list_requests(
    visitor: Reader,
    state: Annotated[list[RequestState] | None, Query(description="Only in these states.")] = None,
    federation: Annotated[str | None, Query(max_length=64)] = None,
    subject: Annotated[str | None, Query(max_length=64)] = None,
    due_before: datetime | None = None,
    order: Literal["received", "due"] = "received",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[str | None, Query(max_length=100, description="The cursor `next` of the page before.")] = None,
) -> RequestPage:
    """Requests, newest first or what is due first; a requester sees their own."""
    page = visitor.ledger.requests.page(
        states=state, federation=federation, subject=subject, due_before=_aware(due_before), order=order, limit=limit,
        after=after, asked_by=visitor.only_own,
    )  # fmt: skip
    return RequestPage.model_construct(requests=_shown(visitor, page.requests), next=page.next)


def _shown(visitor: Visitor, rows: Sequence[Request]) -> list[RequestOut]:
    """With what the audit says of each, and how far those are that a worker has."""
    now = visitor.ledger.clock()
    said, progress = visitor.ledger.versions.verdicts(rows), cases.progress_of(visitor, rows)
    return [_out(row, now, said.get(row.id), progress.get(row.id)) for row in rows]


def _out(row: Request, now: datetime, verdict: str | None, progress: Progress | None) -> RequestOut:
    erasure, overdue = row.erasure, row.state not in CLOSED and row.due < now
    return RequestOut.of(
        row, target=erasure.to_json(), describes=erasure.describe(), overdue=overdue, verdict=verdict,
        progress=None if progress is None else ProgressOut.of(progress),
    )  # fmt: skip


def _one(visitor: Visitor, row: Request) -> RequestOut:
    return _shown(visitor, [row])[0]


def _aware(moment: datetime | None) -> datetime | None:
    """A time without a zone is UTC, as everywhere here."""
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@router.post(
    "/requests", status_code=201, responses={200: {"model": RequestOut, "description": "It was there before."}}
)
def submit_request(
    visitor: Annotated[Visitor, allow(Permission.SUBMIT)], submission: SubmissionIn, answer: Answer
) -> RequestOut:
    """A new request; the same one twice is one request (200)."""
    found = cases.submit(
        visitor, submission.federation, submission.erasure(), subject=submission.subject, ground=submission.ground
    )
    if not found.created:
        answer.status_code = 200
    return _one(visitor, found.request)


@router.get("/requests/{id}")
def one_request(visitor: Reader, id: Id) -> RequestOut:
    """One request, with how far it is."""
    return _one(visitor, visitor.request(id))


@router.get("/requests/{id}/events")
def events_of_request(visitor: Reader, id: Id) -> list[EventOut]:
    """What happened to it, oldest first."""
    visitor.request(id)
    return [EventOut(**event.to_json()) for event in visitor.ledger.trail.events(request=id, after=0, limit=500)]


@router.post("/requests/{id}/accept")
def accept_request(visitor: Annotated[Visitor, allow(Permission.ACCEPT)], id: Id) -> RequestOut:
    """To be served: it is queued for a worker."""
    return _one(visitor, cases.accept(visitor, id))


@router.post("/requests/{id}/refuse")
def refuse_request(visitor: Annotated[Visitor, allow(Permission.REFUSE)], id: Id, refusal: ReasonIn) -> RequestOut:
    """Not to be served, with the reason."""
    return _one(visitor, visitor.ledger.requests.refuse(id, refusal.reason, actor=visitor.name))


@router.post("/requests/{id}/extend")
def extend_request(visitor: Annotated[Visitor, allow(Permission.EXTEND)], id: Id, extension: ExtensionIn) -> RequestOut:
    """One or two months more, two in all, with the reason."""
    return _one(visitor, visitor.ledger.requests.extend(id, extension.months, extension.reason, actor=visitor.name))


@router.post("/requests/{id}/decide")
def decide_request(visitor: Annotated[Visitor, allow(Permission.DECIDE)], id: Id, decision: DecisionIn) -> RequestOut:
    """Publish what the gate held, or reject it."""
    visitor.ledger.versions.decide(id, decision.publish, decision.reason, actor=visitor.name)
    return _one(visitor, visitor.ledger.requests.get(id))


@router.post("/requests/{id}/retry")
def retry_request(visitor: Annotated[Visitor, allow(Permission.RETRY)], id: Id) -> RequestOut:
    """Queue a failed request again."""
    return _one(visitor, visitor.ledger.requests.retry(id, actor=visitor.name))


@router.get("/requests/{id}/certificate", response_class=Response, responses=JSON_FILE)
def certificate_of_request(visitor: Reader, id: Id) -> Response:
    """The signed record, byte for byte. Withdrawn: the header `x-fedforget-withdrawn` says when."""
    found = cases.paper(visitor, id, "certificate", visitor.ledger.versions.certificate_of)
    headers = {} if found.withdrawn is None else {"x-fedforget-withdrawn": found.withdrawn.isoformat()}
    return Response(found.content, media_type="application/json", headers=headers)


@router.get("/requests/{id}/evidence", response_class=Response, responses=JSON_FILE)
def evidence_of_request(visitor: Reader, id: Id) -> Response:
    """The evidence file, byte for byte."""
    found = cases.paper(visitor, id, "evidence", visitor.ledger.requests.evidence_of)
    return Response(found, media_type="application/json")


@router.get("/requests/{id}/report", response_class=Response, responses=HTML_FILE)
def report_of_request(visitor: Reader, id: Id) -> Response:
    """The report, one HTML file."""
    found = cases.paper(visitor, id, "report", visitor.ledger.requests.report_of)
    return Response(found, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})
