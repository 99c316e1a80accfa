"""The event trail, the check of the chain, the keys, and the check of a certificate: as pages and as an API.

What fails a check is recorded."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Body, Path, Query
from fastapi.requests import Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response

from fedforget.console.models import CheckIn, CheckOut, EventOut, EventPage, HeadOut, KeyOut, VerifiedOut
from fedforget.console.permissions import Permission
from fedforget.console.problems import API
from fedforget.console.rendering import file_to_keep, render, shown_on
from fedforget.console.requests import JSON_FILE
from fedforget.console.visitors import Posted, Visitor, allow, guarded_router, too_often, whole_number
from fedforget.errors import FedForgetError, InputError
from fedforget.ledger import certificate as certificates
from fedforget.ledger.chain import ChainCheck, Pin
from fedforget.ledger.errors import MissingError
from fedforget.ledger.keys import read_public
from fedforget.ledger.papers import code_of

api = guarded_router(prefix=API, tags=["trail"])
pages = guarded_router(include_in_schema=False)
log = logging.getLogger("fedforget.console")
Position = Annotated[int, Query(ge=0, le=2**62)]
Reader = Annotated[Visitor, allow(Permission.SEE_TRAIL)]
Checker = Annotated[Visitor, allow(Permission.CHECK)]
Verifier = Annotated[Visitor, allow(Permission.VERIFY)]
PAGE = 50


@api.get("/openapi.json", include_in_schema=False)
def description(visitor: Annotated[Visitor, allow(Permission.KEEP_OWN_ACCOUNT)], request: Request) -> Response:
    """The API's own description."""
    return Response(json.dumps(request.app.openapi()), media_type="application/json")


