"""A Grid of Flower without any network: a message goes straight to the ClientApp of its node, in this process.

`Message()` reads who and where it is from a class of Flower's that is not public. That import stands here alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

RUN, SERVER = 7, 1
Change = Callable[[int, Message], "list[Message]"]
"""(partition-id, the reply) -> the replies that arrive: none, another, or several."""


def through_the_wire(message: Message) -> Message:
    """The message as it comes out of Flower's own serialisation at the other end."""
    children = message.children or {}
    inflated = {name: _inflated(child) for name, child in children.items()}
    copy = Message.inflate(message.deflate(), inflated or None)
    copy.metadata.__dict__["_message_id"] = message.metadata.message_id
    return copy


def _inflated(thing: Any) -> Any:
    children = {name: _inflated(child) for name, child in (thing.children or {}).items()}
    return type(thing).inflate(thing.deflate(), children or None)


class InProcessGrid(Grid):
    """Nodes with random-looking ids in another order than their partitions. `change` tampers with replies; a node in
    `dead` answers as Flower does for a node that is gone, one in `silent` never, one in `gone` is not connected."""

    def __init__(
        self,
        app: ClientApp,
        nodes: int,
        folder: Path | None = None,
        run_config: dict[str, Any] | None = None,
        change: Change = lambda _, reply: [reply],
        node_configs: Sequence[dict[str, Any]] = (),
    ) -> None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, SERVER, 1
        self._app, self._folder, self._run_config, self.change = app, folder, run_config or {}, change
        self._node_configs = node_configs
        self.numbers = {(k * 7919 + 13) % 1009: k for k in range(nodes)}
        self._states: dict[int, RecordDict] = {}
        self._replies: dict[str, list[Message]] = {}
        self.sent: list[tuple[int, Message]] = []
        self.dead: set[int] = set()
        self.silent: set[int] = set()
        self.gone: set[int] = set()

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *words: Any, **more: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return [node for node, number in self.numbers.items() if number not in self.gone]

    def context(self, node: int) -> Context:
        number = self.numbers[node]
        config: dict[str, Any] = {"partition-id": number, "num-partitions": len(self.numbers), "name": f"site {number}"}
        if self._folder is not None:
            config["state-dir"] = str(self._folder / f"site-{number}")
        if self._node_configs:
            config |= self._node_configs[number]
        return Context(RUN, node, config, self._states.setdefault(node, RecordDict()), dict(self._run_config))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            ids.append(message.metadata.message_id)
            number = self.numbers[message.metadata.dst_node_id]
            self.sent.append((number, message))
            if number not in self.silent:
                self._replies[ids[-1]] = self.change(number, self._answer(message, number))
        return ids

    def _answer(self, message: Message, number: int) -> Message:
        arrived = through_the_wire(message)
        if number in self.dead:
            reply = Message(Error(5, "Node Unavailable"), reply_to=arrived)
            reply.metadata.__dict__["_src_node_id"] = SERVER
            return reply
        try:
            return through_the_wire(self._app(arrived, self.context(message.metadata.dst_node_id)))
        except Exception as error:
            return Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=arrived)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [reply for number in message_ids for reply in reversed(self._replies.pop(number, []))]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))
