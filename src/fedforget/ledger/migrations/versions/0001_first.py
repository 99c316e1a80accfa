"""The first schema.

What is written here stays as it is: a later change of the tables is a later migration."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
MOMENT = sa.String(27)
COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("password", sa.Text()),
        sa.Column("identity", sa.String(300), unique=True),
        sa.Column("made", MOMENT, nullable=False),
        sa.Column("disabled", MOMENT),
        sa.CheckConstraint("role IN ('requester', 'operator', 'officer', 'auditor', 'admin')", name="role_is_known"),
    )
    op.create_table(
        "documents",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("made", MOMENT, nullable=False),
        sa.CheckConstraint("kind IN ('evidence', 'report')", name="kind_is_known"),
    )
    op.create_table(
        "federations",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("method", sa.String(64), nullable=False),
        sa.Column("preset", sa.String(64), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("audit_level", sa.String(16), nullable=False),
        sa.Column("accuracy_limit", sa.Double(), nullable=False),
        sa.Column("keep_days", sa.Integer(), nullable=False),
        sa.Column("together", sa.Integer(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("registered", MOMENT, nullable=False),
        sa.Column("claim", sa.String(32)),
        sa.Column("worker", sa.String(128)),
        sa.Column("lease_until", MOMENT),
        sa.CheckConstraint("kind IN ('local', 'flower')", name="kind_is_known"),
        sa.CheckConstraint("accuracy_limit >= 0", name="accuracy_limit_is_positive"),
        sa.CheckConstraint("keep_days >= 0", name="keep_days_is_positive"),
        sa.CheckConstraint("together >= 1", name="together_is_positive"),
    )
    op.create_table(
        "head",
        sa.Column("id", sa.Integer(), autoincrement=False, primary_key=True),
        sa.Column("ledger", sa.String(32), nullable=False),
        sa.Column("number", COUNT, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.CheckConstraint("id = 1", name="one_head"),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("public", sa.Text(), nullable=False),
        sa.Column("made", MOMENT, nullable=False),
        sa.Column("retired", MOMENT),
    )
    op.execute("CREATE UNIQUE INDEX one_key_signs ON keys (coalesce(retired, '')) WHERE retired IS NULL")
    op.create_table(
        "candidates",
        sa.Column("claim", sa.String(32), primary_key=True),
        sa.Column("federation", sa.String(64), sa.ForeignKey("federations.name"), nullable=False, index=True),
        sa.Column("parent", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("made", MOMENT, nullable=False),
    )
    op.create_table(
        "links",
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), sa.ForeignKey("accounts.name"), nullable=False, index=True),
        sa.Column("made", MOMENT, nullable=False),
        sa.Column("expires", MOMENT, nullable=False, index=True),
        sa.Column("used", MOMENT),
    )
    op.create_table(
        "sessions",
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("account", sa.String(64), sa.ForeignKey("accounts.name"), nullable=False, index=True),
        sa.Column("made", MOMENT, nullable=False),
        sa.Column("expires", MOMENT, nullable=False, index=True),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("account", sa.String(64), sa.ForeignKey("accounts.name"), nullable=False, index=True),
        sa.Column("label", sa.String(64), nullable=False),
        sa.Column("made", MOMENT, nullable=False),
        sa.Column("expires", MOMENT),
        sa.Column("revoked", MOMENT),
    )
    op.create_table(
        "versions",
        sa.Column("federation", sa.String(64), sa.ForeignKey("federations.name"), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False, index=True),
        sa.Column("parent", sa.Integer()),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("published", MOMENT, nullable=False),
        sa.Column("superseded", MOMENT),
        sa.Column("destroyed", MOMENT),
        sa.Column("restores", sa.Integer()),
        sa.Column("method", sa.String(64)),
        sa.Column("preset", sa.String(64)),
        sa.Column("settings", sa.Text()),
        sa.Column("verdict", sa.String(32)),
        sa.Column("accuracy_before", sa.Double()),
        sa.Column("accuracy_after", sa.Double()),
        sa.Column("cost", sa.Text()),
        sa.Column("evidence", sa.String(64), sa.ForeignKey("documents.sha256")),
        sa.Column("report", sa.String(64), sa.ForeignKey("documents.sha256")),
        sa.CheckConstraint("kind IN ('first', 'forgotten', 'rollback')", name="kind_is_known"),
        sa.CheckConstraint("state IN ('current', 'superseded', 'destroyed')", name="state_is_known"),
        sa.ForeignKeyConstraint(["federation", "parent"], ["versions.federation", "versions.number"]),
        sa.PrimaryKeyConstraint("federation", "number"),
    )
    op.execute("CREATE UNIQUE INDEX one_current_version ON versions (federation) WHERE state = 'current'")
    op.create_table(
        "requests",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("fingerprint", sa.String(64), nullable=False, unique=True),
        sa.Column("federation", sa.String(64), sa.ForeignKey("federations.name"), nullable=False),
        sa.Column("asked_by", sa.String(64), sa.ForeignKey("accounts.name"), nullable=False),
        sa.Column("subject", sa.String(64), nullable=False),
        sa.Column("client", sa.Integer(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("ground", sa.String(32), nullable=False),
        sa.Column("received", MOMENT, nullable=False),
        sa.Column("due", MOMENT, nullable=False),
        sa.Column("extended", sa.Integer(), nullable=False),
        sa.Column("extension_reason", sa.Text()),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("changed", MOMENT, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("not_before", MOMENT, nullable=False),
        sa.Column("claim", sa.String(32)),
        sa.Column("worker", sa.String(128)),
        sa.Column("version", sa.Integer()),
        sa.Column("evidence", sa.String(64), sa.ForeignKey("documents.sha256")),
        sa.Column("report", sa.String(64), sa.ForeignKey("documents.sha256")),
        sa.CheckConstraint("(state = 'done') = (version IS NOT NULL)", name="done_has_a_version"),
        sa.CheckConstraint(
            "ground IN ('consent withdrawn', 'objection', 'no longer needed', 'unlawful', 'legal obligation', 'other')",
            name="ground_is_known",
        ),
        sa.CheckConstraint(
            "state IN ('received', 'accepted', 'refused', 'queued', 'forgetting', 'auditing', 'deciding', 'done', "
            "'failed')",
            name="state_is_known",
        ),
        sa.CheckConstraint(
            "state NOT IN ('refused', 'failed', 'deciding') OR reason IS NOT NULL", name="a_refusal_has_a_reason"
        ),
        sa.CheckConstraint("(extended = 0) = (extension_reason IS NULL)", name="extended_with_a_reason"),
        sa.CheckConstraint("extended IN (0, 1, 2)", name="extended_by_two_months_at_most"),
        sa.ForeignKeyConstraint(["federation", "version"], ["versions.federation", "versions.number"]),
    )
    op.create_index("requests_by_asker", "requests", ["asked_by", "received", "id"])
    op.create_index("requests_by_claim", "requests", ["claim"])
    op.create_index("requests_by_due", "requests", ["state", "due", "id"])
    op.create_index("requests_by_received", "requests", ["received", "id"])
    op.create_index("requests_by_version", "requests", ["federation", "version"])
    op.create_index("requests_to_serve", "requests", ["federation", "state", "received", "id"])
    op.create_table(
        "certificates",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("request", sa.String(32), sa.ForeignKey("requests.id"), nullable=False, index=True),
        sa.Column("federation", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(16), sa.ForeignKey("keys.id"), nullable=False),
        sa.Column("made", MOMENT, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["federation", "version"], ["versions.federation", "versions.number"]),
    )
    op.create_table(
        "events",
        sa.Column("number", COUNT, autoincrement=False, primary_key=True),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("actor", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("request", sa.String(32), sa.ForeignKey("requests.id")),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
    )
    op.create_index("events_by_actor", "events", ["actor", "number"])
    op.create_index("events_by_kind", "events", ["kind", "number"])
    op.create_index("events_by_request", "events", ["request", "number"])
    op.create_table(
        "progress",
        sa.Column("request", sa.String(32), sa.ForeignKey("requests.id"), primary_key=True),
        sa.Column("stage", sa.String(64), nullable=False),
        sa.Column("fraction", sa.Double(), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
    )
