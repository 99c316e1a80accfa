"""Who is in a Flower federation: which node is which client, and whom to wait for."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Iterable, Sequence

from flwr.app import Message
from flwr.serverapp import Grid
from torch import nn

from fedforget.data.samples import Normalisation
from fedforget.errors import ClientError, FedForgetError, InputError, NotYetError, RefusedError
from fedforget.flower.messages import QUERY_TYPE, Description, Questions, outline, query_content, read_description

log = logging.getLogger(__name__)
GONE = 5
"""Flower's code for a node that no longer sends heartbeats."""
PASSING = (3, 4, GONE)
"""Flower's codes for what may be otherwise next time: a message or a reply was lost, or the node is away. Every other
code says that the app there cannot do it."""
SPARE_S = 60.0
"""How much longer than we Flower waits for an answer: our own sentence is the one that says who was too slow."""
PATIENCE_S = 60.0
"""How long we wait for others after the last one came, once all that are needed are there: for so long Flower may turn
away a node that restarts with its key."""
LONGEST_REASON = 4000


class Members:
    """The nodes of a `grid`. Each is asked once who it is, and answers with its client's number: node ids mean nothing.

    A node that says it cannot take part is not waited for: where nobody else can take its place, what it said is the
    error. One that is away, or whose answer was lost, is asked again."""

    def __init__(
        self, grid: Grid, model: nn.Module, normalisation: Normalisation, join_timeout_s: float, poll_s: float,
        questions: Questions = (),
    ) -> None:  # fmt: skip
        """`questions` travel along with the question who a node is; the answers are in `known`."""
        self._question = query_content(questions)
        self._grid, self._outline, self._normalisation = grid, outline(model), normalisation
        self._timeout_s, self._poll_s = join_timeout_s, poll_s
        self._patience_s = min(PATIENCE_S, join_timeout_s)
        self.known: dict[int, Description] = {}
        """The last description of every client ever met."""
        self.nodes: dict[int, int] = {}
        """The node of each client that is connected."""
        self._asked: dict[str, tuple[int, float]] = {}
        """(node, when) of each question that is not answered yet, by its message."""
        self._turned_away: dict[int, tuple[int, str]] = {}
        """(its client's number or -1, why) of each connected node that takes no part."""
        self._broken: set[int] = set()
        """Those of them whose app broke down. Nobody knows whether it would again."""
        self._joining = True

    @property
    def clients(self) -> Sequence[int]:
        return sorted(self.known)

    def join(self, clients: int, needed: Collection[int]) -> tuple[str, ...]:
        """Wait for `clients` clients. If some are `needed`, the others are waited for only while they come in; then a
        note says who was there."""
        deadline = time.monotonic() + self._timeout_s
        met, heard = -1, time.monotonic()
        while True:
            self.look_around()
            if len(self.known) != met:
                met, heard = len(self.known), time.monotonic()
            enough = set(needed) <= self.nodes.keys() if needed else met >= clients
            if not self._asked and enough and met + len(self._turned_away) >= clients:
                break
            if enough and time.monotonic() >= min(heard + self._patience_s, deadline):
                break
            if not enough:
                self._refuse(clients, needed)
            if time.monotonic() >= deadline:
                raise FedForgetError(self._too_few(clients, needed))
            time.sleep(self._poll_s)
        self._joining = False
        if met >= clients:
            return ()
        note = f"{met} of {clients} clients were there ({_listed(self.clients)}); it went on without the others."
        log.warning("%s", note)
        return (note,)

    def _refuse(self, clients: int, needed: Collection[int]) -> None:
        """What a node said, as soon as it cannot go on without it."""
        for client in needed:
            if client not in self.nodes and not self._asked:
                self.check_turned_away(client)
        if not needed and self._turned_away and len(self.known) + len(self._asked) < clients:
            raise self._kind(*self._turned_away)(
                f"{len(self.known)} of {clients} clients can take part.{self._why_not()}"
            )

    def check_turned_away(self, client: int) -> None:
        """Raise what the node of this client said, or else one that did not say whose it is."""
        for whose in (client, -1):
            for node, (number, why) in self._turned_away.items():
                if number == whose:
                    raise self._kind(node)(_takes_no_part(node, number, why))

    def _kind(self, *nodes: int) -> type[InputError]:
        return NotYetError if self._broken.intersection(nodes) else InputError

    def _too_few(self, clients: int, needed: Collection[int]) -> str:
        silent = sorted(node for node, _ in self._asked.values())
        missing = _listed(sorted(set(needed) - self.nodes.keys()))
        said = f"{len(self.known)} of {clients} clients joined within {self._timeout_s:g} s"
        if missing:
            said = f"Client {missing} did not join within {self._timeout_s:g} s"
        if silent:
            said += f"; connected, but silent so far: node {_listed(silent)}."
        elif missing:
            said += "; start its SuperNode."
        else:
            said += "; start the other SuperNodes, or ask for fewer clients."
        here = f" Here: client {_listed(self.clients)}." if self.known else ""
        return said + here + self._why_not()

    def _why_not(self) -> str:
        """Every reason that was given, once."""
        first = {why: _takes_no_part(node, client, why) for node, (client, why) in reversed(self._turned_away.items())}
        reasons = [why for _, why in self._turned_away.values()]
        more = {why: f" So do {reasons.count(why) - 1} more." if reasons.count(why) > 1 else "" for why in first}
        return "".join(f" {said}{more[why]}" for why, said in sorted(first.items()))

    def find(self, name: str | None = None, node_id: int | None = None) -> int:
        """The number of the client with this name, or on this registered node."""
        self.look_around(wait=True)
        found = [
            client for client, node in sorted(self.nodes.items())
            if node == node_id or (name and self.known[client].name == name)
        ]  # fmt: skip
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(f"Clients {_listed(found)} are all named '{name}'; name one by its partition or node_id.")
        for node, told in self._turned_away.items():
            if node == node_id or told[0] < 0:
                raise self._kind(node)(_takes_no_part(node, *told))
        wanted = f"named '{name}'" if name else f"on node {node_id}"
        names = _listed(self.known[client].name for client in self.clients)
        raise InputError(f"No client {wanted} is connected; there are {names}.")

    def check_known(self, client: int) -> None:
        """Refuse a client that nobody has met."""
        if client in self.known:
            return
        self.check_turned_away(client)
        numbers = self.clients
        there = f"the clients {_listed(numbers)}"
        if numbers == list(range(len(numbers))):
            there = f"clients 0 to {len(numbers) - 1}"
        raise InputError(f"Client {client} does not exist; this federation has {there}.")

    def look_around(self, wait: bool = False) -> None:
        """Ask the nodes that are new who they are, forget the ones that left, and hear what has come in. `wait`: until
        all have answered, though not for long.

        Two nodes for one client are an error when the federation starts. Later, a node that restarted without a key
        comes back under a new id before Flower notices that the old one is gone: then the new one takes its place."""
        present = set(self._grid.get_node_ids())
        self.nodes = {client: node for client, node in self.nodes.items() if node in present}
        self._turned_away = {node: told for node, told in self._turned_away.items() if node in present}
        self._asked = {message: asked for message, asked in self._asked.items() if asked[0] in present}
        met = {*self.nodes.values(), *self._turned_away, *(node for node, _ in self._asked.values())}
        ttl = self._timeout_s + SPARE_S
        questions = [Message(self._question, node, QUERY_TYPE, ttl=ttl) for node in sorted(present - met)]
        taken = set(self._grid.push_messages(questions)) if questions else set()
        for question in questions:
            if question.metadata.message_id in taken:
                self._asked[question.metadata.message_id] = (question.metadata.dst_node_id, time.monotonic())
        self._hear()
        while wait and any(time.monotonic() < asked + self._patience_s for _, asked in self._asked.values()):
            time.sleep(self._poll_s)
            self._hear()

    def _hear(self) -> None:
        if not self._asked:
            return
        for answer in self._grid.pull_messages(list(self._asked)):
            node, _ = self._asked.pop(answer.metadata.reply_to_message_id, (None, 0.0))
            if node is not None and not (answer.has_error() and answer.error.code in PASSING):
                self._meet(node, answer)

    def _meet(self, node: int, answer: Message) -> None:
        number, said = -1, None
        self._broken.discard(node)
        try:
            if answer.has_error():
                self._broken.add(node)
                raise RefusedError(reason_of(answer))
            said = read_description(answer.content)
            number = said.client
            self._check(said)
        except FedForgetError as error:
            number = error.client if isinstance(error, ClientError) else number
            why = error.reason if isinstance(error, ClientError) else str(error)
            self._turned_away[node] = (number, why)
            log.warning("%s", _takes_no_part(node, number, why))
            return
        twin = self.nodes.get(said.client)
        if twin is not None and self._joining:
            raise FedForgetError(
                f"Two nodes say they are client {said.client}; give each its own partition-id and its own state-dir."
            )
        if twin is not None:
            log.warning("Client %s is now on node %s, no longer on node %s.", said.client, node, twin)
            self._turned_away[twin] = (said.client, f"client {said.client} is on node {node} now.")
        self.nodes[said.client], self.known[said.client] = node, said

    def _check(self, said: Description) -> None:
        """Refuse a node whose model, or whose way to prepare images, is not the server's."""
        theirs, ours = list(said.model), self._outline
        for place in range(max(len(theirs), len(ours))):
            its, own = (lines[place] if place < len(lines) else "nothing more" for lines in (theirs, ours))
            if its != own:
                raise RefusedError(f"it has another model than the server: {its}, where the server's has {own}.")
        if said.images != repr(self._normalisation):
            raise RefusedError(f"it prepares images with {said.images}, the server with {self._normalisation}.")


def _takes_no_part(node: int, client: int, why: str) -> str:
    who = f"Client {client} (node {node})" if client >= 0 else f"Node {node}"
    return f"{who} takes no part: {why.rstrip('.')}."


def _listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things))


def reason_of(answer: Message) -> str:
    """Flower's error in one line: `<class 'X'>:<'text'>` becomes the text."""
    if answer.error.code == GONE:
        return "went away: its node no longer gives Flower a sign of life."
    text = " ".join((answer.error.reason or "").split())
    inner = re.search(r":<'(.*)'>$", text)
    said = (inner.group(1) if inner else text) or "no reason was given"
    return f"answered with an error (code {answer.error.code}): {said[:LONGEST_REASON].rstrip('.')}."
