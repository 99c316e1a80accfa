"""The client's side: message -> task -> reply -> message, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedforget.errors import FedForgetError, InputError
from fedforget.federation.client import Client
from fedforget.federation.seam import thread_count
from fedforget.federation.shards import network_for
from fedforget.federation.tasks import CheckRequests, Reply, Task
from fedforget.flower.messages import (
    QUERY_TYPE,
    TASK_TYPE,
    Answer,
    Description,
    check_task,
    description_content,
    error_content,
    outline,
    read_query,
    read_task,
    read_withdrawal,
    reply_content,
)
from fedforget.flower.node_store import NodeStore, owner_of
from fedforget.params import State
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
        return _answer(message, context, _work, load_client, must_remember)

    @app.query(QUERY_TYPE.partition(".")[2])
    def describe(message: Message, context: Context) -> Message:
        return _answer(message, context, _describe, load_client, must_remember)


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


@dataclass(frozen=True)
class _Node:
    """What a message is answered with."""

    context: Context
    client: Client
    store: NodeStore | None
    must_remember: bool

    @property
    def must_approve(self) -> bool:
        return self.context.node_config.get(APPROVAL) is True

    def own(self, requests: Iterable[ErasureRequest]) -> tuple[ErasureRequest, ...]:
        return tuple(request for request in requests if request.client == self.client.index)

    def check_servable(self, asked: Sequence[ErasureRequest]) -> None:
        """Refuse requests of this client's that its node cannot take, or not yet."""
        if self.store is None and (self.must_remember or self.must_approve):
            raise InputError(no_memory(self.client.index))
        if self.store is not None and self.must_approve:
            self.store.check_approved(asked)


def _answer(
    message: Message,
    context: Context,
    work: Callable[[RecordDict, _Node], RecordDict],
    load_client: LoadClient,
    must_remember: bool,
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
        content = work(message.content, _Node(context, client, store, must_remember))
    except FedForgetError as error:
        content = error_content(number, error)
    return Message(content, reply_to=message)


def _work(content: RecordDict, node: _Node) -> RecordDict:
    task, addressee, state = read_task(content)
    withdrawal = read_withdrawal(content)
    node = replace(node, client=replace(node.client, model=network_for(node.client.model, state)))
    check_task(task, addressee, state, node.client)
    notes: tuple[str, ...] = ()
    if withdrawal is not None:
        check_task(withdrawal, addressee, {}, node.client)
        notes = _run(withdrawal, {}, node).notes
    reply = _run(task, {name: tensor.to(node.client.device) for name, tensor in state.items()}, node)
    return reply_content(replace(reply, notes=(*notes, *reply.notes)))


def _run(task: Task, state: State, node: _Node) -> Reply:
    client, store = node.client, node.store
    asked = node.own(getattr(task, "requests", ()))
    if task.at_target:
        node.check_servable(asked)
    erased = client.erased
    with thread_count(task.threads):
        reply = task.run(state, client)
    if store is not None and task.returns == "model":
        store.begin((*asked, *node.own(getattr(task, "exclude", ()))))
    if client.erased == erased:
        return reply
    notes = (*reply.notes, *client.notes)
    if store is not None:
        store.withdraw(client.erased)
    else:
        notes += (f"Client {client.index} has no state-dir, so it will not remember what it withdrew.",)
    return replace(reply, notes=notes)


def _describe(content: RecordDict, node: _Node) -> RecordDict:
    client = node.client
    name = str(node.context.node_config.get("name") or f"client {client.index}")
    samples = len(client.positions(())[1])
    answers = tuple(_sizes(node, node.own(requests)) for requests in read_query(content))
    model, images = outline(client.model), repr(client.normalisation)
    return description_content(Description(client.index, name, samples, model, images, answers))


def _sizes(node: _Node, asked: tuple[ErasureRequest, ...]) -> Answer:
    """As `CheckRequests` answers."""
    if not asked:
        return None
    try:
        numbers = _run(CheckRequests(seed=0, threads=1, requests=asked), {}, node).numbers
    except FedForgetError as error:
        return error
    return int(numbers["target"]), int(numbers["retained"])
