"""Accounts, tokens and federations are held against events (`recorded`). What events said of them before does not reach
every column: so each row is recorded once as it is found, and that nobody knows what was changed in it before."""

from alembic import op

from fedforget.ledger.recorded import append_by_system, rows_now

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


def upgrade() -> None:
    connection = op.get_bind()
    for what, columns in COLUMNS.items():
        for name, row in list(rows_now(connection, what, columns)):
            append_by_system(connection, f"{what} found", {what: name, "row": row, "why": WHY})
