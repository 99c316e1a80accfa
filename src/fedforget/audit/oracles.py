"""Retrained models over several seeds; every measure is judged against their spread. Cached by content, never
trained twice.

One retrained model is one draw. Whether a model that forgot is like a retrained one can only be said against how much
retrained ones differ from each other: by their initial weights, and by the order of their batches."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from fedforget.errors import InputError
from fedforget.federation.observed import Progress, Watched, silent
from fedforget.federation.rounds import Schedule, asked_in, train
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import CountSamples, Reply, Task
from fedforget.methods.retrain import RetrainSettings, fresh_start
from fedforget.params import State, copy_state, digest
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_seed


class KeptModel(Protocol):
    """A place for a model with a note on it (`runs.store.NotedModel`). What is missing, damaged or not what belongs
    there is None: it is made anew, never trusted."""

    def load_whole(self) -> tuple[dict[str, Any], State] | None: ...

    def save(self, state: Mapping[str, Tensor], round: int | None = None, **note: Any) -> None: ...

    def drop(self) -> None: ...


class OracleCache(Protocol):
    """Keeps trained models by key, and the newest round of one that is not finished."""

    def model(self, key: str) -> KeptModel: ...

    def rounds(self, key: str) -> KeptModel: ...


def oracle_schedule(schedule: Schedule, number: int) -> Schedule:
    """What oracle `number` trains with. Oracle 0 is the model of the method `retrain`; the others have a seed of their
    own, from which both their initial weights and their batch orders come.

    >>> oracle_schedule(Schedule(seed=5), 0) == Schedule(seed=5)
    True
    >>> oracle_schedule(Schedule(seed=5), 1).seed == oracle_schedule(Schedule(seed=5), 2).seed
    False
    """
    if number < 0:
        raise InputError(f"Oracle {number} does not exist; oracles are numbered from 0.")
    return schedule if number == 0 else replace(schedule, seed=derive_seed(schedule.seed, "oracle", number))


def oracle_models(
    federation: Federation,
    requests: Sequence[ErasureRequest],
    schedule: Schedule,
    count: int,
    *,
    data: str,
    served: Sequence[ErasureRequest] = (),
    cache: OracleCache | None = None,
    retrained: Mapping[str, Tensor] | None = None,
    progress: Progress = silent,
) -> list[State]:
    """The first `count` oracles: models of federations that never had the targets of `requests` and `served`.

    `data` names what the clients hold (data set, partition, backdoors), for the cache. `retrained` is oracle 0, where
    the caller has trained it already.

    Interrupted, the same call goes on with the rounds that are done and ends with the same bits."""
    if count < 1:
        raise InputError(f"The number of oracles is {count}, but it must be 1 or larger.")
    exclude = (*served, *requests)
    federation.check(exclude)
    shared = {} if cache is None else shared_ingredients(federation, exclude, schedule, data)
    made_of = [oracle_ingredients(shared, oracle_schedule(schedule, number)) for number in range(count)]
    models = {} if retrained is None else {0: _as_trained(federation, retrained)}
    for number, ingredients in enumerate(made_of):
        kept = None if cache is None or number in models else cache.model(oracle_key(ingredients)).load_whole()
        if kept is not None:
            models[number] = _as_trained(federation, kept[1])
    lacking = [number for number in range(count) if number not in models]
    replies = asked_in(federation, schedule.train_task(0, exclude))
    attended = _Attended(federation, replies, len(lacking) * schedule.rounds, progress)
    for number in lacking:
        own = oracle_schedule(schedule, number)
        models[number] = _trained(attended, own, exclude, cache, made_of[number])
    return [models[number] for number in range(count)]


def shared_ingredients(
    federation: Federation, exclude: Sequence[ErasureRequest], schedule: Schedule, data: str
) -> dict[str, Any]:
    """What decides the bits of every oracle of an ensemble, save its schedule. The clients say how many samples they
    would train on, since a client may remember a withdrawal that is not among `exclude`.

    A forward pass written by hand is not seen here; who changes one names the change in `data`."""
    model = federation.model
    parameters = dict(model.named_parameters())
    count = CountSamples(seed=schedule.seed, threads=schedule.threads, exclude=tuple(exclude))
    return {
        "fedforget": importlib.import_module("fedforget").__version__,
        "torch": torch.__version__,
        "device": federation.device.type,
        "network": f"{type(model).__module__}.{type(model).__qualname__}",
        "layers": str(model),
        "tensors": [
            [name, str(t.dtype), list(t.shape), name in parameters and parameters[name].requires_grad]
            for name, t in model.state_dict().items()
        ],
        "begins": digest(fresh_start(model, schedule, RetrainSettings())),
        "images": repr(federation.normalisation),
        "classes": federation.classes,
        "data": data,
        "exclude": sorted({json.dumps(request.to_json(), sort_keys=True) for request in exclude}),
        "clients": {str(reply.client): reply.numbers["samples"] for reply in federation.ask(count, {})},
    }


def oracle_ingredients(shared: Mapping[str, Any], schedule: Schedule) -> dict[str, Any]:
    """Everything that decides the bits of the oracle with this schedule. Older versions could train several oracles as
    one stack, with other roundings; `training` keeps those apart, and the keys of all others as they were."""
    return {**shared, "schedule": asdict(schedule), "training": "alone"}


def oracle_key(ingredients: Mapping[str, Any]) -> str:
    """The name of a model that is made of these."""
    return hashlib.sha256(json.dumps(ingredients, sort_keys=True).encode()).hexdigest()


def _as_trained(federation: Federation, state: Mapping[str, Tensor]) -> State:
    """A state from a file, as training leaves it: a file does not keep the order, and flattening depends on it."""
    return copy_state({name: state[name] for name in federation.model.state_dict()}, federation.device)


def _trained(
    federation: _Attended,
    schedule: Schedule,
    exclude: Sequence[ErasureRequest],
    cache: OracleCache | None,
    ingredients: Mapping[str, Any],
) -> State:
    """Train one oracle, from where an interruption left it."""
    key = oracle_key(ingredients)
    saved = None if cache is None else cache.rounds(key).load_whole()
    if saved is not None:
        start, state = int(saved[0]["round"]), _as_trained(federation, saved[1])
    else:
        start, state = 0, fresh_start(federation.model, schedule, RetrainSettings())
    federation.begin(start)

    def keep(done: int, current: State) -> None:
        if cache is not None and federation.complete:
            cache.rounds(key).save(current, done)

    state = train(federation, state, schedule, start=start, exclude=exclude, on_round=keep)
    if cache is not None and federation.complete:
        cache.model(key).save(state, ingredients=dict(ingredients))  # for a person to read
        cache.rounds(key).drop()
    return state


class _Attended(Watched):
    """Notes too whether a client missed a round: a federation on other machines goes on without one that is away, and a
    model without its data must not be kept for one with them."""

    def __init__(self, federation: Federation, replies_a_round: int, rounds: int, progress: Progress) -> None:
        super().__init__(federation, "oracles", rounds * replies_a_round, progress)
        self._round, self.complete = replies_a_round, True

    def begin(self, rounds_done: int) -> None:
        """A model that has this many rounds behind it is trained next."""
        self.complete = True
        self.add(rounds_done * self._round)

    def ask(self, task: Task, state: Mapping[str, Tensor], to: Iterable[int] | None = None) -> Iterator[Reply]:
        asked = list(self.clients if to is None else to)
        replies = 0
        for reply in super().ask(task, state, asked):
            replies += 1
            yield reply
        self.complete &= replies == len(asked)
