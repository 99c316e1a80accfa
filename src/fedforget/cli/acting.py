"""In whose name a command acts, and what the trail says of it.

An account proves itself: by a token in $FEDFORGET_TOKEN, or by its password at a terminal. One that has neither yet,
nor a sign-in provider, cannot; then the owner of the ledger's home acts for it, and the trail says just that, with the
system's name of that user. So the trail never says that somebody did what they did not prove."""

from __future__ import annotations

import os
import pwd
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from fedforget.console.permissions import Permission, may
from fedforget.errors import InputError
from fedforget.ledger.errors import MissingError
from fedforget.ledger.states import Role

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger
    from fedforget.ledger.schema import Account

TOKEN = "FEDFORGET_TOKEN"
ACCOUNT = "FEDFORGET_ACCOUNT"


@dataclass(frozen=True)
class Acting:
    """The account that a command acts for, and who the trail says did it."""

    account: str
    actor: str


def acting(ledger: Ledger, named: str | None, permission: Permission) -> Acting:
    """The account that was named, or whose token this is, if its role allows this."""
    account, actor = _who(ledger, named or os.environ.get(ACCOUNT))
    found = Acting(account.name, actor)
    check_may(ledger, found, permission)
    return found


def check_may(ledger: Ledger, who: Acting, permission: Permission) -> None:
    """Refuse, and write it down, where the account's role does not allow this."""
    role = ledger.accounts.get(who.account).role
    if not may(Role(role), permission):
        ledger.trail.append(who.actor, "denied", {"by": "command", "why": f"may not {permission}", "role": role})
        raise InputError(f"The account '{who.account}' is {role}, and may not {permission}.")


def operator(ledger: Ledger) -> str:
    """Who keeps the installation: the user of the system who owns its home."""
    uid = os.geteuid()
    if uid not in (0, ledger.home.stat().st_uid):
        raise InputError(f"Only the owner of {ledger.home} may do this; run it as that user, or prove an account.")
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return f"os user {name[:40] if name.isprintable() else uid}"


def _who(ledger: Ledger, named: str | None) -> tuple[Account, str]:
    secret = os.environ.get(TOKEN)
    if secret:
        person = ledger.accounts.token(secret)
        if person is None:
            ledger.trail.append("system", "denied", {"by": "command", "why": "no such token, or not any more"})
            raise InputError(f"${TOKEN} is no token, or not any more; make one in the console, under Your account.")
        if named is not None and named.lower() != person.name:
            raise InputError(f"${TOKEN} is of the account '{person.name}', not of '{named}'.")
        return ledger.accounts.get(person.name), person.name
    account = _named(ledger, (named or pwd.getpwuid(os.geteuid()).pw_name).lower())
    if not ledger.accounts.can_prove_itself(account.name):
        return account, f"{operator(ledger)} as {account.name}"
    if account.password is None or not sys.stdin.isatty():
        raise InputError(
            f"The account '{account.name}' must prove itself: put a token of it into ${TOKEN} (made in the console, "
            "under Your account), or type its password at a terminal."
        )
    password = typer.prompt(f"Password of {account.name}", hide_input=True, err=True)
    if ledger.accounts.authenticate(account.name, password) is None:
        raise InputError(f"This is not the password of '{account.name}'.")
    return account, account.name


def _named(ledger: Ledger, name: str) -> Account:
    try:
        account = ledger.accounts.get(name)
    except MissingError:
        raise InputError(
            f"There is no account '{name}'; name one with --as, or add it: fedforget account add {name} --role ROLE."
        ) from None
    if account.disabled is not None:
        raise InputError(f"The account '{name}' is disabled; name another with --as.")
    return account
