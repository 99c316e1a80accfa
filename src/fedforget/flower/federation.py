"""A federation of Flower nodes: every task is one message to each client, over Flower's Grid."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

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
from fedforget.flower.messages import TASK_TYPE, Answer, Questions, check_reply, pack, read_reply, task_content
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
        questions: Questions = (),
        device: str | torch.device = "cpu",
        timeout_s: float = 3600.0,
        join_timeout_s: float = 120.0,
        poll_s: float = 0.2,
    ) -> None:
        """Wait until at least `clients` nodes have said who they are; or, where some clients are `needed`, until these
        have, and nobody else comes any more. `questions` are requests that will be checked, which are asked along with
        who a node is: that saves a message. `timeout_s` is how long one task may take, `poll_s` how often we look for
        replies."""
        self._grid = grid
        self.device = torch.device(device)
        self.model = network_of(model).to(self.device)
        self.classes = classes
        self.normalisation = normalisation
        self.timeout_s, self.join_timeout_s, self.poll_s = timeout_s, join_timeout_s, poll_s
        self._members = Members(grid, self.model, normalisation, join_timeout_s, poll_s, questions)
        self._notes = self._members.join(clients, needed)
        """What a person should know; it goes with the next reply."""
        self._answers: dict[tuple[ErasureRequest, ...], Answer] = {}
        """What the clients said of requests of theirs since the last withdrawal: each question costs a message."""
        for client, said in self._members.known.items():
            self._answers |= {_own(asked, client): told for asked, told in zip(questions, said.answers, strict=False)}
        self._withdrawals: dict[int, Withdraw] = {}
        """What clients must note down before their next task; it travels in the same message."""

    @property
    def clients(self) -> Sequence[int]:
        return self._members.clients

    def described(self) -> list[dict[str, Any]]:
        """Every client that is known: its number, its name, and how many samples it trains on."""
        known = (self._members.known[client] for client in self.clients)
        return [{"client": said.client, "name": said.name, "samples": said.samples} for said in known]

    def find(self, name: str | None = None, node_id: int | None = None) -> int:
        """The number of the client with this name, or on this registered node."""
        return self._members.find(name, node_id)

    def check_turned_away(self, client: int) -> None:
        """Say why a client's node takes no part, if that is so."""
        self._members.check_turned_away(client)

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        """As the seam has it; but a withdrawal travels with the next task, whose reply answers for both."""
        asked = sorted(self.clients if to is None else to)
        for client in asked:
            self._members.check_known(client)
        if not asked:
            return
        if isinstance(task, Withdraw):
            self._answers.clear()
            for client in asked:
                before = self._withdrawals.get(client, replace(task, requests=()))
                self._withdrawals[client] = replace(task, requests=(*before.requests, *task.requests))
            return
        answers, away = self._send(task, state, asked)
        notes = tuple(f"{error} The round went on without it." for error in away)
        for note in notes:
            log.warning("%s", note)
        if not isinstance(task, CheckRequests):
            notes, self._notes = (*self._notes, *notes), ()
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
        own = {client: _own(requests, client) for client in asking}
        unheard = [client for client in asking if own[client] not in self._answers]
        for reply in self.ask(CheckRequests(seed=0, threads=1, requests=tuple(requests)), {}, unheard):
            self._answers[own[reply.client]] = int(reply.numbers["target"]), int(reply.numbers["retained"])
        sizes = {}
        for client in asking:
            answer = self._answers[own[client]]
            if isinstance(answer, FedForgetError):
                del self._answers[own[client]]  # another time it may be otherwise
                raise answer
            assert answer is not None, "some request is this client's"
            sizes[client] = TargetSize(*answer)
        others = sum(known.samples for client, known in self._members.known.items() if client not in sizes)
        return check_something_is_left(sizes, others)

    def _send(
        self, task: Task, state: Mapping[str, Tensor], asked: Sequence[int]
    ) -> tuple[dict[int, RecordDict], list[ClientError]]:
        """(the clients' answers, what kept the others from answering); but for training, the first such is raised."""
        self._members.look_around(wait=True)
        where = self._members.nodes
        arrays, ttl = pack(state), self.timeout_s + SPARE_S
        withdrawals, self._withdrawals = self._withdrawals, {}
        apart = [client for client in withdrawals if client not in asked or not where.keys() >= set(asked)]
        for client in apart:  # noted down whatever comes of the task
            self._notes += self._noted(withdrawals.pop(client), client).notes
        messages = {
            client: Message(
                task_content(task, client, state, arrays, withdrawals.get(client)), where[client], TASK_TYPE, ttl=ttl
            )
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

    def _noted(self, withdrawal: Withdraw, client: int) -> Reply:
        """The reply to a withdrawal in a message of its own."""
        answers, _ = self._send(withdrawal, {}, [client])
        return self._read(withdrawal, client, answers[client], self.model)

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


def _own(requests: Sequence[ErasureRequest], client: int) -> tuple[ErasureRequest, ...]:
    return tuple(request for request in requests if request.client == client)
