"""`fedforget request`: the papers of a request, and the register of a period."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedforget.cli.request import IdArgument, request_app
from fedforget.cli.service import Shown, ledger_command
from fedforget.data.files import write_bytes, write_text
from fedforget.errors import InputError

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger


@ledger_command(request_app, "print")
def print_certificate(
    ledger: Ledger,
    id: IdArgument,
    html: Annotated[Path | None, typer.Option(help="Write the page as HTML, which prints on one A4 page.")] = None,
    pdf: Annotated[Path | None, typer.Option(help="Write the page as PDF.")] = None,
) -> Shown:
    """A request's certificate for people: one page in plain words, with a code to check it by."""
    from fedforget.ledger.papers import certificate_paper
    from fedforget.ledger.printing import paper_html, paper_pdf

    request = ledger.requests.find(id)
    signed = ledger.versions.certificate_of(request.id)
    if signed is None:
        raise InputError(f"Request {request.id} has no certificate yet: it is {request.state}.")
    paper = certificate_paper(signed.content, ledger.withdrawals.withdrawn(signed))
    if html is not None:
        write_text(html, paper_html(paper))
    if pdf is not None:
        write_bytes(pdf, paper_pdf(paper))
    lines = [f"{paper.title}, {paper.about}. {paper.verdict.capitalize()}: {paper.meaning}", f"Code: {paper.code}"]
    return Shown({"code": paper.code, "sha256": paper.fingerprint, "verdict": paper.verdict}, lines)


@ledger_command(request_app, "letter")
def letter(
    ledger: Ledger,
    id: IdArgument,
    kind: Annotated[
        str | None, typer.Option(help="received, extended, waiting, refused, done, complaint or withdrawn.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write it into this file.")] = None,
) -> Shown:
    """The draft of a letter to who asked; without --kind the one that is due now."""
    from fedforget.ledger.letters import draft, letters_for

    request = ledger.requests.find(id)
    signed = ledger.versions.certificate_of(request.id)
    why = None if signed is None else ledger.withdrawals.reason(signed)
    kind = kind or letters_for(request, why)[0]
    verdict = ledger.versions.verdicts([request]).get(request.id)
    text = draft(request, kind, signed, verdict, ledger.clock(), why)
    if out is not None:
        write_text(out, text)
    return Shown({"kind": kind, "text": text}, [text.rstrip() if out is None else f"Wrote {out}."])


@ledger_command(request_app, "register")
def register(
    ledger: Ledger,
    first: Annotated[datetime, typer.Option("--from", help="The first day.", formats=["%Y-%m-%d"])],
    last: Annotated[datetime, typer.Option("--to", help="The last day.", formats=["%Y-%m-%d"])],
    csv: Annotated[Path | None, typer.Option(help="Write it as CSV, safe to open in a spreadsheet.")] = None,
    pdf: Annotated[Path | None, typer.Option(help="Write it as PDF.")] = None,
) -> Shown:
    """What was received in a period: deadlines, extensions, reasons, and how each ended."""
    from fedforget.ledger.register import HEADER

    days = (first.date(), last.date())
    rows = ledger.register.rows(*days)
    if csv is not None:
        write_bytes(csv, ledger.register.csv(*days))
    if pdf is not None:
        write_bytes(pdf, ledger.register.pdf(*days))
    lines = ["  ".join(row[name] for name in (0, 2, 4, 7, 8)) for row in rows]
    return Shown([dict(zip(HEADER, row, strict=True)) for row in rows], lines or ["Nothing was received."])
