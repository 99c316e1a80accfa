"""`fedforget keys`: the keys that sign certificates."""

from __future__ import annotations

import json

import typer

from fedforget.cli.acting import operator
from fedforget.cli.service import HomeOption, LedgerOption, open_ledger
from fedforget.cli.terminal import JsonOption, print_result

keys_app = typer.Typer(help="The keys that sign certificates: make, rotate, list.", no_args_is_help=True)


@keys_app.command("make")
def make_key(home: HomeOption = None, url: LedgerOption = None, as_json: JsonOption = False) -> None:
    """Make the first key."""
    with open_ledger(home, url) as ledger:
        key = ledger.keys.make(actor=operator(ledger))
        print_result(as_json, key.to_json(), [f"Key {key.id}; hand out {ledger.keys.folder / key.id}.public.pem."])


@keys_app.command("rotate")
def rotate_key(home: HomeOption = None, url: LedgerOption = None, as_json: JsonOption = False) -> None:
    """Sign with a new key from now on. What the old one signed still verifies."""
    with open_ledger(home, url) as ledger:
        key = ledger.keys.rotate(actor=operator(ledger))
        print_result(as_json, key.to_json(), [f"Key {key.id}; hand out {ledger.keys.folder / key.id}.public.pem."])


@keys_app.command("list")
def list_keys(home: HomeOption = None, url: LedgerOption = None, as_json: JsonOption = False) -> None:
    """All public keys, the newest last."""
    with open_ledger(home, url) as ledger:
        keys = [key.to_json() for key in ledger.keys.all()]
    lines = [f"{key['id']}  made {key['made'][:10]}  {'retired' if key['retired'] else 'signs'}" for key in keys]
    if as_json:
        print(json.dumps(keys))
        return
    print_result(False, {}, lines or ["There is no key yet; make one with: fedforget keys make"])
