"""Each client has an allowance of climbs up to Retrain. The event that says so lets a later change beside the trail be
named."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from fedforget.ledger.chain import canonical, hash_of
from fedforget.ledger.clock import to_text, utc_now
from fedforget.ledger.recorded import digest

revision = "0007"
down_revision = "0006"
ALLOWANCE = 3
WHY = "so often may one client's requests send a climb up to Retrain in 30 days without an officer"
FEDERATIONS = sa.table("federations", sa.column("name"))
EVENTS = sa.table("events", *map(sa.column, ("number", "at", "actor", "kind", "request", "body", "previous", "hash")))
HEAD = sa.table("head", *map(sa.column, ("number", "hash")))


def upgrade() -> None:
    op.add_column("federations", sa.Column("allowance", sa.Integer(), nullable=False, server_default=str(ALLOWANCE)))
    connection = op.get_bind()
    names = connection.scalars(sa.select(FEDERATIONS.c.name).order_by(FEDERATIONS.c.name)).all()
    if not names:
        return
    number, previous = connection.execute(sa.select(HEAD)).one()
    for name in names:
        number += 1
        row = {"allowance": digest(ALLOWANCE)}
        body = {"federation": name, "allowance": ALLOWANCE, "row": row, "why": WHY}
        event: dict[str, Any] = {
            "number": number, "at": to_text(utc_now()), "actor": "system", "kind": "federation changed",
            "request": None, "body": body, "previous": previous,
        }  # fmt: skip
        previous = hash_of(event)
        connection.execute(sa.insert(EVENTS).values({**event, "body": canonical(body), "hash": previous}))
    connection.execute(sa.update(HEAD).values(number=number, hash=previous))
