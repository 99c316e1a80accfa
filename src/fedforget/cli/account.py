"""`fedforget account`: who may do what."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Annotated

import typer

from fedforget.cli.acting import acting, operator
from fedforget.cli.service import AsOption, HomeOption, LedgerOption, open_ledger
from fedforget.cli.terminal import JsonOption, print_result
from fedforget.console.permissions import Permission
from fedforget.errors import InputError

account_app = typer.Typer(help="Accounts: add, list, disable, link.", no_args_is_help=True)


@account_app.command("add")
def add_account(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    role: Annotated[str, typer.Option(help="requester, operator, officer, auditor or admin.")],
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add an account without a password; it signs in by a link."""
    with open_ledger(home, url) as ledger:
        account = ledger.accounts.add(name, role, actor=operator(ledger))
    print_result(as_json, account.to_json(), [f"Added {account.name}, {account.role}."])


@account_app.command("list")
def list_accounts(home: HomeOption = None, url: LedgerOption = None, as_json: JsonOption = False) -> None:
    """All accounts."""
    with open_ledger(home, url) as ledger:
        accounts = [account.to_json() for account in ledger.accounts.all()]
    if as_json:
        print(json.dumps(accounts))
        return
    print_result(False, {}, [f"{a['name']}  {a['role']}{'  disabled' if a['disabled'] else ''}" for a in accounts])


@account_app.command("disable")
def disable_account(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    as_account: AsOption = None,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Switch an account off; its sessions end now."""
    with open_ledger(home, url) as ledger:
        actor = acting(ledger, as_account, Permission.KEEP_ACCOUNTS).actor
        account = ledger.accounts.change(name, disabled=True, actor=actor)
    print_result(as_json, account.to_json(), [f"{account.name} is disabled."])


@account_app.command("link")
def make_link(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    hours: Annotated[float, typer.Option(help="How long it is good for.")] = 1.0,
    console: Annotated[str, typer.Option(help="The address people use for the console.")] = "http://127.0.0.1:8765",
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """A link that signs this account in, once; for one that has nothing else to sign in with."""
    with open_ledger(home, url) as ledger:
        if ledger.accounts.can_prove_itself(name):
            raise InputError(
                f"'{name}' has a password, a token or a sign-in provider; an admin makes a link for it in the console. "
                "Where no admin can sign in any more, add one: fedforget account add NAME --role admin."
            )
        secret = ledger.accounts.make_link(name, lasting=timedelta(hours=hours), actor=operator(ledger))
    link = f"{console.rstrip('/')}/link/{secret}"
    print_result(as_json, {"link": link}, [link])
