"""`fedforget keys`: the keys that sign certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from fedforget.cli.acting import operator
from fedforget.cli.service import Shown, ledger_command

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger
    from fedforget.ledger.schema import Key

keys_app = typer.Typer(help="The keys that sign certificates: make, rotate, list.", no_args_is_help=True)


@ledger_command(keys_app, "make")
def make_key(ledger: Ledger) -> Shown:
    """Make the first key."""
    return _made(ledger, ledger.keys.make(actor=operator(ledger)))


@ledger_command(keys_app, "rotate")
def rotate_key(ledger: Ledger) -> Shown:
    """Sign with a new key from now on. What the old one signed still verifies."""
    return _made(ledger, ledger.keys.rotate(actor=operator(ledger)))


def _made(ledger: Ledger, key: Key) -> Shown:
    return Shown(key.to_json(), [f"Key {key.id}; hand out {ledger.keys.folder / key.id}.public.pem."])


@ledger_command(keys_app, "list")
def list_keys(ledger: Ledger) -> Shown:
    """All public keys, the newest last."""
    keys = [key.to_json() for key in ledger.keys.all()]
    lines = [f"{key['id']}  made {key['made'][:10]}  {'retired' if key['retired'] else 'signs'}" for key in keys]
    return Shown(keys, lines or ["There is no key yet; make one with: fedforget keys make"])
