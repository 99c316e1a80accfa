"""The command line: each command parses, calls one function of the library, and prints a table or JSON."""

from __future__ import annotations

import sys
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from fedforget.cli.account import account_app
from fedforget.cli.audit import audit
from fedforget.cli.bench import bench
from fedforget.cli.demo import demo
from fedforget.cli.forget import forget
from fedforget.cli.keys import keys_app
from fedforget.cli.ledger import ledger_app
from fedforget.cli.node import node_app
from fedforget.cli.papers import request_app
from fedforget.cli.reproduce import reproduce
from fedforget.cli.serve import serve
from fedforget.cli.train import train
from fedforget.cli.verify import verify
from fedforget.cli.webhook import webhook_app
from fedforget.cli.work import work
from fedforget.errors import FedForgetError


class Commands(TyperGroup):
    """Typer would end Ctrl-C without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print(
                "Interrupted; what is done is kept, and the same command goes on (train with --resume).",
                file=sys.stderr,
            )
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    help="Make a federated model forget, and show that it did.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
RUNS, LEDGER, PAPER, FLOWER = "Train and forget", "Ledger and console", "The paper's tables, and speed", "Flower nodes"
for panel, commands in (
    (RUNS, (demo, train, forget, audit, verify)), (LEDGER, (serve, work)), (PAPER, (reproduce, bench))
):  # fmt: skip
    for command in commands:
        app.command(rich_help_panel=panel)(command)
for name, group in (
    ("request", request_app), ("ledger", ledger_app), ("keys", keys_app), ("account", account_app),
    ("webhook", webhook_app),
):  # fmt: skip
    app.add_typer(group, name=name, rich_help_panel=LEDGER)
app.add_typer(node_app, name="node", rich_help_panel=FLOWER)


def main(name: str | None = None) -> None:
    """Entry point: an error is one sentence on standard error and exit code 2, an interruption is exit code 130.

    `name`: what the command is called, where that is not the name of the program."""
    try:
        app(prog_name=name)
    except FedForgetError as error:
        Console(stderr=True, highlight=False).print(str(error), style="red", soft_wrap=True, markup=False)
        sys.exit(2)
