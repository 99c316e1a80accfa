"""A federation of Flower nodes: every task is one message to each client, over Flower's Grid."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from torch import Tensor, nn

from fedforget.data.samples import Normalisation
from fedforget.errors import ClientError, FedForgetError, InputError, RefusedError
from fedforget.federation.seam import TargetSize, check_something_is_left
from fedforget.federation.starts import network_of
from fedforget.federation.tasks import CheckRequests, Reply, Task, Train, Withdraw
from fedforget.flower.messages import (
    QUERY_TYPE,
    TASK_TYPE,
    Description,
    check_reply,
    outline,
    pack,
    read_description,
    read_reply,
    task_content,
)
from fedforget.requests import ErasureRequest

log = logging.getLogger(__name__)
GONE = 5
"""Flower's code for a node that no longer sends heartbeats."""
SPARE_S = 60.0
"""How much longer than we Flower waits for an answer: our own sentence is the one that says who was too slow."""


class FlowerFederation:
    """The seam (`federation.seam.Federation`) over Flower. `model` is the server's own workspace.

    Node ids mean nothing: each node is asked once who it is, and answers with its client's number (the `partition-id`
    of its node config). Replies come in ascending order of the clients, so a sum has the same bits on every engine.

    A round of training goes on without a client that is away or breaks down; for any other task such a client is a
    `ClientError` by name. What a client says itself (a refusal, a divergence) is raised as it was raised there, and a
    number that is not finite stops everything. Nothing is applied by halves: the caller's model is never touched."""

    def __init__(
        self,
        grid: Grid,
        model: nn.Module,
        classes: int,
        normalisation: Normalisation,
        *,
        clients: int = 1,
        device: str | torch.device = "cpu",
        timeout_s: float = 3600.0,
        join_timeout_s: float = 120.0,
        poll_s: float = 0.2,
    ) -> None:
        """Wait until at least `clients` nodes have said who they are. `timeout_s` is how long one task may take,
        `poll_s` how often we look for replies."""
        self._grid = grid
        self.device = torch.device(device)
        self.model = network_of(model).to(self.device)
        self.classes = classes
        self.normalisation = normalisation
        self.timeout_s, self.join_timeout_s, self.poll_s = timeout_s, join_timeout_s, poll_s
        self._nodes: dict[int, Description | None] = {}
        """What each node said; None for one that is no client of ours."""
        self._known: dict[int, Description] = {}
        """The last description of every client ever met."""
        self._turned_away = ""
        self._sizes: dict[tuple[ErasureRequest, ...], TargetSize] = {}
        """What the clients said of requests of theirs since the last withdrawal: each question costs a message."""
        self._join(clients)

    @property
    def clients(self) -> Sequence[int]:
        return sorted(self._known)

    def find(self, name: str | None = None, node_id: int | None = None) -> int:
        """The number of the client with this name, or on this registered node."""
        self._look_around()
        for node, description in self._nodes.items():
            if description is not None and (node == node_id or (name and description.name == name)):
                return description.client
        names = ", ".join(self._known[client].name for client in self.clients)
        wanted = f"named '{name}'" if name else f"on node {node_id}"
        raise InputError(f"No client {wanted} is connected; there are {names}.")

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        asked = sorted(self.clients if to is None else to)
        for client in asked:
            self._check_known(client)
        if not asked:
            return
        if isinstance(task, Withdraw):
            self._sizes.clear()
        answers, away = self._send(task, state, asked)
        notes = tuple(f"{error} The round went on without it." for error in away)
        for note in notes:
            log.warning("%s", note)
        if not answers:
            raise FedForgetError(f"Nobody answered, so there is nothing to go on with: {away[0]}")
        for client in sorted(answers):
            reply = self._read(task, client, answers.pop(client))
            yield replace(reply, notes=(*reply.notes, *notes))
            notes = ()

    def check(self, requests: Sequence[ErasureRequest]) -> dict[int, TargetSize]:
        if not requests:
            raise InputError("No erasure request was given; name at least one target.")
        asking = sorted({request.client for request in requests})
        for client in asking:
            self._check_known(client)
        own = {client: tuple(request for request in requests if request.client == client) for client in asking}
        unheard = [client for client in asking if own[client] not in self._sizes]
        for reply in self.ask(CheckRequests(seed=0, threads=1, requests=tuple(requests)), {}, unheard):
            size = TargetSize(int(reply.numbers["target"]), int(reply.numbers["retained"]))
            self._sizes[own[reply.client]] = size
        sizes = {client: self._sizes[own[client]] for client in asking}
        others = sum(known.samples for client, known in self._known.items() if client not in sizes)
        return check_something_is_left(sizes, others)

    def _check_known(self, client: int) -> None:
        if client not in self._known:
            numbers = self.clients
            there = f"the clients {', '.join(map(str, numbers))}"
            if numbers == list(range(len(numbers))):
                there = f"clients 0 to {len(numbers) - 1}"
            raise InputError(f"Client {client} does not exist; this federation has {there}.")

    def _send(
        self, task: Task, state: Mapping[str, Tensor], asked: Sequence[int]
    ) -> tuple[dict[int, RecordDict], list[ClientError]]:
        """(the clients' answers, what kept the others from answering); but for training, the first such is raised."""
        self._look_around()
        where = {said.client: node for node, said in self._nodes.items() if said is not None}
        arrays, ttl = pack(state), self.timeout_s + SPARE_S
        messages = {
            client: Message(task_content(task, client, state, arrays), where[client], TASK_TYPE, ttl=ttl)
            for client in asked
            if client in where
        }
        away = [ClientError(client, "is not connected.") for client in asked if client not in where]
        if away and not isinstance(task, Train):
            raise away[0]
        answers: dict[int, RecordDict] = {}
        for client, answer in self._exchange(messages, self.timeout_s):
            if isinstance(answer, RecordDict):
                answers[client] = answer
                continue
            away.append(ClientError(client, answer))
            if not isinstance(task, Train):
                raise away[-1]
        return answers, sorted(away, key=lambda error: error.client)

    def _exchange(self, messages: Mapping[int, Message], timeout_s: float) -> Iterator[tuple[int, RecordDict | str]]:
        """(whom, its answer or what went wrong) for each message, as they come in.

        An error names the message it answers; the node it claims to be from is the SuperLink itself where a node died.
        What answers none of these messages, or one that is answered already, is ignored."""
        if not messages:
            return
        sent = set(self._grid.push_messages(list(messages.values())))
        waiting = {message.metadata.message_id: whom for whom, message in messages.items()}
        for lost in [number for number in waiting if number not in sent]:
            yield waiting.pop(lost), "could not be reached: Flower did not take the message."
        deadline = time.monotonic() + timeout_s
        while waiting:
            for answer in self._grid.pull_messages(list(waiting)):
                whom = waiting.pop(answer.metadata.reply_to_message_id, None)
                if whom is not None:
                    yield whom, answer.content if answer.has_content() else _reason(answer)
            if waiting and time.monotonic() >= deadline:
                break
            if waiting:
                time.sleep(self.poll_s)
        for whom in waiting.values():
            yield whom, f"did not answer within {timeout_s:g} s."

    def _read(self, task: Task, client: int, content: RecordDict) -> Reply:
        try:
            reply = read_reply(content, client)
        except RefusedError as error:
            raise ClientError(client, f"sent a reply that cannot be accepted: {error}") from None
        except InputError as error:
            if isinstance(task, CheckRequests) or f"client {client}" in str(error).lower():
                raise
            raise ClientError(client, f"refused: {error}") from None
        check_reply(task, reply, self.model)
        if self.device.type != "cpu":
            reply = replace(reply, tensors={name: t.to(self.device) for name, t in reply.tensors.items()})
        return reply

    def _join(self, clients: int) -> None:
        deadline = time.monotonic() + self.join_timeout_s
        self._look_around(joining=True)
        while len(self._known) < clients:
            if time.monotonic() >= deadline:
                here = f" Here: client {', '.join(map(str, self.clients))}." if self._known else ""
                raise FedForgetError(
                    f"{len(self._known)} of {clients} clients joined within {self.join_timeout_s:g} s; "
                    f"start the other SuperNodes, or ask for fewer clients.{here}{self._turned_away}"
                )
            time.sleep(self.poll_s)
            self._look_around(joining=True)

    def _look_around(self, joining: bool = False) -> None:
        """Ask the nodes that are new who they are, and forget the ones that left.

        Two nodes for one client are an error when the federation starts. Later, a node that restarted without a key
        comes back under a new id before Flower notices that the old one is gone: then the new one takes its place."""
        present = set(self._grid.get_node_ids())
        self._nodes = {node: said for node, said in self._nodes.items() if node in present}
        messages = {
            node: Message(RecordDict(), node, QUERY_TYPE, ttl=self.join_timeout_s + SPARE_S)
            for node in sorted(present - self._nodes.keys())
        }
        for node, answer in self._exchange(messages, self.join_timeout_s):
            said = self._nodes[node] = self._describe(node, answer)
            if said is None:
                continue
            twin = next((n for n, d in self._nodes.items() if d and d.client == said.client and n != node), None)
            if twin is not None and joining:
                raise FedForgetError(f"Two nodes say they are client {said.client}; give each its own partition-id.")
            if twin is not None:
                log.warning("Client %s is now on node %s, no longer on node %s.", said.client, node, twin)
                self._nodes[twin] = None
            self._known[said.client] = said

    def _describe(self, node: int, answer: RecordDict | str) -> Description | None:
        """What a node said of itself; None, and a line in the log, for a node that cannot take part."""
        try:
            if isinstance(answer, str):
                raise RefusedError(answer)
            said = read_description(answer)
            if said.model != outline(self.model):
                raise RefusedError(f"client {said.client} has another model than the server")
            if said.images != repr(self.normalisation):
                raise RefusedError(
                    f"client {said.client} prepares images with {said.images}, the server with {self.normalisation}"
                )
        except FedForgetError as error:
            log.warning("Node %s takes no part: %s", node, error)
            self._turned_away = f" Node {node} takes no part: {error}"
            return None
        return said


def _reason(answer: Message) -> str:
    """Flower's error in one line: `<class 'X'>:<'text'>` becomes the text."""
    if answer.error.code == GONE:
        return "went away: its node no longer gives Flower a sign of life."
    text = " ".join((answer.error.reason or "").split())
    inner = re.search(r":<'(.*)'>$", text)
    said = (inner.group(1) if inner else text) or "no reason was given"
    return f"answered with an error (code {answer.error.code}): {said[:300].rstrip('.')}."
