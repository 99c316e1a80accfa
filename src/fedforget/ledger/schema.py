"""The tables. Rows come out as these classes, detached: reading one never talks to the database again.

A change here needs a migration (`migrations/versions`); what rows may do is in `triggers`."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import CheckConstraint, Dialect, ForeignKey, ForeignKeyConstraint, Index, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import BigInteger, Integer, String, Text, TypeDecorator

from fedforget.ledger.chain import canonical
from fedforget.ledger.clock import Moment, to_text
from fedforget.ledger.states import Ground, RequestState, Role, VersionKind, VersionState
from fedforget.requests import ErasureRequest


class Json(TypeDecorator[Any]):
    """Values as canonical JSON text: the same characters in both databases and in a backup."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else canonical(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class Base(DeclarativeBase):
    type_annotation_map: ClassVar[dict[Any, Any]] = {str: Text, datetime: Moment, dict[str, Any]: Json}
    inner: ClassVar[frozenset[str]] = frozenset()
    """Columns that nobody outside the ledger is told."""

    def to_json(self) -> dict[str, Any]:
        """The row as plain values, for a command's --json."""
        names = [column.key for column in type(self).__table__.columns if column.key not in self.inner]
        values = {name: getattr(self, name) for name in names}
        return {name: to_text(value) if isinstance(value, datetime) else value for name, value in values.items()}


Count = BigInteger().with_variant(Integer, "sqlite")
"""Events outlive four billion; SQLite's integers are wide by themselves."""


def _one_of(column: str, words: type[Any]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(str(word)) for word in words)})", name=f"{column}_is_known")


class Account(Base):
    """Somebody who may sign in. `identity` is who they are at an OIDC provider."""

    __tablename__ = "accounts"
    inner = frozenset({"password", "identity"})
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    role: Mapped[str] = mapped_column(String(16))
    password: Mapped[str | None]
    """argon2's text; None: signs in by link, token or OIDC alone."""
    identity: Mapped[str | None] = mapped_column(String(300), unique=True)
    made: Mapped[datetime]
    disabled: Mapped[datetime | None]
    __table_args__ = (_one_of("role", Role),)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"disabled": self.disabled is not None}


class Token(Base):
    """A secret for scripts, of which only the hash is here."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    account: Mapped[str] = mapped_column(ForeignKey("accounts.name"), index=True)
    label: Mapped[str] = mapped_column(String(64))
    made: Mapped[datetime]
    expires: Mapped[datetime | None]
    revoked: Mapped[datetime | None]


class ShortLived(Base):
    """Who holds the secret of this hash is the account's, until it expires."""

    __abstract__ = True
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    account: Mapped[str] = mapped_column(ForeignKey("accounts.name"), index=True)
    made: Mapped[datetime]
    expires: Mapped[datetime] = mapped_column(Moment, index=True)


class SignIn(ShortLived):
    """A session."""

    __tablename__ = "sessions"


class Link(ShortLived):
    """A link that signs in once."""

    __tablename__ = "links"
    used: Mapped[datetime | None]


class Federation(Base):
    """What a request can be about, how requests are served there, and who is serving one now."""

    __tablename__ = "federations"
    inner = frozenset({"claim", "worker", "lease_until"})
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    place: Mapped[str]
    """local: the run folder; flower: the address of the SuperLink's control API or a connection's name."""
    method: Mapped[str] = mapped_column(String(64))
    preset: Mapped[str] = mapped_column(String(64))
    settings: Mapped[dict[str, Any]]
    """Single settings of the method that differ from the preset."""
    audit_level: Mapped[str] = mapped_column(String(16))
    accuracy_limit: Mapped[float]
    """How many percentage points below the first version's the retained accuracy may be, over all requests together,
    without an officer's decision."""
    keep_days: Mapped[int]
    """How long superseded weights stay, for a rollback."""
    together: Mapped[int]
    """How many waiting requests are served in one go; 1: one after another."""
    allowance: Mapped[int]
    """How often one client's requests may send a climb up to Retrain without an officer: see `allowance`."""
    four_eyes: Mapped[bool] = mapped_column(default=False)
    """Whether somebody else decides than who submitted or accepted the request."""
    description: Mapped[dict[str, Any]]
    """`federations.Description`: clients, classes, counts."""
    registered: Mapped[datetime]
    claim: Mapped[str | None] = mapped_column(String(32))
    """The claim that may change this federation's requests and versions now; its lease ends at `lease_until`."""
    worker: Mapped[str | None] = mapped_column(String(128))
    lease_until: Mapped[datetime | None]
    __table_args__ = (
        CheckConstraint("kind IN ('local', 'flower')", name="kind_is_known"),
        CheckConstraint("accuracy_limit >= 0", name="accuracy_limit_is_positive"),
        CheckConstraint("keep_days >= 0", name="keep_days_is_positive"),
        CheckConstraint("together >= 1", name="together_is_positive"),
    )


