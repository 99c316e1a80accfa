"""Forgetting in a Flower app that is there already, the server's side: a wrapper around whatever strategy it has.

    forget = Forget(strategy, Net, rounds=8, lr=lr)
    forget.request(partition=0, label=3)
    result = forget.start(grid, arrays, num_rounds=3)
    forget.check_served()

`start` serves what is waiting before it begins, and what comes later before its next round."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

from fedforget.data.samples import Normalisation
from fedforget.errors import DivergedError, FedForgetError, InputError, NotYetError
from fedforget.federation.ridge import Ridge
from fedforget.federation.rounds import Schedule
from fedforget.federation.shards import refuse_shards
from fedforget.federation.starts import network_of
from fedforget.flower.arrays import names_in, state_of_arrays
from fedforget.flower.federation import FlowerFederation
from fedforget.flower.memories import check_memories, renew_memories
from fedforget.flower.messages import Questions
from fedforget.flower.own_rounds import OwnRounds
from fedforget.flower.serving import Service, Waiting, check_there, undone
from fedforget.flower.solved_rounds import SolvedRounds, nodes_to_solve
from fedforget.methods import (
    DEFAULT_METHOD,
    LADDER,
    RUNGS,
    Forgetting,
    check_history,
    check_servable,
    method_settings,
)
from fedforget.params import State
from fedforget.requests import ErasureRequest, describe_requests
from fedforget.runs.attached import REFUSED, WAITING, Asked, AttachedRun

log = logging.getLogger("flwr")
NOT_LEADING = (
    "A strategy around Forget, or a loop of your own, would go on from the model of before, so no request can be "
    "served in its rounds; put Forget outermost, or call its serve between two starts."
)
NO_ROUNDS = (
    "A request may end at a retraining, through the app's own rounds; say how many the app trains: "
    "Forget(..., rounds=8)."
)


class Forget(Strategy):
    """Any strategy, and erasure requests served after or between its rounds, which it runs as ever.

    `model` makes the app's network, and a retrain begins as it makes it; give `initial`, the arrays that the training
    began from, where they were others, such as pretrained ones. `training` says how the app trains, in the words of
    `Schedule` (lr, momentum, batch_size, epochs, seed, threads): methods train on the retained data for a moment, and
    should do as the app does.
    `clients` is how many nodes to wait for before a request is served.

    A request climbs the ladder: overwrite, else rebuild, else retrain, and after each rung a check at the nodes, which
    compares with data that they hold out. What harms others is not used: the app then goes on with its old model, and
    says so. What came of each request, with its word, is in `served`.

    A request that fails costs nothing but itself. `serve` raises what went wrong; `start` logs it, goes on training
    with the model as it was, and tries again before the next round. The request stays in `waiting` until it is served
    or `waiting.clear()` gives it up. `check_served`, at the end of the app, raises the `failure` of one that still
    waits, and tells of one whose target is still in the model: so no run ends well that has not forgotten. A method
    that needs the clients' models of training is refused: they are not kept.

    With a `folder` the app has an inbox there, which it looks into before each round, and a record of what came of
    every request (`runs/attached.py`).

    A network with a ridge head (`ridge_on`, `random_ridge`) is not trained: a round solves it from the nodes' sums
    (`solved_rounds.py`), and every request is exact. `training` is then `seed` and `threads` alone.

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
        folder: str | Path | None = None,
        **training: Any,
    ) -> None:
        self._solves = isinstance(refuse_shards(network_of(model)), Ridge)
        if self._solves:
            training = {"rounds": 1, **training}
            clients = max(clients, nodes_to_solve(strategy, training["rounds"]))
        if folder is not None and "rounds" not in training:
            raise InputError(NO_ROUNDS)
        self.strategy = strategy
        self._folder = None if folder is None else Path(folder)
        self._record: AttachedRun | None = None
        self.waiting: list[Waiting] = []
        self.served: list[Forgetting] = []
        self.failure: FedForgetError | None = None
        self.arrays: ArrayRecord | None = None
        self._model, self._initial, self._schedule = model, initial, Schedule(**training)
        self._federation: dict[str, Any] = {
            "clients": clients, "device": device, "timeout_s": timeout_s, "join_timeout_s": join_timeout_s,
        }  # fmt: skip
        self._unaggregated: ArrayRecord | None = None
        self._given = set(training)
        self._configure, self._aggregate = strategy.configure_train, strategy.aggregate_train
        if self._solves:
            rounds = SolvedRounds(partial(self._service, train_config=None, questions=()), lambda: self._forgotten)
            self._configure, self._aggregate = rounds.configure, rounds.aggregate
        self._config = ConfigRecord()
        """What the app's own rounds are given, as they were begun."""
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
        method: str = DEFAULT_METHOD,
        preset: str | None = None,
        **overrides: Any,
    ) -> None:
        """Ask that something of a node be forgotten: its class `label`, or its samples `sample_ids`, or a `feature` of
        all its samples, which stay without it (a column's number, or a patch as (top, left, height, width)), or, with
        `whole_node=True`, all that it has.

        The node is the one with this `partition`-id, this `name` in its config, or this registered id.

        It climbs the ladder; `lowest` and `at_most` bound the climb, and `method="retrain"` goes to the top at once.
        Any other `method` is used as it is, `overrides` are its settings, and nothing checks what came of it."""
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
        if method == RUNGS[-1]:
            method, overrides = LADDER, {"lowest": method, **overrides}
        if method == LADDER and "rounds" not in self._given:
            raise InputError(NO_ROUNDS)
        _, settings = method_settings(method, preset, **overrides)
        check_servable(method, settings, [target])
        check_history(method, None)
        self.waiting.append(Waiting(partition, name, node_id, target, method, preset, overrides))

    def serve(self, grid: Grid, arrays: ArrayRecord, train_config: ConfigRecord | None = None) -> ArrayRecord:
        """Serve what is waiting, oldest first, all or nothing; the new arrays, with the names and types of `arrays`.

        `train_config` is what the app's own rounds are given, for a retraining; `start` knows it."""
        if not self.waiting:
            return arrays
        questions = [(waiting.target,) for waiting in self.waiting if waiting.partition is not None]
        service = self._service(grid, arrays, train_config, questions)
        made: list[tuple[State, Forgetting]] = []
        for waiting in self.waiting:
            state = service.state(arrays)
            served = [*self._forgotten, *(request for _, one in made for request in one.requests)]
            asked = (waiting.addressed(service.federation),)
            one = service.forget(asked, state, served, waiting.method, waiting.preset, waiting.overrides)
            made.append((state, one))
            arrays = service.arrays(one.state, arrays)
        for state, one in made:
            if self._record is not None:
                self._record.record(one, self._record.keep(state, self._record.run.served))
            self.served.append(one)
        self.waiting.clear()
        self.failure = None
        renew_memories(self.strategy)
        return arrays

    def _service(
        self, grid: Grid, arrays: ArrayRecord, train_config: ConfigRecord | None, questions: Questions
    ) -> Service:
        """Who is there now; with a folder, they are noted there."""
        check_memories(self.strategy)
        model = refuse_shards(network_of(self._model))
        names = names_in(model, arrays)
        if self._initial is not None:
            initial = state_of_arrays(model, self._initial, names_in(model, self._initial))
            model = network_of(model, initial)
        # 0 classes: no method's own side asks for their number, and only the clients know it.
        federation = FlowerFederation(grid, model, 0, Normalisation(), questions=questions, **self._federation)
        own = OwnRounds(
            grid, self.strategy, self._configure, self._aggregate, model, self._schedule, arrays,
            train_config or self._config,
        )  # fmt: skip
        service = Service(federation, model, names, self._schedule, None if self._solves else own)
        if self._folder is not None and self._record is None:
            name, state = type(model).__name__, service.state(arrays)
            self._record = AttachedRun.opened(self._folder, name, self._schedule, state)
            *_, last = state.values()
            self._record.describe(federation.described(), len(last))
        return service

    @property
    def _forgotten(self) -> list[ErasureRequest]:
        """What the app's model has forgotten: with a folder, also in runs before this one."""
        if self._record is not None:
            return [*self._record.run.served]
        return [request for made in self.served for request in made.requests]

    def _look_into_inbox(self, grid: Grid, arrays: ArrayRecord) -> ArrayRecord:
        """Serve what lies in the folder's queue, each request by itself: one that cannot be served costs no other."""
        for asked in () if self._record is None else self._record.waiting():
            arrays = self._answered(grid, arrays, asked)
        return arrays

    def _answered(self, grid: Grid, arrays: ArrayRecord, asked: Asked) -> ArrayRecord:
        record = self._record
        assert record is not None, "the queue is its"
        about = describe_requests(asked.requests)
        try:
            if not self._leads:
                raise InputError(NOT_LEADING)
            service = self._service(grid, arrays, None, [asked.requests])
            for request in asked.requests:
                check_there(service.federation, request.client)
            if not set(asked.requests) <= set(self._forgotten):  # else a run that was killed came so far
                state = service.state(arrays)
                before = record.keep(state, self._forgotten)
                made = service.forget(
                    asked.requests, state, before.served, asked.method, asked.preset, asked.settings
                )  # fmt: skip
                record.record(made, before)
                self.served.append(made)
                arrays = service.arrays(made.state, arrays)
                renew_memories(self.strategy)
            record.answer_served(asked, service.federation)
        except FedForgetError as error:
            final = isinstance(error, InputError | DivergedError) and not isinstance(error, NotYetError)
            record.answer(asked, REFUSED if final else WAITING, reason=str(error))
            log.error("%s is not forgotten, and the training goes on with the model as it was: %s", about, error)
        return arrays

    def check_served(self) -> None:
        """Raise what kept a request from being served, if one is still waiting, and tell of one that was, but whose
        target is still in the model. For the end of the server app."""
        if self.waiting:
            raise self.failure or InputError("A request is still waiting; serve it, or start another round.")
        for sentence in filter(None, map(undone, self.served)):
            raise FedForgetError(sentence)

    def start(self, grid: Grid, initial_arrays: ArrayRecord, *words: Any, **more: Any) -> Result:
        """The inner strategy's own `start`, from the model without what is waiting."""
        given = inspect.signature(self.strategy.start).bind(grid, initial_arrays, *words, **more).arguments
        self._config = ConfigRecord(dict(given.get("train_config") or {}))
        self._leads = True
        try:
            if self._folder is not None:
                self._service(grid, initial_arrays, None, ())  # the folder is there before anybody asks
            begun = self._served_if_possible(grid, initial_arrays)
            self._tried = list(self.waiting)
            with self._between_rounds():
                result = self.strategy.start(grid, begun, *words, **more)
            if not result.arrays:  # no round had a result
                result.arrays = begun
            result.arrays = self._look_into_inbox(grid, result.arrays)  # what came in the last round
        finally:
            self._leads = False
        return result

    @contextmanager
    def _between_rounds(self) -> Iterator[None]:
        """Inside, the inner strategy's rounds pass through ours, whoever runs them: a strategy may have a `start` of
        its own, with checkpoints and logs."""
        attributes = vars(self.strategy)
        ours = {"configure_train": self.configure_train, "aggregate_train": self.aggregate_train}
        there = {name: attributes[name] for name in ours if name in attributes}
        attributes.update(ours)
        try:
            yield
        finally:
            for name in ours:
                del attributes[name]
            attributes.update(there)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.arrays, self._unaggregated = arrays, None
        if self.waiting != self._tried:
            self.arrays = self._unaggregated = arrays = self._served_if_possible(grid, arrays)
        self._tried = []
        looked = self._look_into_inbox(grid, arrays)
        if looked is not arrays:
            self.arrays = self._unaggregated = arrays = looked
        return self._configure(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = self._aggregate(server_round, replies)
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
