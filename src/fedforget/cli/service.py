"""What the commands on a ledger share: where it is, and in whose name they act.

The ledger's own packages are imported inside: everything else works without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