class Document(Base):
    """Evidence files and reports, by the SHA-256 of their bytes."""

    __tablename__ = "documents"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    content: Mapped[str]
    made: Mapped[datetime]
    __table_args__ = (CheckConstraint("kind IN ('evidence', 'report')", name="kind_is_known"),)


class Version(Base):
    """A model of a federation. `sha256` names its file, and stays when the file is destroyed."""

    __tablename__ = "versions"
    federation: Mapped[str] = mapped_column(ForeignKey("federations.name"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    sha256: Mapped[str] = mapped_column(String(64), index=True)
    parent: Mapped[int | None]
    kind: Mapped[str] = mapped_column(String(16))
    state: Mapped[str] = mapped_column(String(16))
    published: Mapped[datetime]
    superseded: Mapped[datetime | None]
    destroyed: Mapped[datetime | None]
    restores: Mapped[int | None]
    """A rollback: the version whose weights are current again."""
    method: Mapped[str | None] = mapped_column(String(64))
    preset: Mapped[str | None] = mapped_column(String(64))
    settings: Mapped[dict[str, Any] | None]
    verdict: Mapped[str | None] = mapped_column(String(32))
    accuracy_before: Mapped[float | None]
    accuracy_after: Mapped[float | None]
    """Retained accuracy in percent."""
    cost: Mapped[dict[str, Any] | None]
    evidence: Mapped[str | None] = mapped_column(ForeignKey("documents.sha256"))
    report: Mapped[str | None] = mapped_column(ForeignKey("documents.sha256"))
    __table_args__ = (
        ForeignKeyConstraint(["federation", "parent"], ["versions.federation", "versions.number"]),
        _one_of("state", VersionState),
        _one_of("kind", VersionKind),
        Index(
            "one_current_version", "federation", unique=True,
            sqlite_where=text("state = 'current'"), postgresql_where=text("state = 'current'"),
        ),
    )  # fmt: skip


class Request(Base):
    """An erasure request. The same request twice has the same `fingerprint`, and is one request."""

    __tablename__ = "requests"
    inner = frozenset({"fingerprint", "claim", "words"})
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    federation: Mapped[str] = mapped_column(ForeignKey("federations.name"))
    asked_by: Mapped[str] = mapped_column(ForeignKey("accounts.name"))
    subject: Mapped[str] = mapped_column(String(64))
    """The requester's own reference for whose data it is; never personal data."""
    client: Mapped[int]
    target: Mapped[str]
    """Canonical JSON of an `ErasureRequest`."""
    ground: Mapped[str] = mapped_column(String(32))
    channel: Mapped[str | None] = mapped_column(String(32))
    """How it came in; None: nobody said."""
    words: Mapped[str] = mapped_column(default="")
    """What it is found by, case-folded."""
    received: Mapped[datetime]
    """When it reached the organisation: the month runs from there, not from when it was typed in."""
    due: Mapped[datetime]
    extended: Mapped[int] = mapped_column(default=0)
    """By how many months."""
    extension_reason: Mapped[str | None]
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str | None]
    """Why it was refused, why it failed, or why an officer must decide."""
    changed: Mapped[datetime]
    """When the state was last another one."""
    attempts: Mapped[int] = mapped_column(default=0)
    """How often a worker began since a person queued it."""
    failures: Mapped[int] = mapped_column(default=0)
    """How often it failed since then."""
    not_before: Mapped[datetime]
    claim: Mapped[str | None] = mapped_column(String(32))
    """The claim that serves it, or the last that did; requests served together share one."""
    worker: Mapped[str | None] = mapped_column(String(128))
    version: Mapped[int | None]
    """The version that forgot it."""
    effort: Mapped[str | None] = mapped_column(String(16))
    """The one rung that a person chose, in place of what the federation does. This and the next four are of this
    request alone; None: as its federation has it. See `serving`."""
    at_most: Mapped[str | None] = mapped_column(String(16))
    method: Mapped[str | None] = mapped_column(String(64))
    accuracy_limit: Mapped[float | None]
    keep_days: Mapped[int | None]
    evidence: Mapped[str | None] = mapped_column(ForeignKey("documents.sha256"))
    report: Mapped[str | None] = mapped_column(ForeignKey("documents.sha256"))
    __table_args__ = (
        ForeignKeyConstraint(["federation", "version"], ["versions.federation", "versions.number"]),
        _one_of("state", RequestState),
        _one_of("ground", Ground),
        CheckConstraint("extended IN (0, 1, 2)", name="extended_by_two_months_at_most"),
        CheckConstraint("(extended = 0) = (extension_reason IS NULL)", name="extended_with_a_reason"),
        CheckConstraint("(state = 'done') = (version IS NOT NULL)", name="done_has_a_version"),
        CheckConstraint(
            "state NOT IN ('refused', 'failed', 'deciding') OR reason IS NOT NULL", name="a_refusal_has_a_reason"
        ),
        Index("requests_to_serve", "federation", "state", "received", "id"),
        Index("requests_by_due", "state", "due", "id"),
        Index("requests_by_received", "received", "id"),
        Index("requests_by_asker", "asked_by", "received", "id"),
        Index("requests_by_claim", "claim"),
        Index("requests_by_version", "federation", "version"),
    )

    @property
    def erasure(self) -> ErasureRequest:
        return ErasureRequest.from_json(json.loads(self.target))

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"target": json.loads(self.target), "describes": self.erasure.describe()}


