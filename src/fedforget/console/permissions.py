"""Which role may do what. This is the one table: every route names a line of it, and none is served without.

A requester sees the requests of their own, everybody else all of them (`SEE_ALL_REQUESTS`)."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from fedforget.ledger.states import Role

_EVERYBODY = frozenset(Role)
_STAFF = _EVERYBODY - {Role.REQUESTER}
_OFFICERS = frozenset({Role.OFFICER, Role.ADMIN})
_HANDS = _OFFICERS | {Role.OPERATOR}


class Permission(StrEnum):
    """What a route asks for, in words, and the `roles` that have it."""

    roles: frozenset[Role]

    def __new__(cls, words: str, roles: frozenset[Role]) -> Self:
        found = str.__new__(cls, words)
        found._value_, found.roles = words, roles
        return found

    OPEN_TO_ALL = "open to all", _EVERYBODY
    """Signing in, files of style, health: nothing of the ledger."""
    KEEP_OWN_ACCOUNT = "keep one's own account", _EVERYBODY
    SEE_REQUESTS = "see requests", _EVERYBODY
    SEE_ALL_REQUESTS = "see everybody's requests", _STAFF
    SUBMIT = "submit a request", _EVERYBODY - {Role.AUDITOR}
    ACCEPT = "accept a request", _OFFICERS
    REFUSE = "refuse a request", _OFFICERS
    CHECK_IDENTITY = "note that an identity was checked", _HANDS
    EXTEND = "extend a deadline", _OFFICERS
    WRITE_LETTERS = "see drafts of letters", _OFFICERS
    WITHDRAW = "withdraw a certificate", _OFFICERS
    DECIDE = "decide what the gate held", _OFFICERS
    CHOOSE = "say how requests are served", _OFFICERS
    LIFT_FOUR_EYES = "switch four eyes off", frozenset({Role.ADMIN})
    RETRY = "queue a failed request again", _HANDS
    SEE_FEDERATIONS = "see federations, their clients and classes", _EVERYBODY
    SEE_COUNTS = "see how many samples a client holds", _STAFF
    SEE_VERSIONS = "see model versions", _STAFF
    ROLL_BACK = "roll a model back", _HANDS
    DESTROY = "destroy old models that are due", _HANDS
    START_DEMO = "start the demo federation", _HANDS
    SEE_TRAIL = "see the event trail", _STAFF
    CHECK = "check the ledger", _STAFF
    VERIFY = "verify a certificate", _EVERYBODY
    KEEP_ACCOUNTS = "keep accounts", frozenset({Role.ADMIN})
    KEEP_WEBHOOKS = "keep webhooks", frozenset({Role.ADMIN})
    SEE_METRICS = "see metrics", _STAFF


def may(role: Role | None, permission: Permission) -> bool:
    """Whether somebody with this role (None: not signed in) may."""
    return permission is Permission.OPEN_TO_ALL if role is None else role in permission.roles
