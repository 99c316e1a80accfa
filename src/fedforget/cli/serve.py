"""`fedforget serve`: the console, with a worker of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli.service import HomeOption, LedgerOption, needs_service


def serve(
    home: HomeOption = None,
    ledger: LedgerOption = None,
    host: Annotated[str, typer.Option(help="Where to listen; other machines need TLS.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 finds a free one.", min=0, max=65535)] = 8765,
    url: Annotated[
        str | None, typer.Option(help="The address people use, where a TLS proxy stands in front: https://HOST.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="A TLS certificate (PEM), to speak https itself.")] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Serve pages only; run `fedforget work`.")] = False,
) -> None:
    """The console in a browser. On a new machine it makes everything it needs, and prints a link to sign in once."""
    with needs_service():
        from fedforget.console.server import serve as run
    run(home, ledger, host=host, port=port, with_worker=not no_worker, url=url, certificate=certificate, key=key)