@api.get("/events")
def list_events(
    visitor: Reader,
    kind: Annotated[list[str] | None, Query(max_length=20)] = None,
    actor: Annotated[str | None, Query(max_length=128)] = None,
    before: Position | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> EventPage:
    """What happened, newest first."""
    found = visitor.ledger.trail.events(kinds=kind, actor=actor, before=before, limit=limit)
    older = found[-1].number if len(found) == limit and found[-1].number > 1 else None
    return EventPage.model_construct(events=[EventOut(**event.to_json()) for event in found], next=older)


@pages.get("/trail")
def trail(visitor: Reader, kind: str = "", actor: str = "", before: str = "") -> Response:
    return _trail(visitor, kind=kind[:32], actor=actor[:128], before=before)


def _trail(visitor: Visitor, kind: str = "", actor: str = "", before: str = "", **more: Any) -> Response:
    events = visitor.ledger.trail.events(
        kinds=[kind] if kind else None, actor=actor or None, before=whole_number(before, digits=18), limit=PAGE
    )
    kept = {name: value for name, value in (("kind", kind), ("actor", actor)) if value}
    older = f"/trail?{urlencode({**kept, 'before': events[-1].number})}" if len(events) == PAGE else None
    more = {"checked": None, "whole": False, "kind": kind, "actor": actor, **more}
    return render(visitor, "trail.html", events=events, head=visitor.ledger.trail.head(), older=older, **more)


@api.get("/chain")
def chain_head(visitor: Reader) -> HeadOut:
    """The head of the chain: keep its pin somewhere else, to notice a chain that was written anew."""
    pin = visitor.ledger.trail.head()
    return HeadOut(**asdict(pin), pin=str(pin))


@pages.get("/trail/pin.txt")
def pin(visitor: Reader) -> Response:
    """The head, as a file to keep elsewhere."""
    head = visitor.ledger.trail.head()
    return file_to_keep(f"fedforget-pin-{head.number}.txt", f"{head}\n")


@api.post("/chain/check")
async def check_chain(visitor: Checker, asked: CheckIn) -> CheckOut:
    """Recompute every hash, against what was pinned; `whole` also holds rows, files and certificates against it."""
    found = await visitor.console.compute(lambda: _checked(visitor, asked.pins, whole=asked.whole))
    return CheckOut(**asdict(found), intact=found.intact)


@pages.post("/trail/check")
async def check(visitor: Checker, form: Posted) -> Response:
    """Is the chain intact, and is it the one that was pinned?"""
    return await visitor.console.compute(lambda: _check(visitor, form=form))


@shown_on(_trail)
def _check(visitor: Visitor, form: dict[str, str]) -> Response:
    whole = form.get("whole") == "yes"
    return _trail(visitor, checked=_checked(visitor, form.get("pins", "").splitlines()[:20], whole=whole), whole=whole)


def _checked(visitor: Visitor, pins: Sequence[str], *, whole: bool) -> ChainCheck:
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


@api.get("/keys")
def list_keys(visitor: Verifier) -> list[KeyOut]:
    """The public keys that certificates were signed with."""
    return [KeyOut.of(key) for key in visitor.ledger.keys.all()]


@api.get("/withdrawals", response_class=Response, responses=JSON_FILE)
@pages.get("/withdrawals.json")
def list_withdrawals(visitor: Verifier) -> Response:
    """The certificates that hold no more, as a signed list: `fedforget verify` takes it."""
    return file_to_keep("withdrawals.json", visitor.ledger.withdrawals.signed())


@pages.get("/verify")
def verify_page(visitor: Verifier) -> Response:
    return _verify(visitor)


def _verify(
    visitor: Visitor, *, found: VerifiedOut | None = None, form: dict[str, str] | None = None, **more: Any
) -> Response:
    return render(visitor, "verify.html", found=found, given=form or {}, keys=visitor.ledger.keys.all(), **more)


@pages.get("/keys/{id}.public.pem")
def public_key(visitor: Verifier, id: Annotated[str, Path(max_length=64)]) -> Response:
    """A public key as a file: `fedforget verify` takes it."""
    for key in visitor.ledger.keys.all():
        if key.id == id:
            return file_to_keep(f"{key.id}.public.pem", key.public)
    raise MissingError("There is no such key here.")


@api.post("/certificates/verify")
def verify_certificate(
    visitor: Verifier,
    certificate: Annotated[dict[str, Any], Body(description="A certificate, as it was downloaded.")],
) -> VerifiedOut:
    """Is it genuine: signed by one of this ledger's keys, and unchanged? (422 if not, and recorded.)"""
    try:
        data = certificates.render(certificate).encode()
    except (ValueError, RecursionError):
        raise InputError("The certificate holds what no certificate can hold.") from None
    return _verified(visitor, data)


@api.get("/certificates")
def find_certificate(
    visitor: Verifier, code: Annotated[str, Query(max_length=80, description="As it stands on the printed page.")]
) -> VerifiedOut:
    """The certificate with this code: what it says, and whether it still holds."""
    return _verified(visitor, visitor.ledger.withdrawals.find_code(code).content.encode())


@pages.post("/verify")
@shown_on(_verify)
def verify(visitor: Verifier, form: Posted) -> Response:
    """A certificate, as a file, pasted, or by its code."""
    if form.get("code"):
        return _verify(visitor, found=find_certificate(visitor, form["code"][:80]))
    text = form.get("file", "").strip() or form.get("certificate", "").strip()
    return _verify(visitor, found=_verified(visitor, (text + "\n").replace("\r\n", "\n").encode()))


def _verified(visitor: Visitor, data: bytes) -> VerifiedOut:
    """What a genuine certificate says; anything else is refused, and recorded."""
    keys = [read_public(key.public) for key in visitor.ledger.keys.all()]
    try:
        record = certificates.verify_certificate(data, keys)
    except InputError as error:
        said = {"by": "certificate", "why": str(error)[:300]}
        wait = visitor.console.denials.record(f"account {visitor.name}", visitor.name, said)
        if wait:
            raise too_often(wait, "Too many certificates that are none; wait a little.") from None
        raise
    kept = visitor.ledger.withdrawals.find(data)
    why = None if kept is None else visitor.ledger.withdrawals.reason(kept)
    return VerifiedOut(
        genuine=True, request=record["request"]["id"], verdict=record["measured"]["verdict"]["word"], key=record["key"],
        issued=record["issued"], decision=record["decision"],
        withdrawn=why is not None, why_withdrawn=why, code=code_of(hashlib.sha256(data).hexdigest()),
        describes=record["request"]["describes"],
    )  # fmt: skip
