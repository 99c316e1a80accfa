"""What the commands on a ledger share: where it is, and in whose name they act.

The ledger's own packages are imported inside: everything else works without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict, get_args, get_type_hints

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


class Choice(TypedDict, total=False):
    """How one request is served, or those of a federation, as options."""

    effort: Annotated[str | None, typer.Option(metavar="RUNG", help="Try this one rung alone.")]
    at_most: Annotated[str | None, typer.Option(metavar="RUNG", help="Climb no higher than this rung.")]
    method: Annotated[str | None, typer.Option(help="The method that serves.")]
    accuracy_limit: Annotated[float | None, typer.Option(help="Points of retained accuracy that may be lost.")]
    keep_days: Annotated[int | None, typer.Option(help="How long models stay that still know the data.")]


class Serving(Choice, total=False):
    """What else there is to say of a federation."""

    preset: Annotated[str | None, typer.Option(help="A preset of the method.")]
    exact_below: Annotated[
        float | None,
        typer.Option(
            help="Retrain at once where that is forecast to take fewer seconds; 0: always climb.", metavar="SECONDS"
        ),
    ]
    audit_level: Annotated[str | None, typer.Option(help="alone, quick or full.")]
    together: Annotated[int | None, typer.Option(help="How many waiting requests are served in one go.")]
    allowance: Annotated[
        int | None, typer.Option(help="How often in 30 days a client may send it up to Retrain without an officer.")
    ]
    four_eyes: Annotated[
        bool | None, typer.Option("--four-eyes/--two-eyes", help="Who submitted or accepted does not decide.")
    ]


def settings_of(given: Serving) -> Any:
    """What was said, as `ledger.federations` takes it; what was left out is not in it."""
    effort = given.get("effort")
    rungs = {"lowest": effort, "at_most": given.get("at_most") or effort, "exact_below": given.get("exact_below")}
    settings = {name: value for name, value in rungs.items() if value is not None}
    said = {name: value for name, value in given.items() if value is not None and name not in ("effort", *rungs)}
    return said | ({"settings": settings} if settings else {})


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

        hints = get_type_hints(work, localns={"Ledger": Any}, include_extras=True)  # its class is not imported
        options = []
        for item in list(signature(work).parameters.values())[1 if permission is None else 2 :]:
            kind = hints[item.name]
            if item.kind is Parameter.VAR_KEYWORD:  # **given: Unpack[...], each an option that may be left out
                named = get_type_hints(get_args(kind)[0], include_extras=True)
                options += [_option(name, hint, None) for name, hint in named.items()]
            else:
                options.append(_option(item.name, kind, item.default))
        options += [] if permission is None else [_option("as_account", AsOption, None)]
        options += [_option("home", HomeOption, None), _option("url", LedgerOption, None)]
        vars(command)["__signature__"] = Signature([*options, _option("as_json", JsonOption, False)])
        group.command(name, help=work.__doc__)(command)
        return work

    return add


def _option(name: str, kind: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
