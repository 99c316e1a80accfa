"""An intake in the shape of OpenDSR 2.0, for systems that hand on the requests of data subjects.

Such a system knows people, and this ledger must not. So a request names its data by one identity of the type
`controller_customer_id`, which is the place of the data and not a person:

    FEDERATION/CLIENT                  everything of the client
    FEDERATION/CLIENT/class/3
    FEDERATION/CLIENT/samples/12,47
    FEDERATION/CLIENT/feature/7

`subject_request_id` becomes the case number. What is not served: other types than erasure, identities that are names or
addresses, callbacks (an admin adds webhooks), and signed answers (the certificate is what is signed here)."""

from __future__ import annotations

import base64
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Path
from fastapi.requests import Request as Asked
from pydantic import BaseModel, Field

from fedforget.console.permissions import Permission
from fedforget.console.requests import submit
from fedforget.console.visitors import Visitor, allow, guarded_router
from fedforget.errors import InputError
from fedforget.ledger.errors import MissingError
from fedforget.ledger.schema import Request
from fedforget.ledger.states import OPEN, Channel, Ground, RequestState
from fedforget.requests import ErasureRequest

router = guarded_router(prefix="/api/opendsr/v2", tags=["OpenDSR"])
VERSION: Literal["2.0"] = "2.0"
IDENTITY: Literal["controller_customer_id"] = "controller_customer_id"
FORMS = "FEDERATION/CLIENT, FEDERATION/CLIENT/class/3, FEDERATION/CLIENT/samples/12,47 or FEDERATION/CLIENT/feature/7"
Status = Literal["pending", "in_progress", "completed", "cancelled"]
STATUS: dict[RequestState, Status] = {
    RequestState.RECEIVED: "pending", RequestState.ACCEPTED: "pending", RequestState.QUEUED: "pending",
    RequestState.FORGETTING: "in_progress", RequestState.AUDITING: "in_progress", RequestState.DECIDING: "in_progress",
    RequestState.FAILED: "in_progress", RequestState.DONE: "completed", RequestState.REFUSED: "cancelled",
}  # fmt: skip
"""What failed is still owed; what was refused is not."""


class IdentityIn(BaseModel):
    identity_type: Annotated[str, Field(max_length=64)]
    identity_value: Annotated[str, Field(max_length=100_000)]
    identity_format: Literal["raw"] = "raw"


class SubjectRequestIn(BaseModel):
    """Fields that are not named here are passed over, as the specification has it."""

    regulation: Annotated[str, Field(max_length=16)] = "gdpr"
    subject_request_id: Annotated[str, Field(max_length=64)]
    subject_request_type: Literal["erasure"]
    submitted_time: Annotated[datetime | None, Field(description="Left out: now.")] = None
    subject_identities: Annotated[list[IdentityIn], Field(max_length=20)]
    api_version: Annotated[str, Field(max_length=8)] = VERSION
    status_callback_urls: Annotated[list[str], Field(max_length=20)] = []
    ground: Annotated[Ground, Field(description="Ours: the legal ground, which OpenDSR has not.")] = Ground.OTHER


class ReceiptOut(BaseModel):
    controller_id: str
    subject_request_id: str
    received_time: datetime
    expected_completion_time: datetime
    encoded_request: str


class StatusOut(BaseModel):
    controller_id: str
    subject_request_id: str
    request_status: Status
    expected_completion_time: datetime
    api_version: str = VERSION
    request: str = Field(description="Ours: the id under which the rest of the API has it.")


class DiscoveryOut(BaseModel):
    api_version: str = VERSION
    supported_identities: list[dict[str, str]] = [{"identity_type": IDENTITY, "identity_format": "raw"}]
    supported_subject_request_types: list[str] = ["erasure"]


@router.get("/discovery")
def discovery(visitor: Annotated[Visitor, allow(Permission.SEE_FEDERATIONS)]) -> DiscoveryOut:
    """What is served here."""
    return DiscoveryOut()


@router.post("/requests", status_code=201)
async def receive(
    visitor: Annotated[Visitor, allow(Permission.SUBMIT)], asked: Asked, body: SubjectRequestIn
) -> ReceiptOut:
    """A request comes in. The same one twice is one request."""
    raw = base64.b64encode(await asked.body()).decode()
    return await visitor.console.write(partial(_receive, visitor, body, raw))


def _receive(visitor: Visitor, body: SubjectRequestIn, raw: str) -> ReceiptOut:
    if body.status_callback_urls:
        raise InputError("Callbacks are not called; an admin adds a webhook: fedforget webhook add NAME URL.")
    federation, target = _place(body.subject_identities)
    found = submit(
        visitor, federation, target, subject=body.subject_request_id, ground=body.ground,
        received=body.submitted_time.date() if body.submitted_time else None, channel=Channel.SYSTEM,
    ).request  # fmt: skip
    return ReceiptOut(**_who(visitor, found), received_time=found.received, encoded_request=raw)


@router.get("/requests/{id}")
def status(
    visitor: Annotated[Visitor, allow(Permission.SEE_REQUESTS)], id: Annotated[str, Path(max_length=64)]
) -> StatusOut:
    """How far a request is, by its `subject_request_id`; where several have it, one that is open."""
    find = partial(visitor.ledger.requests.page, subject=id, asked_by=visitor.only_own, limit=1)
    rows = find(states=OPEN).requests or find().requests
    if not rows:
        raise MissingError("There is no request with this subject_request_id.")
    found = rows[0]
    return StatusOut(**_who(visitor, found), request_status=STATUS[RequestState(found.state)], request=found.id)


def _who(visitor: Visitor, found: Request) -> dict[str, Any]:
    name = found.asked_by
    return {"controller_id": name, "subject_request_id": found.subject, "expected_completion_time": found.due}


def _place(identities: list[IdentityIn]) -> tuple[str, ErasureRequest]:
    """The federation, and what is to be forgotten there."""
    if len(identities) != 1 or identities[0].identity_type != IDENTITY:
        raise InputError(
            f"Name the data by one identity of the type {IDENTITY}, such as {FORMS}. A person's name or address is not "
            "taken: the ledger keeps everything."
        )
    federation, *rest = identities[0].identity_value.split("/")
    if len(rest) not in (1, 3) or (len(rest) == 3 and rest[1] not in ("class", "samples", "feature")):
        raise InputError(f"The identity must be {FORMS}.")
    kind, value = (rest[1], rest[2]) if len(rest) == 3 else ("client", None)
    return federation, ErasureRequest.parse(
        rest[0] or None,
        label=value if kind == "class" else None,
        samples=value if kind == "samples" else None,
        feature=value if kind == "feature" else None,
        whole=kind == "client",
        names=FORMS,
    )
