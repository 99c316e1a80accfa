"""Accounts, tokens and federations are held against events (`recorded`). What events said of them before does not reach
every column: so each row is recorded once as it is found, and that nobody knows what was changed in it before."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from fedforget.ledger.chain import canonical, hash_of
from fedforget.ledger.clock import to_text, utc_now
from fedforget.ledger.recorded import rows_now

revision = "0004"
down_revision = "0003"
COLUMNS = {
    "account": ("role", "password", "identity", "made", "disabled"),
    "token": ("hash", "account", "label", "made", "expires", "revoked"),
    "federation": (
        "kind", "place", "method", "preset", "settings", "audit_level", "accuracy_limit", "keep_days", "together",
        "description", "registered",
    ),
}  # fmt: skip
"""As they were then."""
WHY = "recorded as it was found when the ledger was migrated; what was changed in it before is not known"
EVENTS = sa.table("events", *map(sa.column, ("number", "at", "actor", "kind", "request", "body", "previous", "hash")))
HEAD = sa.table("head", *map(sa.column, ("number", "hash")))


def upgrade() -> None:
    connection = op.get_bind()
    head = connection.execute(sa.select(HEAD)).one_or_none()
    if head is None:
        return  # a new ledger: there is nothing in it
    number, previous = head
    for what, columns in COLUMNS.items():
        for name, row in rows_now(connection, what, columns):
            number += 1
            body = {what: name, "row": row, "why": WHY}
            event: dict[str, Any] = {
                "number": number, "at": to_text(utc_now()), "actor": "system", "kind": f"{what} found",
                "request": None, "body": body, "previous": previous,
            }  # fmt: skip
            previous = hash_of(event)
            connection.execute(sa.insert(EVENTS).values({**event, "body": canonical(body), "hash": previous}))
    connection.execute(sa.update(HEAD).values(number=number, hash=previous))
