"""How a request came in, what it is found by, and what was said of how it alone is served. A federation may want four
eyes; the event that says so lets a later change beside the trail be named."""

import json

import sqlalchemy as sa
from alembic import op

from fedforget.ledger.recorded import append_by_system, digest
from fedforget.requests import ErasureRequest

revision = "0008"
down_revision = "0007"
WHY = "one person may decide about a request, unless the federation wants four eyes"
FEDERATIONS = sa.table("federations", sa.column("name"))
REQUESTS = sa.table(
    "requests", *map(sa.column, ("id", "subject", "federation", "asked_by", "ground", "target", "words"))
)
CANDIDATES = sa.table("candidates", *map(sa.column, ("claim", "result", "verdict")))


def upgrade() -> None:
    connection = op.get_bind()
    op.add_column("federations", sa.Column("four_eyes", sa.Boolean(), nullable=False, server_default=sa.false()))
    for name in connection.scalars(sa.select(FEDERATIONS.c.name).order_by(FEDERATIONS.c.name)).all():
        said = {"federation": name, "four_eyes": False, "row": {"four_eyes": digest(False)}, "why": WHY}
        append_by_system(connection, "federation changed", said)
    for column in (sa.Column("channel", sa.String(32)), sa.Column("at_most", sa.String(16)),
                   sa.Column("method", sa.String(64)), sa.Column("accuracy_limit", sa.Double()),
                   sa.Column("keep_days", sa.Integer()),
                   sa.Column("words", sa.Text(), nullable=False, server_default="")):  # fmt: skip
        op.add_column("requests", column)
    for row in connection.execute(sa.select(REQUESTS)).all():
        what = ErasureRequest.from_json(json.loads(row.target)).describe()
        words = " ".join((row.id, row.subject, row.federation, row.asked_by, row.ground, what)).casefold()
        connection.execute(sa.update(REQUESTS).where(REQUESTS.c.id == row.id).values(words=words))
    op.add_column("candidates", sa.Column("verdict", sa.String(32)))
    for claim, result in connection.execute(sa.select(CANDIDATES.c.claim, CANDIDATES.c.result)).all():
        verdict = json.loads(result)["verdict"]["word"]
        connection.execute(sa.update(CANDIDATES).where(CANDIDATES.c.claim == claim).values(verdict=verdict))
