"""A request, served in an attached app: by the ladder, or by the one method that is named. The log tells of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from flwr.app import ArrayRecord
from torch import nn

from fedforget.errors import ClientError
from fedforget.federation.rounds import Schedule
from fedforget.flower.arrays import arrays_of_state, state_of_arrays
from fedforget.flower.federation import FlowerFederation
from fedforget.flower.own_rounds import OwnRounds
from fedforget.methods import LADDER, Forgetting, forget, method_settings
from fedforget.params import State
from fedforget.requests import ErasureRequest, describe_requests
from fedforget.runs.climb import NOT_DONE, Climb
from fedforget.runs.ladder import climb
from fedforget.runs.told import end_sentence, notes_beside, rung_sentence

log = logging.getLogger("flwr")


@dataclass(frozen=True)
class Waiting:
    """A request that nobody has served yet: the node, as the caller names it, what must go, and how."""

    partition: int | None
    name: str | None
    node_id: int | None
    target: ErasureRequest
    """Of client 0, where the node is not named by its number: that is known only once it is there."""
    method: str
    preset: str | None
    overrides: dict[str, Any] = field(default_factory=dict)

    def addressed(self, federation: FlowerFederation) -> ErasureRequest:
        """The request in the client's own number, or a refusal where nobody of that name is there."""
        client = self.partition
        if client is None:
            client = federation.find(name=self.name, node_id=self.node_id)
        check_there(federation, client)
        return replace(self.target, client=client)


def check_there(federation: FlowerFederation, client: int) -> None:
    """Refuse a request of a client that is away; it may come back."""
    if client not in federation.clients:
        federation.check_turned_away(client)
        there = ", ".join(map(str, federation.clients))
        raise ClientError(client, f"is not connected; there are the clients {there}.")


@dataclass(frozen=True)
class Service:
    """Who is there, and how the app's arrays are its model's."""

    federation: FlowerFederation
    model: nn.Module
    names: dict[str, str]
    schedule: Schedule
    own: OwnRounds | None
    """The app's own training, where it is one."""

    def state(self, arrays: ArrayRecord) -> State:
        return state_of_arrays(self.model, arrays, self.names)

    def arrays(self, state: State, like: ArrayRecord) -> ArrayRecord:
        return arrays_of_state(state, like, self.names)

    def forget(
        self,
        requests: Sequence[ErasureRequest],
        state: State,
        served: Sequence[ErasureRequest],
        method: str,
        preset: str | None,
        settings: dict[str, Any],
    ) -> Forgetting:
        """What came of it; the log says how it went on."""
        about = describe_requests(requests)
        log.info("To forget: %s.", about)
        if method != LADDER:
            made = forget(self.federation, state, requests, self.schedule, method, preset, served=served, **settings)
            log.warning("Nothing checked what %s forgot, or what it spoiled.", method)
            log.info(
                "Forgot %s with %s (%s): %.1f s, %.2f MB sent",
                about, made.method, made.preset, made.cost.total_seconds, made.cost.bytes / 1e6,
            )  # fmt: skip
            for note in made.notes:
                log.warning("%s", note)
            return made
        climbed = climb(
            self.federation, state, requests, self.schedule, method_settings(LADDER, preset, **settings)[1],
            served=served, say=partial(log.info, "%s"), training=None if self.own is None else self.own.train,
        )  # fmt: skip
        tell = log.warning if climbed.word in NOT_DONE else log.info
        for sentence in (
            *map(rung_sentence, climbed.rungs),
            f"{about}: {end_sentence(climbed.rungs)}",
            *notes_beside(climbed.rungs, climbed.notes),
        ):
            tell("%s", sentence)
        log.info("%.1f s, %.2f MB sent", climbed.cost.total_seconds, climbed.cost.bytes / 1e6)
        return climbed


def undone(made: Forgetting) -> str:
    """What is said of a request whose target is still in the model; empty of any other."""
    if isinstance(made, Climb) and made.word in NOT_DONE:
        return f"{describe_requests(made.requests)}: {end_sentence(made.rungs)}"
    return ""
