"""Checks that pages and API share: the ledger's chain, and a certificate. What fails is recorded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.exc import SQLAlchemyError

from fedforget.console.models import VerifiedOut
from fedforget.console.visitors import Visitor, too_often
from fedforget.errors import FedForgetError, InputError
from fedforget.ledger.certificate import verify_certificate
from fedforget.ledger.chain import ChainCheck, Pin
from fedforget.ledger.keys import read_public

log = logging.getLogger("fedforget.console")


def check(visitor: Visitor, pins: Sequence[str], *, whole: bool) -> ChainCheck:
    """One at a time: it reads everything. That it was done, and what it found, is an event."""
    known = [Pin.read(text) for text in pins if text.strip()]
    lock = visitor.console.checking
    if not lock.acquire(timeout=20.0):
        raise too_often(20.0, "Somebody else is checking the ledger; try again in a little while.")
    try:
        found = visitor.ledger.trail.check(*known) if whole else visitor.ledger.trail.check_chain(*known)
    finally:
        lock.release()
    said = {"intact": found.intact, "whole": whole, "events": found.events, "problems": list(found.problems[:20])}
    try:
        visitor.ledger.trail.append(visitor.name, "checked", said)
    except (FedForgetError, SQLAlchemyError) as error:  # what was tampered with may not take another event
        log.error("the check by %s could not be recorded (%s): %s", visitor.name, type(error).__name__, said)
        unrecorded = "This check could not be recorded: the ledger takes no event any more."
        return replace(found, problems=(*found.problems, unrecorded))
    return found


def verify(visitor: Visitor, data: bytes) -> VerifiedOut:
    """What a genuine certificate says; anything else is refused, and recorded."""
    keys = [read_public(key.public) for key in visitor.ledger.keys.all()]
    try:
        record = verify_certificate(data, keys)
    except InputError as error:
        said = {"by": "certificate", "why": str(error)[:300]}
        wait = visitor.console.denials.record(f"account {visitor.name}", visitor.name, said)
        if wait:
            raise too_often(wait, "Too many certificates that are none; wait a little.") from None
        raise
    request = record["request"]["id"]
    kept = visitor.ledger.versions.certificate_of(request)
    return VerifiedOut(
        genuine=True, request=request, verdict=record["measured"]["verdict"]["word"], key=record["key"],
        issued=record["issued"], decision=record["decision"],
        withdrawn=kept is not None and kept.withdrawn is not None,
    )  # fmt: skip
