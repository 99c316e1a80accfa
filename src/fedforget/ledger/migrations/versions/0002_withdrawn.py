"""A rollback withdraws certificates; what lies beside a version's weights is known, and destroyed with them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
MOMENT = sa.String(27)


def upgrade() -> None:
    op.add_column("certificates", sa.Column("withdrawn", MOMENT))
    op.create_table(
        "remains",
        sa.Column("federation", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("path", sa.String(500), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("destroyed", MOMENT),
        sa.ForeignKeyConstraint(["federation", "version"], ["versions.federation", "versions.number"]),
        sa.PrimaryKeyConstraint("federation", "version", "path"),
    )
