"""`fedforget ledger`, `keys` and `account`: the ledger's own care, from a terminal or cron.

In whose name a command acts is in `cli_acting`. The ledger's own packages are imported inside: everything else works
without them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedforget.cli_acting import acting, operator
from fedforget.cli_terminal import JsonOption, print_result
from fedforget.console.permissions import Permission
from fedforget.errors import InputError
from fedforget.files import write_text

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger
    from fedforget.ledger.schema import Federation

ledger_app = typer.Typer(help="The ledger itself: backup, restore, pin, check, migrate, register, rollback.",
                         no_args_is_help=True)  # fmt: skip
keys_app = typer.Typer(help="The keys that sign certificates: make, rotate, list.", no_args_is_help=True)
account_app = typer.Typer(help="Accounts: add, list, disable, link.", no_args_is_help=True)
HomeOption = Annotated[
    Path | None, typer.Option(help="The installation's folder (default: $FEDFORGET_HOME, else your data folder).")
]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger", help="The ledger's database, such as postgresql://HOST/NAME (default: SQLite in the home)."
    ),
]
AsOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="The account that acts (default: whose token $FEDFORGET_TOKEN is, else $FEDFORGET_ACCOUNT, else your user "
        "name). One that has a password or a token must prove it.",
    ),
]
ReasonOption = Annotated[str, typer.Option(help="Why, in a sentence.")]
MethodOption = Annotated[str, typer.Option(help="The method that serves its requests.")]
PresetOption = Annotated[str | None, typer.Option(help="A preset of the method.")]
LevelOption = Annotated[str, typer.Option(help="alone, quick or full.")]
LimitOption = Annotated[float, typer.Option(help="Points of retained accuracy that requests may cost in all.")]
KeepOption = Annotated[int, typer.Option(help="How long superseded weights stay.")]
TogetherOption = Annotated[int, typer.Option(help="How many waiting requests are served in one go.")]
PinOption = Annotated[
    list[str] | None, typer.Option(help="A pin, or a file with one in it; may be repeated.", metavar="PIN")
]


@contextmanager
def needs_service() -> Iterator[None]:
    """Say what is missing where the extra was not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(
            f"This needs the package {error.name}; install it with: pip install 'fedforget[service]'."
        ) from None


def open_ledger(home: Path | None, url: str | None) -> Ledger:
    with needs_service():
        from fedforget.ledger.book import Ledger
        from fedforget.ledger.privacy import make_nothing_for_others
    make_nothing_for_others()
    return Ledger.open(home, url)


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
        head = ledger.head()
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
        head = ledger.head()
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
        found = ledger.check(*_pins(pin))
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
    method: MethodOption = "fedaf",
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
        federation = ledger.register_run(
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
        version = ledger.rollback(federation, to, reason, actor=acting(ledger, as_account, Permission.ROLL_BACK).actor)
    print_result(
        as_json, version.to_json(), [f"Version {version.number} of {federation} has the weights of version {to}."]
    )


@keys_app.command("make")
def make_key(home: HomeOption = None, url: LedgerOption = None, as_json: JsonOption = False) -> None:
    """Make the first key."""
    with open_ledger(home, url) as ledger:
        key = ledger.make_key(actor=operator(ledger))
        print_result(as_json, key.to_json(), [f"Key {key.id}; hand out {ledger.key_folder / key.id}.public.pem."])


@keys_app.command("rotate")
def rotate_key(home: HomeOption = None, url: LedgerOption = None, as_json: JsonOption = False) -> None:
    """Sign with a new key from now on. What the old one signed still verifies."""
    with open_ledger(home, url) as ledger:
        key = ledger.rotate_key(actor=operator(ledger))
        print_result(as_json, key.to_json(), [f"Key {key.id}; hand out {ledger.key_folder / key.id}.public.pem."])


@keys_app.command("list")
def list_keys(home: HomeOption = None, url: LedgerOption = None, as_json: JsonOption = False) -> None:
    """All public keys, the newest last."""
    with open_ledger(home, url) as ledger:
        keys = [key.to_json() for key in ledger.public_keys()]
    lines = [f"{key['id']}  made {key['made'][:10]}  {'retired' if key['retired'] else 'signs'}" for key in keys]
    if as_json:
        print(json.dumps(keys))
        return
    print_result(False, {}, lines or ["There is no key yet; make one with: fedforget keys make"])


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
        account = ledger.add_account(name, role, actor=operator(ledger))
    print_result(as_json, account.to_json(), [f"Added {account.name}, {account.role}."])


@account_app.command("list")
def list_accounts(home: HomeOption = None, url: LedgerOption = None, as_json: JsonOption = False) -> None:
    """All accounts."""
    with open_ledger(home, url) as ledger:
        accounts = [account.to_json() for account in ledger.accounts()]
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
        account = ledger.change_account(name, disabled=True, actor=actor)
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
        if ledger.can_prove_itself(name):
            raise InputError(
                f"'{name}' has a password, a token or a sign-in provider; an admin makes a link for it in the console. "
                "Where no admin can sign in any more, add one: fedforget account add NAME --role admin."
            )
        secret = ledger.make_link(name, lasting=timedelta(hours=hours), actor=operator(ledger))
    link = f"{console.rstrip('/')}/link/{secret}"
    print_result(as_json, {"link": link}, [link])