class Candidate(Base):
    """A result that waits for an officer, by the claim that made it."""

    __tablename__ = "candidates"
    claim: Mapped[str] = mapped_column(String(32), primary_key=True)
    federation: Mapped[str] = mapped_column(ForeignKey("federations.name"), index=True)
    parent: Mapped[int]
    """The version it was made from."""
    sha256: Mapped[str] = mapped_column(String(64))
    verdict: Mapped[str | None] = mapped_column(String(32))
    result: Mapped[dict[str, Any]]
    made: Mapped[datetime]


class Remains(Base):
    """A file beside a version's weights that holds what they hold (checkpoints, sketches): destroyed with them."""

    __tablename__ = "remains"
    federation: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    path: Mapped[str] = mapped_column(String(500), primary_key=True)
    kind: Mapped[str] = mapped_column(String(32))
    sha256: Mapped[str] = mapped_column(String(64))
    destroyed: Mapped[datetime | None]
    __table_args__ = (ForeignKeyConstraint(["federation", "version"], ["versions.federation", "versions.number"]),)


class Certificate(Base):
    """The signed record of one request, as the text that was signed."""

    __tablename__ = "certificates"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    request: Mapped[str] = mapped_column(ForeignKey("requests.id"), index=True)
    federation: Mapped[str] = mapped_column(String(64))
    version: Mapped[int]
    key: Mapped[str] = mapped_column(ForeignKey("keys.id"))
    made: Mapped[datetime]
    content: Mapped[str]
    withdrawn: Mapped[datetime | None]
    """When the version it speaks of was rolled back, or an officer found that it does not hold."""
    __table_args__ = (ForeignKeyConstraint(["federation", "version"], ["versions.federation", "versions.number"]),)


class Key(Base):
    """A public key; certificates by retired keys still verify."""

    __tablename__ = "keys"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    public: Mapped[str]
    """PEM."""
    made: Mapped[datetime]
    retired: Mapped[datetime | None]
    __table_args__ = (
        Index(
            "one_key_signs", text("coalesce(retired, '')"), unique=True,
            sqlite_where=text("retired IS NULL"), postgresql_where=text("retired IS NULL"),
        ),
    )  # fmt: skip


class Progress(Base):
    """How far a request is. Overwritten, and no part of the chain."""

    __tablename__ = "progress"
    request: Mapped[str] = mapped_column(ForeignKey("requests.id"), primary_key=True)
    stage: Mapped[str] = mapped_column(String(64))
    fraction: Mapped[float]
    at: Mapped[datetime]


class Event(Base):
    """One thing that happened. Numbered from 1 without a gap, each with the hash of the one before."""

    __tablename__ = "events"
    number: Mapped[int] = mapped_column(Count, primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    actor: Mapped[str] = mapped_column(String(128))
    kind: Mapped[str] = mapped_column(String(32))
    request: Mapped[str | None] = mapped_column(ForeignKey("requests.id"))
    body: Mapped[str]
    """Canonical JSON, as it was hashed."""
    previous: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    __table_args__ = (
        Index("events_by_request", "request", "number"),
        Index("events_by_kind", "kind", "number"),
        Index("events_by_actor", "actor", "number"),
    )

    def to_json(self) -> dict[str, Any]:
        """What the hash is made of, and the hash."""
        return super().to_json() | {"body": json.loads(self.body)}


class Webhook(Base):
    """Another system that is told of every change of state, and how far its deliveries are."""

    __tablename__ = "webhooks"
    inner = frozenset({"secret"})
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    url: Mapped[str]
    secret: Mapped[str]
    """whsec_ and 32 random bytes in base64: deliveries are signed with it, so it cannot be a hash."""
    made: Mapped[datetime]
    disabled: Mapped[datetime | None]
    position: Mapped[int] = mapped_column(Count)
    """The number of the last event that is done with."""
    attempts: Mapped[int] = mapped_column(default=0)
    """How often the next one was tried."""
    not_before: Mapped[datetime]
    problem: Mapped[str | None]
    """Why the last try failed."""


class Head(Base):
    """One row: the ledger's name, and the newest event. Locked by who appends."""

    __tablename__ = "head"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    ledger: Mapped[str] = mapped_column(String(32))
    number: Mapped[int] = mapped_column(Count)
    hash: Mapped[str] = mapped_column(String(64))
    __table_args__ = (CheckConstraint("id = 1", name="one_head"),)
