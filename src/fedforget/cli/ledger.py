"""`fedforget ledger`: the ledger's own care, from a terminal or cron."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import typer

from fedforget.cli.acting import Acting, check_may, operator
from fedforget.cli.service import (
    HomeOption,
    LedgerOption,
    ReasonOption,
    Serving,
    Shown,
    ledger_command,
    needs_service,
    settings_of,
)
from fedforget.cli.terminal import JsonOption, print_result
from fedforget.console.permissions import Permission
from fedforget.data.files import write_text
from fedforget.errors import InputError

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger

ledger_app = typer.Typer(
    help="The ledger itself: backup, restore, pin, check, withdrawals, lineage, migrate, register, change, rollback.",
    no_args_is_help=True,
)
PinOption = Annotated[
    list[str] | None, typer.Option(help="A pin, or a file with one in it; may be repeated.", metavar="PIN")
]


@ledger_command(ledger_app, "backup")
def make_backup(
    ledger: Ledger,
    file: Annotated[Path, typer.Argument(help="The archive to write.", metavar="FILE")],
    with_keys: Annotated[bool, typer.Option("--with-keys", help="Put the private keys in: keep it as safe.")] = False,
) -> Shown:
    """Write everything into one archive, while the ledger goes on working."""
    from fedforget.ledger.backup import backup

    pin = backup(ledger, file, with_keys=with_keys, actor=operator(ledger))
    return Shown({"file": str(file), "pin": str(pin)}, [f"Wrote {file}, up to event {pin.number}.", str(pin)])


@ledger_app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="The archive.", metavar="FILE")],
    pin: PinOption = None,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a new ledger from an archive, in an empty home and an empty database."""
    with needs_service():
        from fedforget.ledger.backup import restore as restore_backup
        from fedforget.ledger.book import default_home
        from fedforget.ledger.privacy import make_nothing_for_others
    make_nothing_for_others()
    where = home or default_home()
    with restore_backup(file, where, url, pins=_pins(pin)) as ledger:
        head = ledger.trail.head()
    line = f"Restored into {where}; the chain of {head.number} events is intact."
    print_result(as_json, {"home": str(where), "pin": str(head)}, [line])


@ledger_command(ledger_app, "pin")
def show_pin(
    ledger: Ledger,
    out: Annotated[Path | None, typer.Option(help="Write it into this file, outside the ledger's home.")] = None,
) -> Shown:
    """Print the head of the chain. Kept elsewhere, it tells later whether the chain was written anew."""
    head = ledger.trail.head()
    if out is not None:
        write_text(out, f"{head}\n")
    return Shown({"ledger": head.ledger, "number": head.number, "hash": head.hash, "pin": str(head)}, [str(head)])


def _pins(given: Sequence[str] | None) -> tuple[Any, ...]:
    """Pins as lines, or from files."""
    from fedforget.ledger.chain import Pin

    try:
        return tuple(
            Pin.read(text if text.startswith("fedforget-pin") else Path(text).read_text()) for text in given or ()
        )
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The pin cannot be read: {error}.") from None


@ledger_command(ledger_app, "check")
def check(ledger: Ledger, pin: PinOption = None) -> Shown:
    """Check all of it: the chain, what it speaks of, every file; exit code 1 if something is not as it was."""
    found = ledger.trail.check(*_pins(pin))
    good = f"The chain of {found.events} events is intact, and everything is as it was written."
    values = {"intact": found.intact, "events": found.events, "head": found.head, "problems": found.problems}
    return Shown(values, list(found.problems) or [good], 0 if found.intact else 1)


@ledger_command(ledger_app, "withdrawals")
def withdrawals(
    ledger: Ledger, out: Annotated[Path | None, typer.Option(help="Write it into this file.", metavar="FILE")] = None
) -> Shown:
    """The signed list of certificates that hold no more, for `fedforget verify --withdrawals`."""
    text = ledger.withdrawals.signed()
    if out is not None:
        write_text(out, text)
    return Shown(json.loads(text), [text.rstrip() if out is None else f"Wrote {out}."])


