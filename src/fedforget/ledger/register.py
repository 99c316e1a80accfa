"""The register of requests for a period: what came in, until when it was due, what became of it, and why.

As rows, as CSV that no spreadsheet takes for formulas, and as PDF."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import select

from fedforget.errors import InputError
from fedforget.ledger.core import Core
from fedforget.ledger.papers import code_of, day
from fedforget.ledger.schema import Certificate, Request
from fedforget.ledger.states import CLOSED
from fedforget.ledger.versions import Versions

HEADER = (
    "received", "channel", "reference", "federation", "to forget", "legal ground", "asked by", "state", "due", "closed",
    "months extended", "why extended", "reason", "verdict", "certificate", "certificate withdrawn",
)  # fmt: skip
AT_ONCE = 500


class Register:
    """`ledger.register`."""

    def __init__(self, core: Core, versions: Versions) -> None:
        self._core, self._versions = core, versions

    def rows(self, first: date, last: date) -> list[tuple[str, ...]]:
        """What was received from the first day to the last (UTC), oldest first, as `HEADER` says."""
        if last < first:
            raise InputError(f"The register begins on {first} and would end on {last}; name the earlier day first.")
        start = datetime.combine(first, time(), UTC)
        end = datetime.combine(min(last, date(9998, 12, 31)), time(), UTC) + timedelta(days=1)
        query = select(Request).where(Request.received >= start, Request.received < end)
        found = self._core.rows(query.order_by(Request.received, Request.id))
        return [row for place in range(0, len(found), AT_ONCE) for row in self._some(found[place : place + AT_ONCE])]

    def _some(self, requests: Sequence[Request]) -> list[tuple[str, ...]]:
        said = self._versions.verdicts(requests)
        issued = select(Certificate).where(Certificate.request.in_([request.id for request in requests]))
        newest = {row.request: row for row in self._core.rows(issued.order_by(Certificate.version))}
        return [_row(request, said.get(request.id), newest.get(request.id)) for request in requests]

    def csv(self, first: date, last: date) -> bytes:
        """For a spreadsheet: UTF-8 with the mark that Excel wants."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerows([HEADER, *([safe_cell(cell) for cell in row] for row in self.rows(first, last))])
        return text.getvalue().encode("utf-8-sig")

    def pdf(self, first: date, last: date) -> bytes:
        from fedforget.ledger.printing import table_pdf  # it takes a while, and few need it

        rows, now = self.rows(first, last), self._core.clock()
        count = f"{len(rows)} request{'' if len(rows) == 1 else 's'}"
        about = f"Received from {_day(first)} to {_day(last)}: {count}. Made on {day(now)}. All days are UTC."
        return table_pdf("Register of erasure requests", about, HEADER, rows, now)


def safe_cell(text: str) -> str:
    """For a spreadsheet: what would begin a formula begins with an apostrophe.

    >>> safe_cell("=1+1"), safe_cell("case-1"), safe_cell("")
    ("'=1+1", 'case-1', '')
    """
    return f"'{text}" if text.startswith(FORMULA) else text


FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def _row(request: Request, verdict: str | None, certificate: Certificate | None) -> tuple[str, ...]:
    closed = request.changed if request.state in CLOSED else None
    withdrawn = None if certificate is None else certificate.withdrawn
    return (
        f"{request.received:%Y-%m-%d}", request.channel or "", request.subject, request.federation,
        request.erasure.describe(), request.ground, request.asked_by, request.state, f"{request.due:%Y-%m-%d}",
        "" if closed is None else f"{closed:%Y-%m-%d}", str(request.extended or ""), request.extension_reason or "",
        request.reason or "", verdict or "", "" if certificate is None else code_of(certificate.sha256),
        "" if withdrawn is None else f"{withdrawn:%Y-%m-%d}",
    )  # fmt: skip


def _day(value: date) -> str:
    return day(datetime.combine(value, time(), UTC))
