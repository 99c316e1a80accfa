"""`fedforget webhook`: other systems that are told of every change of state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedforget.cli.acting import Acting
from fedforget.cli.service import Shown, ledger_command
from fedforget.console.permissions import Permission

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger

webhook_app = typer.Typer(help="Webhooks: add, list, disable. A worker delivers them.", no_args_is_help=True)
NameArgument = Annotated[str, typer.Argument(help="What to call it.", metavar="NAME")]


@ledger_command(webhook_app, "add", Permission.KEEP_WEBHOOKS)
def add(
    ledger: Ledger,
    who: Acting,
    name: NameArgument,
    address: Annotated[str, typer.Argument(help="https://HOST/PATH; http on this machine alone.", metavar="URL")],
) -> Shown:
    """Tell an address of every change of state from now on; prints the secret to check signatures with, once."""
    row = ledger.webhooks.add(name, address, actor=who.actor)
    line = f"{row.name} is told of every change of state at {row.url}. Its secret, shown once: {row.secret}"
    return Shown(row.to_json() | {"secret": row.secret}, [line])


@ledger_command(webhook_app, "list")
def list_webhooks(ledger: Ledger) -> Shown:
    """All webhooks, how far they are, and what went wrong last."""
    rows = ledger.webhooks.all()
    lines = [
        f"{row.name}  {row.url}  {'disabled' if row.disabled else f'told up to event {row.position}'}"
        f"{f', {row.attempts} failed tries: {row.problem}' if row.attempts else ''}"
        for row in rows
    ]
    return Shown([row.to_json() for row in rows], lines or ["There is no webhook."])


@ledger_command(webhook_app, "disable", Permission.KEEP_WEBHOOKS)
def disable(ledger: Ledger, who: Acting, name: NameArgument) -> Shown:
    """Tell it nothing more."""
    row = ledger.webhooks.disable(name, actor=who.actor)
    return Shown(row.to_json(), [f"{row.name} is told nothing more."])
