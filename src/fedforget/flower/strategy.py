"""Forgetting in a Flower app that is there already, the server's side: a wrapper around whatever strategy it has.

    forget = Forget(strategy, Net, lr=lr)
    forget.request(partition=0, label=3)
    result = forget.start(grid, arrays, num_rounds=3)
    forget.check_served()

`start` serves what is waiting before it begins, and what comes later before its next round."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

from fedforget.data.samples import Normalisation
from fedforget.errors import ClientError, FedForgetError, InputError
from fedforget.federation.rounds import Schedule
from fedforget.federation.shards import refuse_shards
from fedforget.federation.starts import network_of
from fedforget.flower.federation import FlowerFederation
from fedforget.flower.memories import check_memories, renew_memories
from fedforget.methods import LADDER, RUNGS, Forgetting, check_history, check_servable, forget, method_settings
from fedforget.params import State, first_non_finite
from fedforget.requests import ErasureRequest

log = logging.getLogger("flwr")
NOT_LEADING = (
    "A strategy around Forget, or a loop of your own, would go on from the model of before, so no request can be "
    "served in its rounds; put Forget outermost, or call its serve between two starts."
)
NO_CLIMB = (
    "An app of your own does not climb the ladder: the check between two rungs needs held-out data, and its sites name "
    f"none; choose one rung: {', '.join(RUNGS)}."
)


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
        elif client not in federation.clients:
            federation.check_turned_away(client)
            there = ", ".join(map(str, federation.clients))
            raise ClientError(client, f"is not connected; there are the clients {there}.")
        return replace(self.target, client=client)


class Forget(Strategy):
    """Any strategy, and erasure requests served after or between its rounds, which it runs as ever.

    `model` makes the app's network, and a retrain begins as it makes it; give `initial`, the arrays that the training
    began from, where they were others, such as pretrained ones. `training` says how the app trains, in the words of
    `Schedule` (lr, momentum, batch_size, epochs, seed, threads): methods train on the retained data for a moment, and
    should do as the app does.
    `clients` is how many nodes to wait for before a request is served.

    A request that fails costs nothing but itself. `serve` raises what went wrong; `start` logs it, goes on training
    with the model as it was, and tries again before the next round. The request stays in `waiting` until it is served
    or `waiting.clear()` gives it up, and `check_served`, at the end of the app, raises the `failure` of one that still
    waits: so no run ends well that has not forgotten. What came of the ones that were served, with cost and notes, is
    in `served`. A method that needs the clients' models of training is refused: they are not kept.

    What the inner strategy remembers of the model, such as momentum, begins anew after a request (`memories.py`)."""

    def __init__(
        self,
        strategy: Strategy,
        model: Callable[[], nn.Module],
        *,
        clients: int = 1,
        device: str | torch.device = "cpu",
        timeout_s: float = 3600.0,
        join_timeout_s: float = 120.0,
        initial: ArrayRecord | None = None,
        **training: Any,
    ) -> None:
        self.strategy = strategy
        self.waiting: list[Waiting] = []
        self.served: list[Forgetting] = []
        self.failure: FedForgetError | None = None
        self.arrays: ArrayRecord | None = None
        self._model, self._initial, self._schedule = model, initial, Schedule(**training)
        self._federation: dict[str, Any] = {
            "clients": clients, "device": device, "timeout_s": timeout_s, "join_timeout_s": join_timeout_s,
        }  # fmt: skip
        self._unaggregated: ArrayRecord | None = None
        self._leads = False
        """Whether the rounds are those of our own `start`, which goes on from the model that a request leaves."""
        self._tried: list[Waiting] = []
        """What could not be served a moment ago."""

    def request(
        self,
        *,
        partition: int | None = None,
        name: str | None = None,
        node_id: int | None = None,
        label: int | None = None,
        sample_ids: Iterable[int] | None = None,
        feature: int | Iterable[int] | None = None,
        whole_node: bool = False,
        method: str = RUNGS[0],
        preset: str | None = None,
        **overrides: Any,
    ) -> None:
        """Ask that something of a node be forgotten: its class `label`, or its samples `sample_ids`, or a `feature` of
        all its samples, which stay without it (a column's number, or a patch as (top, left, height, width)), or, with
        `whole_node=True`, all that it has.

        The node is the one with this `partition`-id, this `name` in its config, or this registered id.

        `method` is one rung of the ladder, the lowest where none is named, or any other method; `overrides` are its
        settings. The ladder itself is refused: its check needs data that a site holds out, and `attach` gives none. So
        nothing is checked after the rung, and nobody climbs on."""
        if sum(value is not None for value in (partition, name, node_id)) != 1:
            raise InputError("Name the node of the request by one of partition, name and node_id.")
        target = ErasureRequest.parse(
            0 if partition is None else partition,
            label=label,
            samples=sample_ids,
            feature=feature,
            whole=whole_node,
            names="a label, sample_ids, a feature, or whole_node=True for all of the node",
        )
        if method == LADDER:
            raise InputError(NO_CLIMB)
        _, settings = method_settings(method, preset, **overrides)
        check_servable(method, settings, [target])
        check_history(method, None)
        self.waiting.append(Waiting(partition, name, node_id, target, method, preset, overrides))

    def serve(self, grid: Grid, arrays: ArrayRecord) -> ArrayRecord:
        """Serve what is waiting, oldest first, all or nothing; the new arrays, with the names and types of `arrays`."""
        if not self.waiting:
            return arrays
        check_memories(self.strategy)
        model = refuse_shards(network_of(self._model))
        names = _names(model, arrays)
        if self._initial is not None:
            model = network_of(model, _state(model, self._initial, _names(model, self._initial)))
        # 0 classes: no method's own side asks for their number, and only the clients know it.
        federation = FlowerFederation(grid, model, 0, Normalisation(), **self._federation)
        results: list[Forgetting] = []
        for waiting in self.waiting:
            result = self._serve(waiting, federation, _state(model, arrays, names), (*self.served, *results))
            results.append(result)
            arrays = _arrays(result.state, arrays, names)
        self.served += results
        self.waiting.clear()
        self.failure = None
        renew_memories(self.strategy)
        return arrays

    def check_served(self) -> None:
        """Raise what kept a request from being served, if one is still waiting. For the end of the server app."""
        if self.waiting:
            raise self.failure or InputError("A request is still waiting; serve it, or start another round.")

    def _serve(
        self, waiting: Waiting, federation: FlowerFederation, state: State, before: Iterable[Forgetting]
    ) -> Forgetting:
        request = waiting.addressed(federation)
        result = forget(
            federation, state, request, self._schedule, waiting.method, waiting.preset,
            served=[done for earlier in before for done in earlier.requests],
            **waiting.overrides,
        )  # fmt: skip
        log.info(
            "Forgot %s with %s (%s): %.1f s, %.2f MB sent",
            request.describe(), result.method, result.preset, result.cost.total_seconds, result.cost.bytes / 1e6,
        )  # fmt: skip
        for note in result.notes:
            log.warning("%s", note)
        return result

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *words: Any, **more: Any) -> Result:
        """Flower's own rounds, from the model without what is waiting."""
        self._leads = True
        try:
            begun = self._served_if_possible(grid, initial_arrays)
            self._tried = list(self.waiting)
            result = super().start(grid, begun, *words, **more)
        finally:
            self._leads = False
        if not result.arrays:  # no round had a result
            result.arrays = begun
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.arrays, self._unaggregated = arrays, None
        if self.waiting != self._tried:
            self.arrays = self._unaggregated = arrays = self._served_if_possible(grid, arrays)
        self._tried = []
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        if arrays is None:
            # A round without a result leaves Flower with the model it had before the request.
            return self._unaggregated, metrics
        return arrays, metrics

    def _served_if_possible(self, grid: Grid, arrays: ArrayRecord) -> ArrayRecord:
        """The arrays without what is waiting, or as they are, with a line in the log that says why."""
        try:
            if self.waiting and not self._leads:
                raise InputError(NOT_LEADING)
            return self.serve(grid, arrays)
        except FedForgetError as error:
            self.failure = error
            log.error("Nothing was forgotten, and the training goes on with the model as it was: %s", error)
            return arrays

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        self.strategy.summary()


def _names(model: nn.Module, arrays: ArrayRecord) -> dict[str, str]:
    """The array of each of the model's tensors: by name, or by order where the app has names of its own."""
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    names = {name: name for name in shapes}
    if set(shapes) != set(arrays):
        names = dict(zip(shapes, arrays, strict=False))
    odd = next((n for n in shapes if n not in names or tuple(arrays[names[n]].shape) != shapes[n]), None)
    if odd is not None or len(arrays) != len(shapes):
        where = f"its '{odd}' has no array of that shape" if odd is not None else "there are more arrays than that"
        raise InputError(f"The arrays are not those of the {type(model).__name__} that Forget was given: {where}.")
    return names


def _state(model: nn.Module, arrays: ArrayRecord, names: dict[str, str]) -> State:
    """The arrays in the model's own types: an average makes floats of counters."""
    read = {name: torch.from_numpy(np.array(arrays[key].numpy())) for name, key in names.items()}
    broken = first_non_finite(read)
    if broken is not None:
        raise InputError(f"The model to forget from is damaged: its '{broken}' is not finite.")
    own = model.state_dict()
    return {n: (t if own[n].is_floating_point() else t.round()).to(own[n].dtype) for n, t in read.items()}


def _arrays(state: State, arrays: ArrayRecord, names: dict[str, str]) -> ArrayRecord:
    keys = {key: state[name].cpu().numpy() for name, key in names.items()}
    return ArrayRecord({key: Array(np.asarray(keys[key], dtype=array.numpy().dtype)) for key, array in arrays.items()})
