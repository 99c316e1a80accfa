"""The client's side: message -> task -> reply -> message, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedforget.errors import FedForgetError, InputError
from fedforget.federation.client import Client
from fedforget.federation.seam import thread_count
from fedforget.federation.shards import network_for
from fedforget.flower.messages import (
    QUERY_TYPE,
    TASK_TYPE,
    Description,
    check_task,
    description_content,
    error_content,
    outline,
    read_task,
    reply_content,
)
from fedforget.flower.node_store import NodeStore, owner_of
from fedforget.requests import ErasureRequest

APPROVAL = "approval"
"""The entry of a node's config that lets every request wait until the node's operator has approved it."""
LoadClient = Callable[[Context], Client]
"""Makes this node's client, with its own data and a model to work in, from the node's and the run's config."""


def build_client_app(load_client: LoadClient) -> ClientApp:
    """A ClientApp that does fedforget's tasks for the client that `load_client` makes."""
    app = ClientApp()
    register(app, load_client)
    return app


def register(app: ClientApp, load_client: LoadClient, *, must_remember: bool = False) -> None:
    """Teach an app our two message types, beside whatever else it does. `must_remember`: a node without a folder to
    remember in takes no request."""

    @app.train(TASK_TYPE.partition(".")[2])
    def do_task(message: Message, context: Context) -> Message:
        def work(client: Client, store: NodeStore | None) -> RecordDict:
            must_approve = context.node_config.get(APPROVAL) is True
            return _run(message.content, client, store, must_remember, must_approve)

        return _answer(message, context, work, load_client)

    @app.query(QUERY_TYPE.partition(".")[2])
    def describe(message: Message, context: Context) -> Message:
        return _answer(message, context, lambda client, _: _describe(client, context), load_client)


def client_number(context: Context) -> int:
    """Which client this node is: the `partition-id` of its config. Without one, the client that its own `state-dir`
    belongs to; a new folder is that of its node id, which a node with a key keeps."""
    number = context.node_config.get("partition-id")
    if number is None:
        folder = context.node_config.get("state-dir")
        owner = owner_of(Path(str(folder))) if folder else None
        return context.node_id if owner is None else owner
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise InputError(f"The partition-id in the node's config must be a number from 0, but it is {number!r}.")
    return number


def open_store(context: Context, client: int) -> NodeStore | None:
    """The files of this client: in the node's own `state-dir`, or below the run's where a whole federation shares one
    machine. None where nobody named a folder: then nothing outlives a task."""
    own, shared = context.node_config.get("state-dir"), context.run_config.get("state-dir")
    if own:
        store = NodeStore(Path(str(own)), client)
        if "partition-id" not in context.node_config:
            store.claim()
        return store
    return NodeStore(Path(str(shared)) / f"client-{client:03d}", client) if shared else None


def no_memory(client: int) -> str:
    """Why a node cannot keep withdrawn data out of an app's own training."""
    return (
        f"Client {client} has no state-dir, so it cannot know what it has withdrawn; "
        "name a folder in the node's config, or in the run's for a simulation."
    )


def _answer(
    message: Message, context: Context, work: Callable[[Client, NodeStore | None], RecordDict], load_client: LoadClient
) -> Message:
    """The reply to a message. Our own errors travel as what they are; any other is left to Flower to report."""
    number = -1
    try:
        number = client_number(context)
        client = load_client(context)
        if client.index != number:
            raise InputError(f"This node's data are client {client.index}'s, but this node is client {number}.")
        store = open_store(context, number)
        client = replace(client, erased=store.withdrawn, kept=store.kept) if store else replace(client, kept={})
        content = work(client, store)
    except FedForgetError as error:
        content = error_content(number, error)
    return Message(content, reply_to=message)


def _run(
    content: RecordDict, client: Client, store: NodeStore | None, must_remember: bool, must_approve: bool
) -> RecordDict:
    task, addressee, state = read_task(content)
    client = replace(client, model=network_for(client.model, state))
    check_task(task, addressee, state, client)
    if (must_remember or must_approve) and store is None and task.at_target:
        raise InputError(no_memory(client.index))
    asked = _own(getattr(task, "requests", ()), client)
    if store is not None and must_approve and task.at_target:
        store.check_approved(asked)
    state = {name: tensor.to(client.device) for name, tensor in state.items()}
    erased = client.erased
    with thread_count(task.threads):
        reply = task.run(state, client)
    if store is not None and task.returns == "model":
        store.begin((*asked, *_own(getattr(task, "exclude", ()), client)))
    if client.erased != erased:
        reply = replace(reply, notes=(*reply.notes, *client.notes))
        if store is None:
            note = f"Client {client.index} has no state-dir, so it will not remember what it withdrew."
            reply = replace(reply, notes=(*reply.notes, note))
        else:
            store.withdraw(client.erased)
    return reply_content(reply)


def _own(requests: Iterable[ErasureRequest], client: Client) -> tuple[ErasureRequest, ...]:
    return tuple(request for request in requests if request.client == client.index)


def _describe(client: Client, context: Context) -> RecordDict:
    name = str(context.node_config.get("name") or f"client {client.index}")
    samples = len(client.positions(())[1])
    said = Description(client.index, name, samples, outline(client.model), repr(client.normalisation))
    return description_content(said)
