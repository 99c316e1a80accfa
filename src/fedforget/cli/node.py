"""`fedforget node`: what a Flower node remembers in its state-dir, for the person who runs the node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedforget.cli.terminal import JsonOption, print_result
from fedforget.errors import InputError

if TYPE_CHECKING:
    from fedforget.flower.node_store import Entry, NodeStore

node_app = typer.Typer(help="What a Flower node has withdrawn: list, approve, undo.", no_args_is_help=True)
FolderArgument = Annotated[Path, typer.Argument(help="The node's state-dir.", metavar="STATE_DIR")]
NamesArgument = Annotated[list[str], typer.Argument(help="Names of requests, as `list` shows them.", metavar="NAME...")]


@node_app.command("list")
def list_requests(
    folders: Annotated[list[Path], typer.Argument(help="Nodes' state-dirs.", metavar="STATE_DIR...")],
    as_json: JsonOption = False,
) -> None:
    """What each node has withdrawn and when, and what waits for an approval."""
    values, lines = [], []
    for folder in folders:
        store = _store(folder)
        entries = store.entries
        told = [entry.to_json() for entry in entries]
        values.append({"folder": str(folder), "client": store.client, "requests": told})
        lines += [f"{folder}: client {store.client}", *(f"  {_line(entry)}" for entry in entries)]
        lines += [] if entries else ["  nothing was withdrawn"]
    print_result(as_json, values, lines)


@node_app.command()
def approve(folder: FolderArgument, names: NamesArgument, as_json: JsonOption = False) -> None:
    """Let the node serve requests that wait. They are served when the server asks again."""
    store = _store(folder)
    done = [store.approve(name) for name in names]
    lines = [f"Approved: {entry.request.describe()}. It is served when the server asks again." for entry in done]
    print_result(as_json, [entry.to_json() for entry in done], lines)


@node_app.command()
def undo(
    folder: FolderArgument,
    names: NamesArgument,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also where a model without it may be in use.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take requests back: the data train again from the next round on."""
    store = _store(folder)
    done = [store.undo(name, anyway) for name in names]
    lines = []
    for entry in done:
        stays = " What a server has made of it stays: its models, and what its ledger says." if entry.begun else ""
        lines.append(f"Taken back: {entry.request.describe()}. The data train again from the next round on.{stays}")
    print_result(as_json, [entry.to_json() for entry in done], lines)


def _store(folder: Path) -> NodeStore:
    try:
        from fedforget.flower.node_store import NodeStore, owner_of
    except ModuleNotFoundError as error:
        raise InputError(f"This needs {error.name}; install it with: pip install 'fedforget[flower]'.") from None
    client = owner_of(folder)
    if client is None:
        raise InputError(f"There is no node.json in {folder}; give the state-dir of a node that has answered a server.")
    return NodeStore(folder, client)


STATES = {
    "waiting": "waits for an approval since",
    "approved": "approved, and not asked again since",
    "withdrawn": "withdrawn",
}


def _line(entry: Entry) -> str:
    begun = f", forgotten from {entry.begun} on" if entry.begun else ""
    when = entry.when or "when nobody noted it"
    return f"{entry.name}  {entry.request.describe()}: {STATES[entry.state]} {when}{begun}"
