"""`fedforget account`: who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedforget.cli.acting import Acting, operator
from fedforget.cli.service import Shown, ledger_command
from fedforget.console.permissions import Permission
from fedforget.errors import InputError

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger

account_app = typer.Typer(help="Accounts: add, list, disable, link.", no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]


@ledger_command(account_app, "add")
def add_account(
    ledger: Ledger,
    name: NameArgument,
    role: Annotated[str, typer.Option(help="requester, operator, officer, auditor or admin.")],
) -> Shown:
    """Add an account without a password; it signs in by a link."""
    account = ledger.accounts.add(name, role, actor=operator(ledger))
    return Shown(account.to_json(), [f"Added {account.name}, {account.role}."])


@ledger_command(account_app, "list")
def list_accounts(ledger: Ledger) -> Shown:
    """All accounts."""
    accounts = [account.to_json() for account in ledger.accounts.all()]
    return Shown(accounts, [f"{a['name']}  {a['role']}{'  disabled' if a['disabled'] else ''}" for a in accounts])


@ledger_command(account_app, "disable", Permission.KEEP_ACCOUNTS)
def disable_account(ledger: Ledger, who: Acting, name: NameArgument) -> Shown:
    """Switch an account off; its sessions end now."""
    account = ledger.accounts.change(name, disabled=True, actor=who.actor)
    return Shown(account.to_json(), [f"{account.name} is disabled."])


@ledger_command(account_app, "link")
def make_link(
    ledger: Ledger,
    name: NameArgument,
    console: Annotated[str, typer.Option(help="The address people use for the console.")] = "http://127.0.0.1:8765",
) -> Shown:
    """A link that signs this account in, once, within an hour; for one that has nothing else to sign in with."""
    if ledger.accounts.can_prove_itself(name):
        raise InputError(
            f"'{name}' has a password, a token or a sign-in provider; an admin makes a link for it in the console. "
            "Where no admin can sign in any more, add one: fedforget account add NAME --role admin."
        )
    secret = ledger.accounts.make_link(name, actor=operator(ledger))
    link = f"{console.rstrip('/')}/link/{secret}"
    return Shown({"link": link}, [link])
