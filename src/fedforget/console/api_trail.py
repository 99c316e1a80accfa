"""The API: events, the chain, keys, and the check of a certificate."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Body, Query
from fastapi.requests import Request
from starlette.responses import Response

from fedforget.console import trails
from fedforget.console.models import CheckIn, CheckOut, EventOut, EventPage, HeadOut, KeyOut, VerifiedOut
from fedforget.console.permissions import Permission
from fedforget.console.problems import API
from fedforget.console.visitors import Visitor, allow, guarded_router
from fedforget.errors import InputError
from fedforget.ledger.certificate import render

router = guarded_router(prefix=API, tags=["trail"])
Kind = Annotated[str, Query(max_length=32)]
Position = Annotated[int, Query(ge=0, le=2**62)]


@router.get("/openapi.json", include_in_schema=False)
def description(visitor: Annotated[Visitor, allow(Permission.KEEP_OWN_ACCOUNT)], request: Request) -> Response:
    """The API's own description."""
    return Response(json.dumps(request.app.openapi()), media_type="application/json")


@router.get("/events")
def list_events(
    visitor: Annotated[Visitor, allow(Permission.SEE_TRAIL)],
    kind: Annotated[list[str] | None, Query(max_length=20)] = None,
    actor: Annotated[str | None, Query(max_length=128)] = None,
    before: Position | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> EventPage:
    """What happened, newest first."""
    found = visitor.ledger.trail.events(kinds=kind, actor=actor, before=before, limit=limit)
    older = found[-1].number if len(found) == limit and found[-1].number > 1 else None
    return EventPage.model_construct(events=[EventOut(**event.to_json()) for event in found], next=older)


@router.get("/chain")
def chain_head(visitor: Annotated[Visitor, allow(Permission.SEE_TRAIL)]) -> HeadOut:
    """The head of the chain: keep its pin somewhere else, to notice a chain that was written anew."""
    pin = visitor.ledger.trail.head()
    return HeadOut(ledger=pin.ledger, number=pin.number, hash=pin.hash, pin=str(pin))


@router.post("/chain/check")
async def check_chain(visitor: Annotated[Visitor, allow(Permission.CHECK)], asked: CheckIn) -> CheckOut:
    """Recompute every hash, against what was pinned; `whole` also holds rows, files and certificates against it."""
    found = await visitor.console.compute(lambda: trails.check(visitor, asked.pins, whole=asked.whole))
    return CheckOut(intact=found.intact, events=found.events, head=found.head, problems=list(found.problems))


@router.get("/keys")
def list_keys(visitor: Annotated[Visitor, allow(Permission.VERIFY)]) -> list[KeyOut]:
    """The public keys that certificates were signed with."""
    return [KeyOut.of(key) for key in visitor.ledger.keys.all()]


@router.post("/certificates/verify")
def verify_certificate(
    visitor: Annotated[Visitor, allow(Permission.VERIFY)],
    certificate: Annotated[dict[str, Any], Body(description="A certificate, as it was downloaded.")],
) -> VerifiedOut:
    """Is it genuine: signed by one of this ledger's keys, and unchanged? (422 if not, and recorded.)"""
    try:
        data = render(certificate).encode()
    except (ValueError, RecursionError):
        raise InputError("The certificate holds what no certificate can hold.") from None
    return trails.verify(visitor, data)
