"""Versions have no guards any more. What events and certificates say of one stays, as it was hashed and signed; its
file is swept, since nothing names it."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from fedforget.ledger.chain import canonical

revision = "0005"
down_revision = "0004"
CANDIDATES = sa.table("candidates", *map(sa.column, ("claim", "result")))


def upgrade() -> None:
    connection = op.get_bind()
    for claim, text in connection.execute(sa.select(CANDIDATES)).all():
        result: dict[str, Any] = json.loads(text)
        result["values"].pop("guard", None)
        mine = sa.update(CANDIDATES).where(CANDIDATES.c.claim == claim)
        connection.execute(mine.values(result=canonical(result)))
    op.drop_column("versions", "guard")
    op.drop_column("candidates", "guard")
