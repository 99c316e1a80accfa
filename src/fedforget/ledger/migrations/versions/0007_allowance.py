"""Each client has an allowance of climbs up to Retrain. The event that says so lets a later change beside the trail be
named."""

import sqlalchemy as sa
from alembic import op

from fedforget.ledger.recorded import append_by_system, digest

revision = "0007"
down_revision = "0006"
ALLOWANCE = 3
WHY = "so often may one client's requests send a climb up to Retrain in 30 days without an officer"
FEDERATIONS = sa.table("federations", sa.column("name"))


def upgrade() -> None:
    op.add_column("federations", sa.Column("allowance", sa.Integer(), nullable=False, server_default=str(ALLOWANCE)))
    connection = op.get_bind()
    for name in connection.scalars(sa.select(FEDERATIONS.c.name).order_by(FEDERATIONS.c.name)).all():
        said = {"federation": name, "allowance": ALLOWANCE, "row": {"allowance": digest(ALLOWANCE)}, "why": WHY}
        append_by_system(connection, "federation changed", said)
