"""Which role may do what. This is the one table: every route names a line of it, and none is served without.

A requester sees the requests of their own, everybody else all of them (`SEE_ALL_REQUESTS`)."""

from __future__ import annotations

from enum import StrEnum

from fedforget.ledger.states import Role


class Permission(StrEnum):
    """What a route asks for."""

    OPEN_TO_ALL = "open to all"
    """Signing in, files of style, health: nothing of the ledger."""
    KEEP_OWN_ACCOUNT = "keep one's own account"
    SEE_REQUESTS = "see requests"
    SEE_ALL_REQUESTS = "see everybody's requests"
    SUBMIT = "submit a request"
    ACCEPT = "accept a request"
    REFUSE = "refuse a request"
    EXTEND = "extend a deadline"
    DECIDE = "decide what the gate held"
    RETRY = "queue a failed request again"
    SEE_FEDERATIONS = "see federations, their clients and classes"
    SEE_COUNTS = "see how many samples a client holds"
    SEE_VERSIONS = "see model versions"
    ROLL_BACK = "roll a model back"
    START_DEMO = "start the demo federation"
    SEE_TRAIL = "see the event trail"
    CHECK = "check the ledger"
    VERIFY = "verify a certificate"
    KEEP_ACCOUNTS = "keep accounts"
    SEE_METRICS = "see metrics"


_EVERYBODY = frozenset(Role)
_STAFF = _EVERYBODY - {Role.REQUESTER}
_OFFICERS = frozenset({Role.OFFICER, Role.ADMIN})
_HANDS = _OFFICERS | {Role.OPERATOR}

ALLOWED: dict[Permission, frozenset[Role]] = {
    Permission.OPEN_TO_ALL: _EVERYBODY,
    Permission.KEEP_OWN_ACCOUNT: _EVERYBODY,
    Permission.SEE_REQUESTS: _EVERYBODY,
    Permission.SEE_ALL_REQUESTS: _STAFF,
    Permission.SUBMIT: _EVERYBODY - {Role.AUDITOR},
    Permission.ACCEPT: _OFFICERS,
    Permission.REFUSE: _OFFICERS,
    Permission.EXTEND: _OFFICERS,
    Permission.DECIDE: _OFFICERS,
    Permission.RETRY: _HANDS,
    Permission.SEE_FEDERATIONS: _EVERYBODY,
    Permission.SEE_COUNTS: _STAFF,
    Permission.SEE_VERSIONS: _STAFF,
    Permission.ROLL_BACK: _HANDS,
    Permission.START_DEMO: _HANDS,
    Permission.SEE_TRAIL: _STAFF,
    Permission.CHECK: _STAFF,
    Permission.VERIFY: _EVERYBODY,
    Permission.KEEP_ACCOUNTS: frozenset({Role.ADMIN}),
    Permission.SEE_METRICS: _STAFF,
}


def may(role: Role | None, permission: Permission) -> bool:
    """Whether somebody with this role (None: not signed in) may."""
    if role is None:
        return permission is Permission.OPEN_TO_ALL
    return role in ALLOWED[permission]
