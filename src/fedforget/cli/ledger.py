"""`fedforget ledger`: the ledger's own care, from a terminal or cron."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedforget.cli.acting import acting, operator
from fedforget.cli.service import AsOption, HomeOption, LedgerOption, ReasonOption, needs_service, open_ledger
from fedforget.cli.terminal import JsonOption, print_result
from fedforget.console.permissions import Permission
from fedforget.data.files import write_text
from fedforget.errors import InputError
from fedforget.methods import DEFAULT_METHOD

if TYPE_CHECKING:
    from fedforget.ledger.schema import Federation


ledger_app = typer.Typer(help="The ledger itself: backup, restore, pin, check, migrate, register, rollback.",
                         no_args_is_help=True)  # fmt: skip
MethodOption = Annotated[str, typer.Option(help="The method that serves its requests.")]
PresetOption = Annotated[str | None, typer.Option(help="A preset of the method.")]
LevelOption = Annotated[str, typer.Option(help="alone, quick or full.")]
LimitOption = Annotated[float, typer.Option(help="Points of retained accuracy that requests may cost in all.")]
KeepOption = Annotated[int, typer.Option(help="How long superseded weights stay.")]
TogetherOption = Annotated[int, typer.Option(help="How many waiting requests are served in one go.")]
PinOption = Annotated[
    list[str] | None, typer.Option(help="A pin, or a file with one in it; may be repeated.", metavar="PIN")
]


@ledger_app.command("backup")
def make_backup(
    file: Annotated[Path, typer.Argument(help="The archive to write.", metavar="FILE")],
    with_keys: Annotated[bool, typer.Option("--with-keys", help="Put the private keys in: keep it as safe.")] = False,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write everything into one archive, while the ledger goes on working."""
    with open_ledger(home, url) as ledger:
        from fedforget.ledger.backup import backup

        pin = backup(ledger, file, with_keys=with_keys, actor=operator(ledger))
    print_result(as_json, {"file": str(file), "pin": str(pin)}, [f"Wrote {file}, up to event {pin.number}.", str(pin)])


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
    print_result(as_json, {"home": str(where), "pin": str(head)},
           [f"Restored into {where}; the chain of {head.number} events is intact."])  # fmt: skip


@ledger_app.command("pin")
def show_pin(
    out: Annotated[Path | None, typer.Option(help="Write it into this file, outside the ledger's home.")] = None,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the head of the chain. Kept elsewhere, it tells later whether the chain was written anew."""
    with open_ledger(home, url) as ledger:
        head = ledger.trail.head()
    if out is not None:
        write_text(out, f"{head}\n")
    print_result(
        as_json, {"ledger": head.ledger, "number": head.number, "hash": head.hash, "pin": str(head)}, [str(head)]
    )


def _pins(given: Sequence[str] | None) -> tuple[Any, ...]:
    """Pins as lines, or from files."""
    from fedforget.ledger.chain import Pin

    try:
        return tuple(
            Pin.read(text if text.startswith("fedforget-pin") else Path(text).read_text()) for text in given or ()
        )
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The pin cannot be read: {error}.") from None


@ledger_app.command()
def check(
    pin: PinOption = None, home: HomeOption = None, url: LedgerOption = None, as_json: JsonOption = False
) -> None:
    """Check all of it: the chain, what it speaks of, every file; exit code 1 if something is not as it was."""
    with open_ledger(home, url) as ledger:
        found = ledger.trail.check(*_pins(pin))
    good = f"The chain of {found.events} events is intact, and everything is as it was written."
    values = {"intact": found.intact, "events": found.events, "head": found.head, "problems": found.problems}
    print_result(as_json, values, list(found.problems) or [good])
    if not found.intact:
        raise typer.Exit(1)


@ledger_app.command()
def migrate(home: HomeOption = None, url: LedgerOption = None, as_json: JsonOption = False) -> None:
    """Bring an older ledger's tables up to date; make a backup first."""
    with needs_service():
        from fedforget.ledger.book import migrate as migrate_ledger
    before, after = migrate_ledger(home, url)
    line = f"The schema is {after} already." if before == after else f"Brought the schema from {before} to {after}."
    print_result(as_json, {"from": before, "to": after}, [line])


def print_registered(federation: Federation, as_json: bool) -> None:
    line = f"Registered {federation.name}: {federation.method} ({federation.preset})."
    print_result(as_json, federation.to_json(), [line])


@ledger_app.command("register")
def register_run(
    name: Annotated[str, typer.Argument(help="What to call it.", metavar="NAME")],
    run: Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")],
    method: MethodOption = DEFAULT_METHOD,
    preset: PresetOption = None,
    audit_level: LevelOption = "quick",
    accuracy_limit: LimitOption = 2.0,
    keep_days: KeepOption = 30,
    together: TogetherOption = 1,
    as_account: AsOption = None,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a trained run folder a federation that requests can be about."""
    with open_ledger(home, url) as ledger:
        actor = acting(ledger, as_account, Permission.ROLL_BACK).actor  # who may say which model is the current one
        federation = ledger.federations.register_run(
            name, run, actor=actor, method=method, preset=preset, audit_level=audit_level,
            accuracy_limit=accuracy_limit, keep_days=keep_days, together=together,
        )  # fmt: skip
    print_registered(federation, as_json)


@ledger_app.command()
def rollback(
    federation: Annotated[str, typer.Argument(help="The federation.", metavar="NAME")],
    to: Annotated[int, typer.Option(help="The version whose weights come back.")],
    reason: ReasonOption,
    as_account: AsOption = None,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an older version current again. Requests served since then fail, and can be queued again."""
    with open_ledger(home, url) as ledger:
        version = ledger.versions.roll_back(
            federation, to, reason, actor=acting(ledger, as_account, Permission.ROLL_BACK).actor
        )
    print_result(
        as_json, version.to_json(), [f"Version {version.number} of {federation} has the weights of version {to}."]
    )


@ledger_app.command("register-flower")
def register_flower_federation(
    name: Annotated[str, typer.Argument(help="What to call it.", metavar="NAME")],
    file: Annotated[Path, typer.Argument(help="A TOML file that says where it is.", metavar="FILE")],
    method: MethodOption = DEFAULT_METHOD,
    preset: PresetOption = None,
    audit_level: LevelOption = "quick",
    accuracy_limit: LimitOption = 2.0,
    keep_days: KeepOption = 30,
    together: TogetherOption = 1,
    as_account: AsOption = None,
    home: HomeOption = None,
    url: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a Flower federation one that requests can be about. FILE names its connection, Flower's home and the run:
    see examples/deploy/federation.toml."""
    if not file.is_file():
        raise InputError(f"There is no file {file} that describes the federation.")
    with open_ledger(home, url) as ledger:
        from fedforget.ledger.executor_flower import register_flower

        actor = acting(ledger, as_account, Permission.ROLL_BACK).actor
        federation = register_flower(
            ledger, name, file, actor=actor, method=method, preset=preset,
            audit_level=audit_level, accuracy_limit=accuracy_limit, keep_days=keep_days, together=together,
        )  # fmt: skip
    print_registered(federation, as_json)
