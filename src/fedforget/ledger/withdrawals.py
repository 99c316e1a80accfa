"""Certificates that hold no more: withdrawn by a rollback or by an officer, and the signed list of them.

A certificate in somebody's drawer cannot know. So the ledger signs a list, about the head of its chain at that moment,
and `fedforget verify --withdrawals` takes it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from fedforget.audit.evidence import code_version
from fedforget.errors import InputError
from fedforget.ledger.checks import check_reason
from fedforget.ledger.clock import to_text
from fedforget.ledger.core import Core, head_of
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.federations import Federations
from fedforget.ledger.intake import Requests, locked
from fedforget.ledger.keys import Keys
from fedforget.ledger.papers import read_code
from fedforget.ledger.schema import Certificate, Event, Request
from fedforget.ledger.statements import WITHDRAWALS, Statement, sign
from fedforget.ledger.states import RequestState

WITHDRAWN = "Its certificate was withdrawn: "
MEANING = "These certificates of this ledger hold no more. One that is not here had not been withdrawn at this moment."


class Withdrawals:
    """`ledger.withdrawals`."""

    def __init__(self, core: Core, keys: Keys, federations: Federations, requests: Requests) -> None:
        self._core, self._keys, self._federations, self._requests = core, keys, federations, requests

    def withdraw(self, id: str, reason: str, *, actor: str) -> Request:
        """It was found later that a certificate does not hold. Its request fails, so somebody must see to it."""
        reason, name = check_reason(reason), self._requests.get(id).federation
        with self._core.writing() as session:
            self._federations.lock(session, name)
            (request,) = locked(session, Request.id == id)
            if request.state != RequestState.DONE:
                raise ConflictError(f"The request is {request.state}; only a done one has a certificate that holds.")
            withdraw_all(self._core, session, [id])
            why = f"{WITHDRAWN}{reason}"
            self._requests.move(session, [request], RequestState.FAILED, actor, reason=why, also={"version": None})
            return request

    def find(self, certificate: bytes) -> Certificate | None:
        """The certificate with these very bytes, if this ledger issued it."""
        with self._core.reading() as session:
            return session.get(Certificate, hashlib.sha256(certificate).hexdigest())

    def find_code(self, code: str) -> Certificate:
        """The certificate whose SHA-256 begins with the code that is printed on it."""
        beginning = read_code(code)
        found = self._core.rows(select(Certificate).where(Certificate.sha256.startswith(beginning)).limit(2))
        if len(found) != 1:
            raise MissingError("No certificate of this ledger has this code. Look for a digit that was misread.")
        return found[0]

    def reason(self, certificate: Certificate) -> str | None:
        """Why it was withdrawn; None: it was not."""
        with self._core.reading() as session:
            return None if certificate.withdrawn is None else _reason(session, certificate)

    def withdrawn(self, certificate: Certificate) -> tuple[datetime, str] | None:
        """When and why; None: it holds."""
        why = self.reason(certificate)
        return None if certificate.withdrawn is None or why is None else (certificate.withdrawn, why)

    def signed(self) -> str:
        """The list as it is now, signed."""
        with self._core.reading() as session:
            private, head = self._keys.signing(session), head_of(session)
            gone = select(Certificate).where(Certificate.withdrawn.is_not(None)).order_by(Certificate.withdrawn)
            listed = [
                {
                    "certificate": row.sha256, "request": row.request, "withdrawn": to_text(row.withdrawn),
                    "reason": _reason(session, row),
                }
                for row in session.scalars(gone)
                if row.withdrawn is not None
            ]  # fmt: skip
            said = {
                "statement": MEANING, "fedforget": code_version(), "ledger": head.ledger, "event": head.number,
                "issued": to_text(self._core.clock()), "withdrawn": listed,
            }  # fmt: skip
            return sign(private, WITHDRAWALS, {f"{head.ledger}/event/{head.number}": head.hash}, said)


def withdraw_all(core: Core, session: Session, ids: list[str]) -> None:
    """The certificates that these requests have so far. In the caller's transaction, before the requests fail."""
    issued = update(Certificate).where(Certificate.request.in_(ids), Certificate.withdrawn.is_(None))
    session.execute(issued.values(withdrawn=core.clock()))


def _reason(session: Session, certificate: Certificate) -> str:
    """What was said when the request failed; without the words for that it was withdrawn, which stand before it."""
    query = (
        select(Event)
        .where(Event.request == certificate.request, Event.kind == RequestState.FAILED)
        .where(Event.at >= certificate.withdrawn)
        .order_by(Event.number)
    )
    found = session.scalars(query.limit(1)).one_or_none()
    return "" if found is None else str(found.to_json()["body"]["reason"]).removeprefix(WITHDRAWN)


def check_standing(certificate: bytes, record: Mapping[str, Any], listed: Statement, where: str) -> str:
    """A sentence that says that the certificate was not withdrawn, by this list; an InputError where it was, or where
    the list cannot tell."""
    said = listed.predicate
    if said["ledger"] != record["ledger"]:
        raise InputError(f"The list of withdrawals is of another ledger than {where}.")
    if said["issued"] < record["issued"]:
        raise InputError(f"The list of withdrawals is older than {where}; ask for a newer one.")
    sha256 = hashlib.sha256(certificate).hexdigest()
    for row in said["withdrawn"]:
        if row["certificate"] == sha256:
            raise InputError(f"{where} is genuine, but was withdrawn on {row['withdrawn']}. {row['reason']}")
    return f"It had not been withdrawn on {said['issued']}, as the list says (signed with the key {listed.key})."
