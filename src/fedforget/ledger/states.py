"""The states of a request, and which may follow which. The database holds the same rules (`triggers`).

    received ──> accepted ──> queued ──> forgetting ──> auditing ──> done
        │            │        │  ^  ^         │            │  │        │
        │            │        │  │  └─────────┴── retry ───┘  │        │ rolled back
        v            v        v  │                 │          v        │
        └────────> refused <──┘  └──── failed <────┴─────< deciding ───┼──> done, refused
                      ^                 │   ^                          │
                      └─────────────────┘   └──────────────────────────┘

`deciding`: the ladder or the audit found neither `forgotten` nor `exact`, or retained accuracy fell too far since the
first version; an officer publishes all the same (done), rejects (failed), has it tried on another rung (queued), or
refuses the request. `failed` is for a person: queue it again, on a rung or as before, or refuse it with the reason."""

from __future__ import annotations

from enum import StrEnum


class RequestState(StrEnum):
    RECEIVED = "received"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    QUEUED = "queued"
    FORGETTING = "forgetting"
    AUDITING = "auditing"
    DECIDING = "deciding"
    DONE = "done"
    FAILED = "failed"


_S = RequestState
TRANSITIONS: dict[RequestState, frozenset[RequestState]] = {
    _S.RECEIVED: frozenset({_S.ACCEPTED, _S.REFUSED}),
    _S.ACCEPTED: frozenset({_S.QUEUED, _S.REFUSED}),
    _S.QUEUED: frozenset({_S.FORGETTING, _S.REFUSED}),
    _S.FORGETTING: frozenset({_S.AUDITING, _S.QUEUED, _S.FAILED}),
    _S.AUDITING: frozenset({_S.DONE, _S.DECIDING, _S.QUEUED, _S.FAILED}),
    _S.DECIDING: frozenset({_S.DONE, _S.FAILED, _S.QUEUED, _S.REFUSED}),
    _S.FAILED: frozenset({_S.QUEUED, _S.REFUSED}),
    _S.DONE: frozenset({_S.FAILED}),
    _S.REFUSED: frozenset(),
}
AT_WORK = frozenset({_S.FORGETTING, _S.AUDITING})
"""A worker has it."""
CLOSED = frozenset({_S.DONE, _S.REFUSED})
"""Nothing is owed any more: no deadline runs."""
OPEN = frozenset(RequestState) - CLOSED


class VersionState(StrEnum):
    CURRENT = "current"
    SUPERSEDED = "superseded"
    DESTROYED = "destroyed"


VERSION_TRANSITIONS: dict[VersionState, frozenset[VersionState]] = {
    VersionState.CURRENT: frozenset({VersionState.SUPERSEDED}),
    VersionState.SUPERSEDED: frozenset({VersionState.DESTROYED}),
    VersionState.DESTROYED: frozenset(),
}


class VersionKind(StrEnum):
    FIRST = "first"
    """The model a federation was registered with."""
    FORGOTTEN = "forgotten"
    ROLLBACK = "rollback"


class Role(StrEnum):
    """Who may do what is the console's to say; `admin` is an officer who also keeps the accounts."""

    REQUESTER = "requester"
    OPERATOR = "operator"
    OFFICER = "officer"
    AUDITOR = "auditor"
    ADMIN = "admin"


class Ground(StrEnum):
    """The legal ground of a request (Article 17 GDPR names them)."""

    CONSENT_WITHDRAWN = "consent withdrawn"
    OBJECTION = "objection"
    NO_LONGER_NEEDED = "no longer needed"
    UNLAWFUL = "unlawful"
    LEGAL_OBLIGATION = "legal obligation"
    OTHER = "other"


class Channel(StrEnum):
    """How a request reached the organisation."""

    LETTER = "letter"
    EMAIL = "e-mail"
    PHONE = "phone"
    IN_PERSON = "in person"
    FORM = "web form"
    SYSTEM = "another system"
    AUTHORITY = "an authority"
