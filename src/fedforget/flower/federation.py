"""A federation of Flower nodes: every task is one message to each client, over Flower's Grid."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from torch import Tensor, nn

from fedforget.data.samples import Normalisation
from fedforget.errors import ClientError, FedForgetError, InputError, RefusedError
from fedforget.federation.seam import TargetSize, check_something_is_left
from fedforget.federation.shards import network_for
from fedforget.federation.starts import network_of
from fedforget.federation.tasks import CheckRequests, Reply, Task, Train, Withdraw
from fedforget.flower.members import SPARE_S, Members, reason_of
from fedforget.flower.messages import TASK_TYPE, check_reply, pack, read_reply, task_content
from fedforget.requests import ErasureRequest

log = logging.getLogger(__name__)


class FlowerFederation:
    """The seam (`federation.seam.Federation`) over Flower. `model` is the server's own workspace.

    Replies come in ascending order of the clients, whatever their nodes (`members`), so a sum has the same bits on
    every engine.

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
        needed: Collection[int] = (),
        device: str | torch.device = "cpu",
        timeout_s: float = 3600.0,
        join_timeout_s: float = 120.0,
        poll_s: float = 0.2,
    ) -> None:
        """Wait until at least `clients` nodes have said who they are; or, where some clients are `needed`, until these
        have, and nobody else comes any more. `timeout_s` is how long one task may take, `poll_s` how often we look for
        replies."""
        self._grid = grid
        self.device = torch.device(device)
        self.model = network_of(model).to(self.device)
        self.classes = classes
        self.normalisation = normalisation
        self.timeout_s, self.join_timeout_s, self.poll_s = timeout_s, join_timeout_s, poll_s
        self._members = Members(grid, self.model, normalisation, join_timeout_s, poll_s)
        self._sizes: dict[tuple[ErasureRequest, ...], TargetSize] = {}
        """What the clients said of requests of theirs since the last withdrawal: each question costs a message."""
        self._note = self._members.join(clients, needed)
        """Who was not waited for; it goes with the first reply."""

    @property
    def clients(self) -> Sequence[int]:
        return self._members.clients

    def find(self, name: str | None = None, node_id: int | None = None) -> int:
        """The number of the client with this name, or on this registered node."""
        return self._members.find(name, node_id)

    def check_turned_away(self, client: int) -> None:
        """Say why a client's node takes no part, if that is so."""
        self._members.check_turned_away(client)

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        asked = sorted(self.clients if to is None else to)
        for client in asked:
            self._members.check_known(client)
        if not asked:
            return
        if isinstance(task, Withdraw):
            self._sizes.clear()
        answers, away = self._send(task, state, asked)
        notes = tuple(f"{error} The round went on without it." for error in away)
        for note in notes:
            log.warning("%s", note)
        if self._note and not isinstance(task, CheckRequests):
            notes, self._note = (self._note, *notes), ""
        if not answers:
            raise FedForgetError(f"Nobody answered, so there is nothing to go on with: {away[0]}")
        for client in sorted(answers):
            reply = self._read(task, client, answers.pop(client), network_for(self.model, state))
            yield replace(reply, notes=(*reply.notes, *notes))
            notes = ()

    def check(self, requests: Sequence[ErasureRequest]) -> dict[int, TargetSize]:
        if not requests:
            raise InputError("No erasure request was given; name at least one target.")
        asking = sorted({request.client for request in requests})
        for client in asking:
            self._members.check_known(client)
        own = {client: tuple(request for request in requests if request.client == client) for client in asking}
        unheard = [client for client in asking if own[client] not in self._sizes]
        for reply in self.ask(CheckRequests(seed=0, threads=1, requests=tuple(requests)), {}, unheard):
            size = TargetSize(int(reply.numbers["target"]), int(reply.numbers["retained"]))
            self._sizes[own[reply.client]] = size
        sizes = {client: self._sizes[own[client]] for client in asking}
        others = sum(known.samples for client, known in self._members.known.items() if client not in sizes)
        return check_something_is_left(sizes, others)

    def _send(
        self, task: Task, state: Mapping[str, Tensor], asked: Sequence[int]
    ) -> tuple[dict[int, RecordDict], list[ClientError]]:
        """(the clients' answers, what kept the others from answering); but for training, the first such is raised."""
        self._members.look_around(wait=True)
        where = self._members.nodes
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
                    yield whom, answer.content if answer.has_content() else reason_of(answer)
            if waiting and time.monotonic() >= deadline:
                break
            if waiting:
                time.sleep(self.poll_s)
        for whom in waiting.values():
            yield whom, f"did not answer within {timeout_s:g} s."

    def _read(self, task: Task, client: int, content: RecordDict, sent: nn.Module) -> Reply:
        try:
            reply = read_reply(content, client)
        except RefusedError as error:
            raise ClientError(client, f"sent a reply that cannot be accepted: {error}") from None
        except InputError as error:
            if isinstance(task, CheckRequests) or f"client {client}" in str(error).lower():
                raise
            raise ClientError(client, f"refused: {error}") from None
        check_reply(task, reply, sent)
        if self.device.type != "cpu":
            reply = replace(reply, tensors={name: t.to(self.device) for name, t in reply.tensors.items()})
        return reply
