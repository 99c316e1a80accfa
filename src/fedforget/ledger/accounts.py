"""Accounts, and the secrets that stand for them: passwords, sessions, tokens, one-time links.

Of a secret we make, 256 bits at random, only the SHA-256 is kept. Passwords are people's, so they get argon2, which is
slow on purpose: it runs outside any transaction, and only when somebody signs in by password."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError
from sqlalchemy import ColumnElement, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fedforget.errors import InputError
from fedforget.ledger.checks import check_account_name, check_label, check_word, searchable
from fedforget.ledger.core import SYSTEM, Core, named
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.passwords import LONGEST_PASSWORD, check_password
from fedforget.ledger.recorded import recorded
from fedforget.ledger.schema import Account, Link, SignIn, Token
from fedforget.ledger.states import Role

HASHER = PasswordHasher()


@dataclass(frozen=True)
class Person:
    """Who is asking: an account that is not disabled."""

    name: str
    role: Role
    expires: datetime | None = None
    """When the session or token ends."""


class Accounts:
    """`ledger.accounts.all`: who may come in."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def add(
        self, name: str, role: str, *, password: str | None = None, identity: str | None = None, actor: str = SYSTEM
    ) -> Account:
        """A new account. Without a password it signs in by link, token, or as `identity` at an OIDC provider."""
        name, known = check_account_name(name), check_word(Role, role, "role")
        if name == SYSTEM or name.startswith("worker"):
            raise InputError(f"The name '{name}' stands for the program itself; choose another.")
        if identity is not None and not (identity.isprintable() and 0 < len(identity) <= 300):
            raise InputError("An identity must be 1 to 300 characters that can be printed.")
        hashed = None if password is None else _hash_password(password, name)
        try:
            with self._core.writing() as session:
                made = self._core.clock()
                account = Account(name=name, role=known, password=hashed, identity=identity, made=made)
                session.add(account)
                said = {"account": name, "role": known, **recorded("account", account)}
                self._core.append(session, actor, "account added", said)
                return account
        except IntegrityError:
            raise ConflictError(f"There is an account '{name}' already, or one with this identity.") from None

    def all(self) -> list[Account]:
        return self._core.rows(select(Account).order_by(Account.name))

    def get(self, name: str) -> Account:
        with self._core.reading() as session:
            return named(session, Account, name)

    def can_prove_itself(self, name: str) -> bool:
        """Whether an account has a password, a sign-in provider or a token that is good."""
        account, now = self.get(name), self._core.clock()
        tokens = (t.revoked is None and (t.expires is None or t.expires > now) for t in self.tokens(name))
        return bool(account.password or account.identity or any(tokens))

    def of_identity(self, identity: str) -> Person | None:
        """Who an OIDC provider says they are, if we know them."""
        query = select(Account).where(Account.identity == searchable(identity), Account.disabled.is_(None))
        found = self._core.rows(query)
        return _person(found[0]) if found else None

    def change(
        self,
        name: str,
        *,
        role: str | None = None,
        password: str | None = None,
        disabled: bool | None = None,
        actor: str,
    ) -> Account:
        """Another role or password, or switched off or on. All its sessions end; with a new password, or disabled, its
        links too."""
        values: dict[str, Any] = {}
        if role is not None:
            values["role"] = check_word(Role, role, "role")
        if password is not None:
            values["password"] = _hash_password(password, name)
        if disabled is not None:
            values["disabled"] = self._core.clock() if disabled else None
        if not values:
            return self.get(name)
        with self._core.writing() as session:
            query = update(Account).where(Account.name == searchable(name)).values(values).returning(Account)
            admins = select(func.count()).where(Account.role == Role.ADMIN, Account.disabled.is_(None))
            before = session.scalar(admins)
            account = session.scalars(query).one_or_none()
            if account is None:
                raise MissingError("There is no such account.")
            if before and not session.scalar(admins):
                raise ConflictError(f"'{name}' is the last admin; make another one first.")
            session.execute(delete(SignIn).where(SignIn.account == account.name))
            if disabled or password is not None:
                self._end_links(session, account.name)
            said = {"account": name, "role": account.role, "disabled": account.disabled is not None}
            said |= {"password": password is not None, **recorded("account", account)}
            self._core.append(session, actor, "account changed", said)
            return account

    def authenticate(self, name: str, password: str) -> Person | None:
        """The account with this name and password; None for any other, after the same time, and recorded."""
        known = name.strip().lower()
        with self._core.reading() as session:
            account = session.get(Account, searchable(known))
        stored = account.password if account is not None else None
        right = _password_is(stored, password[: LONGEST_PASSWORD + 1])
        if account is None or not right or account.disabled is not None:
            # A name that is no account's may be somebody's password in the wrong field: it is not written down.
            who = SYSTEM if account is None else account.name
            why = "no such account" if account is None else "wrong password" if not right else "disabled"
            with self._core.writing() as session:
                self._core.append(session, who, "denied", {"by": "password", "why": why})
            return None
        return _person(account)

    def open_session(self, name: str, *, by: str, lasting: timedelta = timedelta(hours=12)) -> str:
        """Sign in; the secret for the cookie. `by` says how: password, link, oidc."""
        secret, now = secrets.token_urlsafe(32), self._core.clock()
        with self._core.writing() as session:
            active = select(Account.name).where(Account.name == searchable(name), Account.disabled.is_(None))
            if session.scalar(active) is None:
                raise MissingError("There is no such account.")
            session.add(SignIn(hash=_hash(secret), account=name, made=now, expires=now + lasting))
            self._core.append(session, name, "signed in", {"by": by})
        return secret

    def session(self, secret: str) -> Person | None:
        """Who is signed in with this secret. One look at one row: no slow hash, nothing is written."""
        return self._holder(SignIn, secret)

    def _holder(self, kind: type[SignIn | Token], secret: str, *where: ColumnElement[bool]) -> Person | None:
        alive = or_(kind.expires.is_(None), kind.expires > self._core.clock())
        query = select(Account.name, Account.role, kind.expires).join(kind, kind.account == Account.name)
        query = query.where(kind.hash == _hash(secret), alive, Account.disabled.is_(None), *where)
        with self._core.reading() as session:
            row = session.execute(query).one_or_none()
        return None if row is None else Person(row.name, Role(row.role), row.expires)

    def close_session(self, secret: str) -> None:
        with self._core.writing() as session:
            query = delete(SignIn).where(SignIn.hash == _hash(secret)).returning(SignIn.account)
            name = session.scalars(query).one_or_none()
            if name is not None:
                self._core.append(session, name, "signed out")

    def make_token(
        self, name: str, label: str, *, actor: str, lasting: timedelta | None = timedelta(days=90)
    ) -> tuple[str, Token]:
        """A secret for scripts, shown this once, and its row."""
        label, secret, now = check_label(label), f"ff_{secrets.token_urlsafe(32)}", self._core.clock()
        token = Token(
            id=secrets.token_hex(8), hash=_hash(secret), account=self.get(name).name, label=label, made=now,
            expires=None if lasting is None else now + lasting,
        )  # fmt: skip
        with self._core.writing() as session:
            session.add(token)
            said = {"account": name, "token": token.id, "label": label, **recorded("token", token)}
            self._core.append(session, actor, "token made", said)
        return secret, token

    def tokens(self, name: str | None = None) -> list[Token]:
        query = select(Token).order_by(Token.made, Token.id)
        return self._core.rows(query if name is None else query.where(Token.account == searchable(name)))

    def revoke_token(self, id: str, *, actor: str) -> None:
        query = update(Token).where(Token.id == searchable(id), Token.revoked.is_(None))
        with self._core.writing() as session:
            token = session.scalars(query.values(revoked=self._core.clock()).returning(Token)).one_or_none()
            if token is None:
                raise MissingError("There is no such token, or it was revoked before.")
            said = {"account": token.account, "token": id, **recorded("token", token)}
            self._core.append(session, actor, "token revoked", said)

    def token(self, secret: str) -> Person | None:
        """Whose token this is."""
        return self._holder(Token, secret, Token.revoked.is_(None))

    def make_link(self, name: str, *, lasting: timedelta = timedelta(hours=1), actor: str = SYSTEM) -> str:
        """A secret that signs in once. It is the account's only one: older links end."""
        secret, now, name = secrets.token_urlsafe(32), self._core.clock(), self.get(name).name
        with self._core.writing() as session:
            # Two links made at once on PostgreSQL: the second waits here, and ends the first.
            session.execute(select(Account.name).where(Account.name == name).with_for_update(key_share=True))
            self._end_links(session, name)
            session.add(Link(hash=_hash(secret), account=name, made=now, expires=now + lasting))
            self._core.append(session, actor, "link made", {"account": name})
        return secret

    def redeem_link(self, secret: str) -> Person | None:
        """Use a link, the older ones of its account end; None, and recorded, where it was used, has ended or never
        was."""
        now = self._core.clock()
        with self._core.writing() as session:
            link = session.get(Link, _hash(secret), with_for_update={"key_share": True})
            if link is None:
                self._core.append(session, SYSTEM, "denied", {"by": "link", "why": "no such link"})
                return None
            account = session.get_one(Account, link.account)
            reasons = {
                "used before": link.used is not None,
                "expired": link.expires <= now,
                "disabled": account.disabled is not None,
            }
            why = next((why for why, applies in reasons.items() if applies), None)
            if why is not None:
                self._core.append(session, account.name, "denied", {"by": "link", "why": why})
                return None
            link.used = now
            session.flush()
            self._end_links(session, account.name)
            return _person(account)

    def _end_links(self, session: Session, name: str) -> None:
        """Whoever still has a link of this account has none from now on. Who tries it is written down as `expired`."""
        now = self._core.clock()
        alive = Link.account == name, Link.used.is_(None), Link.expires > now
        session.execute(update(Link).where(*alive).values(expires=now))

    def tidy_secrets(self) -> None:
        """Throw away sessions and links that have expired."""
        now = self._core.clock()
        with self._core.writing() as session:
            for kind in (SignIn, Link):
                session.execute(delete(kind).where(kind.expires <= now))


def _person(account: Account) -> Person:
    return Person(account.name, Role(account.role))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


@cache
def _nobodys_password() -> str:
    """Hashed where there is no account, so that an answer takes as long."""
    return HASHER.hash(secrets.token_urlsafe(16))


def _hash_password(password: str, account: str) -> str:
    check_password(password, account)
    return HASHER.hash(password.encode(errors="replace"))


def _password_is(stored: str | None, password: str) -> bool:
    try:
        HASHER.verify(stored or _nobodys_password(), password.encode(errors="replace"))
    except VerificationError:
        return False
    return stored is not None
