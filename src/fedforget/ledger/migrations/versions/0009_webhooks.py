"""Other systems are told of every change of state."""

import sqlalchemy as sa
from alembic import op

from fedforget.ledger.clock import Moment

revision = "0009"
down_revision = "0008"
COUNT = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("made", Moment(), nullable=False),
        sa.Column("disabled", Moment()),
        sa.Column("position", COUNT, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("not_before", Moment(), nullable=False),
        sa.Column("problem", sa.Text()),
    )
