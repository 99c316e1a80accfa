"""A person may choose Retrain for a request. And what climbs on a ladder now had a preset of `fedaf`. The paper's own
preset, and every other method, stay; versions and candidates keep the names that they were made under.

How the federation was served is recorded as it is found first: so what somebody changed beside the trail is named."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from fedforget.ledger.chain import canonical
from fedforget.ledger.recorded import append_by_system, digest, rows_now

revision = "0006"
down_revision = "0005"
COLUMNS = ("method", "preset", "settings")
LADDER: dict[str, Any] = {"method": "ladder", "preset": "default", "settings": {"exact_below": 60.0}}
WHY = "its preset of fedaf is no more; its requests climb the ladder"
FEDERATIONS = sa.table("federations", *map(sa.column, ("name", *COLUMNS)))


def upgrade() -> None:
    op.add_column("requests", sa.Column("effort", sa.String(16)))
    connection = op.get_bind()
    old = sa.and_(FEDERATIONS.c.method == "fedaf", FEDERATIONS.c.preset != "paper")
    names = set(connection.scalars(sa.select(FEDERATIONS.c.name).where(old)))
    changed = {name: digest(value) for name, value in LADDER.items()}
    for name, row in list(rows_now(connection, "federation", COLUMNS)):
        if name in names:
            append_by_system(connection, "federation found", {"federation": name, "row": row, "why": WHY})
            said = {"federation": name, **LADDER, "row": changed, "why": WHY}
            append_by_system(connection, "federation changed", said)
    connection.execute(sa.update(FEDERATIONS).where(old).values({**LADDER, "settings": canonical(LADDER["settings"])}))
