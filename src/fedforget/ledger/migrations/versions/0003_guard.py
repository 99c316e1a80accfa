"""A version may have a guard, which holds later rounds to what was forgotten; none of those before has one."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("versions", sa.Column("guard", sa.String(64)))
    op.add_column("candidates", sa.Column("guard", sa.String(64)))
