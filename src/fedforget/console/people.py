"""What is done to accounts, the same for the pages and the API."""

from __future__ import annotations

from datetime import timedelta

from fedforget.console.models import AccountChange
from fedforget.console.permissions import Permission
from fedforget.console.visitors import Visitor
from fedforget.errors import InputError
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.schema import Account, Token

MOST_TOKENS = 50
"""Of one account, at a time."""


def change(visitor: Visitor, name: str, wanted: AccountChange) -> Account:
    """Another's account. One's own password is changed where the old one is asked for."""
    account = visitor.ledger.accounts.get(name)
    if wanted.password is not None and account.name == visitor.name:
        raise ConflictError("Your own password is changed under Your account, where the old one is asked for.")
    return visitor.ledger.accounts.change(
        name, role=wanted.role, password=wanted.password, disabled=wanted.disabled, actor=visitor.name
    )


def link(visitor: Visitor, name: str) -> str:
    """The address that signs this account in once."""
    if visitor.ledger.accounts.get(name).disabled is not None:
        raise InputError("The account is disabled; enable it first.")
    secret = visitor.ledger.accounts.make_link(name, actor=visitor.name)
    return f"{visitor.console.settings.url.rstrip('/')}/link/{secret}"


def make_token(visitor: Visitor, label: str, days: int) -> tuple[str, Token]:
    """The secret, shown this once, and its row."""
    now = visitor.ledger.clock()
    alive = [
        t for t in visitor.ledger.accounts.tokens(visitor.name) if not t.revoked and (not t.expires or t.expires > now)
    ]
    if len(alive) >= MOST_TOKENS:
        raise ConflictError(f"You have {MOST_TOKENS} tokens; revoke one that you do not use.")
    return visitor.ledger.accounts.make_token(visitor.name, label, actor=visitor.name, lasting=timedelta(days=days))


def revoke_token(visitor: Visitor, id: str) -> None:
    """Another's token is as if it were not there, except for an admin."""
    owner = None if visitor.may(Permission.KEEP_ACCOUNTS) else visitor.name
    if id not in {token.id for token in visitor.ledger.accounts.tokens(owner)}:
        raise MissingError("There is no such token, or it was revoked before.")
    visitor.ledger.accounts.revoke_token(id, actor=visitor.name)