@ledger_command(ledger_app, "lineage", Permission.SEE_VERSIONS)
def lineage(
    ledger: Ledger,
    who: Acting,
    request: Annotated[str, typer.Argument(help="The request's id, or its first digits.", metavar="REQUEST")],
    destroy_due: Annotated[
        bool, typer.Option("--destroy-due", help="Destroy what is due first; what is due next is announced.")
    ] = False,
    receipt: Annotated[Path | None, typer.Option(help="Write it into this file, signed.", metavar="FILE")] = None,
) -> Shown:
    """Where a request's data lives on: every file in the home is looked into, and what becomes of each."""
    if destroy_due:
        check_may(ledger, who, Permission.DESTROY)
        ledger.lineage.destroy_due(actor=who.actor)
    found = ledger.lineage.of(ledger.requests.find(request))
    if receipt is not None:
        write_text(receipt, ledger.lineage.receipt(found, actor=who.actor))
    lines = []
    for trace in found.traces:
        fate = f"{trace.fate} {trace.until[:10]}" if trace.until else trace.fate
        lines += [f"{fate:<23}{trace.what}, {trace.place}, SHA-256 {(trace.sha256 or '–')[:12]}", f"{'':23}{trace.why}"]
    looked = sum(trace.fate != "destroyed" for trace in found.traces)
    line = f"Looked through the home: {len(found.clean)} files are clean of it, {looked} places hold it or may."
    return Shown(found.to_json(), [*lines, line])


@ledger_app.command()
def migrate(home: HomeOption = None, url: LedgerOption = None, as_json: JsonOption = False) -> None:
    """Bring an older ledger's tables up to date; make a backup first."""
    with needs_service():
        from fedforget.ledger.book import migrate as migrate_ledger
    before, after = migrate_ledger(home, url)
    line = f"The schema is {after} already." if before == after else f"Brought the schema from {before} to {after}."
    print_result(as_json, {"from": before, "to": after}, [line])


@ledger_command(ledger_app, "rollback", Permission.ROLL_BACK)
def rollback(
    ledger: Ledger,
    who: Acting,
    federation: Annotated[str, typer.Argument(help="The federation.", metavar="NAME")],
    to: Annotated[int, typer.Option(help="The version whose weights come back.")],
    reason: ReasonOption,
) -> Shown:
    """Make an older version current again. Requests served since then fail, and can be queued again."""
    version = ledger.versions.roll_back(federation, to, reason, actor=who.actor)
    return Shown(version.to_json(), [f"Version {version.number} of {federation} has the weights of version {to}."])


@ledger_command(ledger_app, "register", Permission.ROLL_BACK)  # who may say which model is the current one
def register(
    ledger: Ledger,
    who: Acting,
    name: Annotated[str, typer.Argument(help="What to call it.", metavar="NAME")],
    place: Annotated[
        Path, typer.Argument(help="A run folder, a Flower federation's TOML file, or an app's inbox.", metavar="PLACE")
    ],
    **served: Unpack[Serving],
) -> Shown:
    """Register what requests can be about: a trained run folder, a Flower federation, or a running Flower app.

    A Flower federation is named by a TOML file with its connection, Flower's home and the run: see
    examples/deploy/federation.toml. A running app that uses `Forget` is named by its inbox, the folder of
    Forget(folder=...).

    Where nothing else is said: the ladder, Retrain at once below 60 seconds, audit level quick, an accuracy limit of 2
    points, 30 days, one request at a time, an allowance of 3, two eyes."""
    from fedforget.ledger.executor_attached import is_attached
    from fedforget.ledger.executor_flower import register_flower

    if not place.exists():
        raise InputError(f"There is no file or folder {place}.")
    flower = place.is_file() or is_attached(place)
    add = partial(register_flower, ledger) if flower else ledger.federations.register_run
    federation = add(name, place, actor=who.actor, **settings_of(served))
    line = f"Registered {federation.name}: {federation.method} ({federation.preset})."
    return Shown(federation.to_json(), [line])


@ledger_command(ledger_app, "change", Permission.CHOOSE)
def change(
    ledger: Ledger,
    who: Acting,
    name: Annotated[str, typer.Argument(help="The federation.", metavar="NAME")],
    reason: ReasonOption,
    **served: Unpack[Serving],
) -> Shown:
    """Serve a federation's requests in another way from now on; what is left out stays."""
    if served.get("four_eyes") is False:
        check_may(ledger, who, Permission.LIFT_FOUR_EYES)
    federation = ledger.federations.change(name, reason, actor=who.actor, **settings_of(served))
    line = f"{federation.name} is served by {federation.method} ({federation.preset}) from now on."
    return Shown(federation.to_json(), [line])
