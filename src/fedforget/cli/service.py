"""What the commands on a ledger share: where it is, and in whose name they act.

The ledger's own packages are imported inside: everything else works without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer
from rich.table import Table

from fedforget.cli.acting import acting
from fedforget.cli.terminal import JsonOption, print_result
from fedforget.console.permissions import Permission
from fedforget.errors import InputError

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger

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


class Shown(NamedTuple):
    """What a command prints: the values for --json, and what stands on the terminal without it. And how it ends."""

    values: Any
    lines: Sequence[str | Table]
    status: int = 0


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


Work = Callable[..., Shown]


def ledger_command(group: typer.Typer, name: str, permission: Permission | None = None) -> Callable[[Work], Work]:
    """A command on a ledger: what its function returns is printed, and --home, --ledger and --json are added to it.

    The function gets the opened ledger first. With a permission there is also --as, and the function gets second who
    acts, once that account's role has been found to allow it."""

    def add(work: Work) -> Work:
        def command(
            home: Path | None, url: str | None, as_json: bool, as_account: str | None = None, **given: Any
        ) -> None:
            with open_ledger(home, url) as ledger:
                who = () if permission is None else (acting(ledger, as_account, permission),)
                shown = work(ledger, *who, **given)
            print_result(as_json, shown.values, shown.lines)
            if shown.status:
                raise typer.Exit(shown.status)

        own = list(signature(work).parameters.values())[1 if permission is None else 2 :]
        hints = get_type_hints(work, localns={"Ledger": Any}, include_extras=True)  # its class is not imported
        options = [] if permission is None else [_option("as_account", AsOption, None)]
        options += [_option("home", HomeOption, None), _option("url", LedgerOption, None)]
        options += [_option("as_json", JsonOption, False)]
        vars(command)["__signature__"] = Signature(
            [*(_option(item.name, hints[item.name], item.default) for item in own), *options]
        )
        group.command(name, help=work.__doc__)(command)
        return work

    return add


def _option(name: str, kind: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
