"""Papers for people, as pages and files: the printed certificate, letters, the register, and where data lives on."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import RedirectResponse, Response

from fedforget.console.models import LineageOut
from fedforget.console.permissions import Permission
from fedforget.console.problems import API
from fedforget.console.rendering import file_to_keep, render, shown_on
from fedforget.console.requests import HTML_FILE, JSON_FILE, Id, Reader, paper_of
from fedforget.console.security import REPORT_POLICY
from fedforget.console.visitors import Posted, Visitor, allow, guarded_router
from fedforget.ledger.letters import draft, letters_for
from fedforget.ledger.papers import Paper, certificate_paper
from fedforget.ledger.printing import paper_html, paper_pdf
from fedforget.ledger.register import HEADER

api = guarded_router(prefix=API, tags=["papers"])
pages = guarded_router(include_in_schema=False)
Clerk = Annotated[Visitor, allow(Permission.SEE_ALL_REQUESTS)]
Writer = Annotated[Visitor, allow(Permission.WRITE_LETTERS)]
Looker = Annotated[Visitor, allow(Permission.SEE_VERSIONS)]
Destroyer = Annotated[Visitor, allow(Permission.DESTROY)]
Day = Annotated[date | None, Query(description="A day, such as 2026-01-31; left out: of this year.")]


def _file(media: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {media: {"schema": {"type": "string", "format": "binary"}}}}}


def _paper(visitor: Visitor, id: str) -> Paper:
    signed = paper_of(visitor, id, "certificate", visitor.ledger.versions.certificate_of)
    return certificate_paper(signed.content, visitor.ledger.withdrawals.withdrawn(signed))


@api.get("/requests/{id}/certificate.html", response_class=Response, responses=HTML_FILE)
@pages.get("/requests/{id}/certificate.html")
def printed_certificate(visitor: Reader, id: Id) -> Response:
    """The certificate for people: one page in plain words."""
    text = paper_html(_paper(visitor, id))
    return Response(text, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})


@api.get("/requests/{id}/certificate.pdf", response_class=Response, responses=_file("application/pdf"))
@pages.get("/requests/{id}/certificate.pdf")
def certificate_as_pdf(visitor: Reader, id: Id) -> Response:
    """The same page, to file."""
    return file_to_keep(f"certificate-{id[:12]}.pdf", paper_pdf(_paper(visitor, id)))


def _letters(visitor: Visitor, id: str) -> dict[str, str]:
    request, ledger = visitor.request(id), visitor.ledger
    signed, verdict = ledger.versions.certificate_of(id), ledger.versions.verdicts([request]).get(id)
    why = None if signed is None else ledger.withdrawals.reason(signed)
    return {kind: draft(request, kind, signed, verdict, ledger.clock(), why) for kind in letters_for(request, why)}


@api.get("/requests/{id}/letters")
def letters_of_request(visitor: Writer, id: Id) -> dict[str, str]:
    """Drafts of the letters that make sense now, by their kind."""
    return _letters(visitor, id)


@pages.get("/requests/{id}/letters")
def letters_page(visitor: Writer, id: Id) -> Response:
    return render(visitor, "letters.html", request=visitor.request(id), letters=_letters(visitor, id))


def _period(visitor: Visitor, first: date | None, last: date | None) -> tuple[date, date]:
    """This year, where nobody says."""
    year = visitor.ledger.clock().year
    return first or date(year, 1, 1), last or date(year, 12, 31)


@api.get("/register")
def register(visitor: Clerk, first: Day = None, last: Day = None) -> list[dict[str, str]]:
    """The requests that were received in a period, with deadlines, extensions and reasons."""
    rows = visitor.ledger.register.rows(*_period(visitor, first, last))
    return [dict(zip(HEADER, row, strict=True)) for row in rows]


@pages.get("/register")
def register_page(visitor: Clerk) -> Response:
    first, last = _period(visitor, None, None)
    return render(visitor, "register.html", first=first, last=last)


@api.get("/register.csv", response_class=Response, responses=_file("text/csv"))
@pages.get("/register.csv")
def register_as_csv(visitor: Clerk, first: Day = None, last: Day = None) -> Response:
    """For a spreadsheet, which takes no cell of it for a formula."""
    first, last = _period(visitor, first, last)
    return file_to_keep(f"register-{first}-{last}.csv", visitor.ledger.register.csv(first, last))


@api.get("/register.pdf", response_class=Response, responses=_file("application/pdf"))
@pages.get("/register.pdf")
def register_as_pdf(visitor: Clerk, first: Day = None, last: Day = None) -> Response:
    """To file."""
    first, last = _period(visitor, first, last)
    return file_to_keep(f"register-{first}-{last}.pdf", visitor.ledger.register.pdf(first, last))


@api.get("/requests/{id}/lineage")
def lineage_of_request(visitor: Looker, id: Id) -> LineageOut:
    """Where its data lives on: every file in the ledger's folder is looked into."""
    return LineageOut(**visitor.ledger.lineage.of(visitor.request(id)).to_json())


@pages.get("/requests/{id}/lineage")
def lineage_page(visitor: Looker, id: Id, destroyed: str = "") -> Response:
    return _lineage(visitor, id, destroyed=bool(destroyed))


def _lineage(visitor: Visitor, id: str, **more: Any) -> Response:
    request = visitor.request(id)
    found = visitor.ledger.lineage.of(request)
    return render(visitor, "lineage.html", request=request, found=found, **{"destroyed": False, **more})


@api.post("/requests/{id}/lineage/destroy")
def destroy_what_is_due(visitor: Destroyer, id: Id) -> LineageOut:
    """Destroy what is due and was announced a day ago; what is due next is announced."""
    visitor.request(id)
    visitor.ledger.lineage.destroy_due(actor=visitor.name)
    return lineage_of_request(visitor, id)


@pages.post("/requests/{id}/lineage/destroy")
def destroy(visitor: Destroyer, id: Id, form: Posted) -> Response:
    @shown_on(lambda visitor, **more: _lineage(visitor, id, **more))
    def act(visitor: Visitor) -> Response:
        visitor.request(id)
        visitor.ledger.lineage.destroy_due(actor=visitor.name)
        return RedirectResponse(f"/requests/{id}/lineage?destroyed=1", 303)

    return act(visitor)


@api.post("/requests/{id}/lineage/receipt", response_class=Response, responses=JSON_FILE)
@pages.post("/requests/{id}/lineage/receipt")
def receipt(visitor: Looker, id: Id) -> Response:
    """What was found, signed. That it was is an event."""
    found = visitor.ledger.lineage.of(visitor.request(id))
    text = visitor.ledger.lineage.receipt(found, actor=visitor.name)
    return file_to_keep(f"lineage-{found.request[:12]}.json", text)
