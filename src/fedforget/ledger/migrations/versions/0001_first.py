"""The first schema, as SQL that both databases read.

What is written here stays as it is: a later change of the tables is a later migration."""

from alembic import op

revision = "0001"
down_revision = None
TABLES = """
CREATE TABLE accounts (
    name VARCHAR(64) NOT NULL PRIMARY KEY, role VARCHAR(16) NOT NULL, password TEXT, identity VARCHAR(300),
    made VARCHAR(27) NOT NULL, disabled VARCHAR(27), UNIQUE (identity),
    CONSTRAINT role_is_known CHECK (role IN ('requester', 'operator', 'officer', 'auditor', 'admin'))
);
CREATE TABLE documents (
    sha256 VARCHAR(64) NOT NULL PRIMARY KEY, kind VARCHAR(16) NOT NULL, content TEXT NOT NULL,
    made VARCHAR(27) NOT NULL,
    CONSTRAINT kind_is_known CHECK (kind IN ('evidence', 'report'))
);
CREATE TABLE federations (
    name VARCHAR(64) NOT NULL PRIMARY KEY, kind VARCHAR(16) NOT NULL, place TEXT NOT NULL,
    method VARCHAR(64) NOT NULL, preset VARCHAR(64) NOT NULL, settings TEXT NOT NULL,
    audit_level VARCHAR(16) NOT NULL, accuracy_limit {double} NOT NULL, keep_days INTEGER NOT NULL,
    together INTEGER NOT NULL, description TEXT NOT NULL, registered VARCHAR(27) NOT NULL,
    claim VARCHAR(32), worker VARCHAR(128), lease_until VARCHAR(27),
    CONSTRAINT kind_is_known CHECK (kind IN ('local', 'flower')),
    CONSTRAINT accuracy_limit_is_positive CHECK (accuracy_limit >= 0),
    CONSTRAINT keep_days_is_positive CHECK (keep_days >= 0),
    CONSTRAINT together_is_positive CHECK (together >= 1)
);
CREATE TABLE head (
    id INTEGER NOT NULL PRIMARY KEY, ledger VARCHAR(32) NOT NULL, number {count} NOT NULL, hash VARCHAR(64) NOT NULL,
    CONSTRAINT one_head CHECK (id = 1)
);
CREATE TABLE keys (
    id VARCHAR(16) NOT NULL PRIMARY KEY, public TEXT NOT NULL, made VARCHAR(27) NOT NULL, retired VARCHAR(27)
);
CREATE UNIQUE INDEX one_key_signs ON keys (coalesce(retired, '')) WHERE retired IS NULL;
CREATE TABLE candidates (
    claim VARCHAR(32) NOT NULL PRIMARY KEY, federation VARCHAR(64) NOT NULL REFERENCES federations (name),
    parent INTEGER NOT NULL, sha256 VARCHAR(64) NOT NULL, result TEXT NOT NULL, made VARCHAR(27) NOT NULL
);
CREATE INDEX ix_candidates_federation ON candidates (federation);
CREATE TABLE links (
    hash VARCHAR(64) NOT NULL PRIMARY KEY, account VARCHAR(64) NOT NULL REFERENCES accounts (name),
    made VARCHAR(27) NOT NULL, expires VARCHAR(27) NOT NULL, used VARCHAR(27)
);
CREATE INDEX ix_links_account ON links (account);
CREATE INDEX ix_links_expires ON links (expires);
CREATE TABLE sessions (
    hash VARCHAR(64) NOT NULL PRIMARY KEY, account VARCHAR(64) NOT NULL REFERENCES accounts (name),
    made VARCHAR(27) NOT NULL, expires VARCHAR(27) NOT NULL
);
CREATE INDEX ix_sessions_account ON sessions (account);
CREATE INDEX ix_sessions_expires ON sessions (expires);
CREATE TABLE tokens (
    id VARCHAR(16) NOT NULL PRIMARY KEY, hash VARCHAR(64) NOT NULL,
    account VARCHAR(64) NOT NULL REFERENCES accounts (name), label VARCHAR(64) NOT NULL,
    made VARCHAR(27) NOT NULL, expires VARCHAR(27), revoked VARCHAR(27), UNIQUE (hash)
);
CREATE INDEX ix_tokens_account ON tokens (account);
CREATE TABLE versions (
    federation VARCHAR(64) NOT NULL REFERENCES federations (name), number INTEGER NOT NULL,
    sha256 VARCHAR(64) NOT NULL, parent INTEGER, kind VARCHAR(16) NOT NULL, state VARCHAR(16) NOT NULL,
    published VARCHAR(27) NOT NULL, superseded VARCHAR(27), destroyed VARCHAR(27), restores INTEGER,
    method VARCHAR(64), preset VARCHAR(64), settings TEXT, verdict VARCHAR(32),
    accuracy_before {double}, accuracy_after {double}, cost TEXT,
    evidence VARCHAR(64) REFERENCES documents (sha256), report VARCHAR(64) REFERENCES documents (sha256),
    PRIMARY KEY (federation, number),
    FOREIGN KEY (federation, parent) REFERENCES versions (federation, number),
    CONSTRAINT kind_is_known CHECK (kind IN ('first', 'forgotten', 'rollback')),
    CONSTRAINT state_is_known CHECK (state IN ('current', 'superseded', 'destroyed'))
);
CREATE UNIQUE INDEX one_current_version ON versions (federation) WHERE state = 'current';
CREATE INDEX ix_versions_sha256 ON versions (sha256);
CREATE TABLE requests (
    id VARCHAR(32) NOT NULL PRIMARY KEY, fingerprint VARCHAR(64) NOT NULL,
    federation VARCHAR(64) NOT NULL REFERENCES federations (name),
    asked_by VARCHAR(64) NOT NULL REFERENCES accounts (name), subject VARCHAR(64) NOT NULL,
    client INTEGER NOT NULL, target TEXT NOT NULL, ground VARCHAR(32) NOT NULL,
    received VARCHAR(27) NOT NULL, due VARCHAR(27) NOT NULL, extended INTEGER NOT NULL, extension_reason TEXT,
    state VARCHAR(16) NOT NULL, reason TEXT, changed VARCHAR(27) NOT NULL, attempts INTEGER NOT NULL,
    failures INTEGER NOT NULL, not_before VARCHAR(27) NOT NULL, claim VARCHAR(32), worker VARCHAR(128),
    version INTEGER, evidence VARCHAR(64) REFERENCES documents (sha256),
    report VARCHAR(64) REFERENCES documents (sha256),
    UNIQUE (fingerprint),
    FOREIGN KEY (federation, version) REFERENCES versions (federation, number),
    CONSTRAINT done_has_a_version CHECK ((state = 'done') = (version IS NOT NULL)),
    CONSTRAINT ground_is_known CHECK (ground IN (
        'consent withdrawn', 'objection', 'no longer needed', 'unlawful', 'legal obligation', 'other')),
    CONSTRAINT state_is_known CHECK (state IN (
        'received', 'accepted', 'refused', 'queued', 'forgetting', 'auditing', 'deciding', 'done', 'failed')),
    CONSTRAINT a_refusal_has_a_reason CHECK (state NOT IN ('refused', 'failed', 'deciding') OR reason IS NOT NULL),
    CONSTRAINT extended_with_a_reason CHECK ((extended = 0) = (extension_reason IS NULL)),
    CONSTRAINT extended_by_two_months_at_most CHECK (extended IN (0, 1, 2))
);
CREATE INDEX requests_by_asker ON requests (asked_by, received, id);
CREATE INDEX requests_by_claim ON requests (claim);
CREATE INDEX requests_by_due ON requests (state, due, id);
CREATE INDEX requests_by_received ON requests (received, id);
CREATE INDEX requests_by_version ON requests (federation, version);
CREATE INDEX requests_to_serve ON requests (federation, state, received, id);
CREATE TABLE certificates (
    sha256 VARCHAR(64) NOT NULL PRIMARY KEY, request VARCHAR(32) NOT NULL REFERENCES requests (id),
    federation VARCHAR(64) NOT NULL, version INTEGER NOT NULL, key VARCHAR(16) NOT NULL REFERENCES keys (id),
    made VARCHAR(27) NOT NULL, content TEXT NOT NULL,
    FOREIGN KEY (federation, version) REFERENCES versions (federation, number)
);
CREATE INDEX ix_certificates_request ON certificates (request);
CREATE TABLE events (
    number {count} NOT NULL PRIMARY KEY, at VARCHAR(27) NOT NULL, actor VARCHAR(128) NOT NULL,
    kind VARCHAR(32) NOT NULL, request VARCHAR(32) REFERENCES requests (id), body TEXT NOT NULL,
    previous VARCHAR(64) NOT NULL, hash VARCHAR(64) NOT NULL, UNIQUE (hash)
);
CREATE INDEX events_by_actor ON events (actor, number);
CREATE INDEX events_by_kind ON events (kind, number);
CREATE INDEX events_by_request ON events (request, number);
CREATE TABLE progress (
    request VARCHAR(32) NOT NULL PRIMARY KEY REFERENCES requests (id), stage VARCHAR(64) NOT NULL,
    fraction {double} NOT NULL, at VARCHAR(27) NOT NULL
)
"""


def upgrade() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    kinds = {"count": "INTEGER" if sqlite else "BIGINT", "double": "DOUBLE" if sqlite else "DOUBLE PRECISION"}
    for statement in TABLES.format(**kinds).split(";"):
        op.execute(statement)
