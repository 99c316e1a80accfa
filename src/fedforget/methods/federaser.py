"""FedEraser: go through the kept rounds of training once more, without the target, in steps as long as they were then
(Liu et al., IWQoS 2021).

    M = the model that the first kept round began with
    for every kept round, every client k that is still there:
        U  = the update that k sent in that round                                   from the history
        U^ = its update from M, with a share r of the local work, on retained data    the calibration
        U~ = ||U|| U^ / ||U^||     for each parameter tensor: the old length, the new direction
        M  = M + sum_k w_k U~_k,   w_k = n_k / sum_j n_j over retained samples

In the first kept round U~ = U: the clients that remain began at the same M and knew nothing of the target's client yet.
A client that withdraws a class or samples takes part with its retained data. Its own update of the first round did see
the target, so that one is calibrated as well. Running statistics and counters are those of the calibration.

r E epochs of E: ceil(r E) epochs over the share r E / ceil(r E) of the samples, so with one local epoch and r = 0.5 one
epoch over half of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from fedforget.errors import InputError
from fedforget.federation.aggregation import average
from fedforget.federation.cost import Meter
from fedforget.federation.history import History
from fedforget.federation.rounds import Schedule, participants
from fedforget.federation.tasks import CountSamples, Reply, Train
from fedforget.methods.checks import check_numbers
from fedforget.params import State, copy_state, trainable
from fedforget.requests import ErasureRequest


@dataclass(frozen=True)
class FedEraserSettings:
    calibration: float = 0.5
    """r: the share of a round's local work that a calibration takes."""

    def __post_init__(self) -> None:
        check_numbers("FedEraser", self, above_zero=["calibration"])
        if self.calibration > 1:
            raise InputError(f"FedEraser setting 'calibration' is {self.calibration}, but it must be at most 1.")


def calibrate(anchor: State, trained: State, lengths: Mapping[str, float]) -> State:
    """anchor + U~: each tensor named in `lengths` moves that far in the direction of `trained`; the rest is as trained.

    >>> import torch
    >>> calibrate({"w": torch.zeros(2)}, {"w": torch.tensor([3.0, 4.0])}, {"w": 10.0})["w"]
    tensor([6., 8.])
    """

    def moved(name: str) -> Tensor:
        start = anchor[name].double()
        step = trained[name].double() - start
        return (start + step * (lengths[name] / max(float(step.norm()), 1e-30))).to(anchor[name].dtype)

    return {name: moved(name) if name in lengths else tensor for name, tensor in trained.items()}


def forget_with_federaser(
    federation: Meter,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: FedEraserSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
    *,
    history: History,
) -> tuple[State, dict[str, list[float]]]:
    """(the model that training would have reached without the target, approximately; no curves)."""
    exclude = (*served, *requests)
    first, *_ = history.rounds
    current = copy_state(history.sent(first), federation.device)
    if {name: t.shape for name, t in current.items()} != {name: t.shape for name, t in state.items()}:
        raise InputError("The history is of another model than the one to forget from; use the one of its training.")
    with federation.stage("calibration"):
        count = CountSamples(seed=schedule.seed, threads=schedule.threads, exclude=exclude)
        replies = federation.ask(count, {}, participants(federation, exclude))
        weights = {reply.client: reply.numbers["samples"] for reply in replies if reply.numbers["samples"]}
        untouched = set(weights) - {request.client for request in exclude}
        for round in history.rounds:
            task = calibration_task(schedule, settings, round, exclude)
            as_it_was = untouched if round == first else set()
            current = average(erased_round(federation, current, history, task, as_it_was, weights))
    return current, {}


def calibration_task(
    schedule: Schedule, settings: FedEraserSettings, round: int, exclude: Sequence[ErasureRequest]
) -> Train:
    """A round with the share r of its local work."""
    work = settings.calibration * schedule.epochs
    epochs = math.ceil(work)
    return replace(schedule.train_task(round, exclude), epochs=epochs, share=work / epochs, purpose="calibration")


def erased_round(
    federation: Meter,
    current: State,
    history: History,
    task: Train,
    as_it_was: Collection[int],
    weights: Mapping[int, float],
) -> Iterator[Reply]:
    """What the clients of a kept round send without the target: those in `as_it_was` the model they sent then, the
    others M + U~. `weights` are the retained samples of those that are still there."""
    sent = history.sent(task.round)
    lengths: dict[int, dict[str, float]] = {}
    for client, returned in history.returned(task.round):
        if client in as_it_was:
            model = copy_state(returned, federation.device)
            yield Reply(client, tensors=model, numbers={"samples": weights[client]})
        elif client in weights:
            lengths[client] = {
                name: float((returned[name].double() - sent[name].double()).norm())
                for name in trainable(federation.model)
            }
    for reply in federation.ask(task, current, sorted(lengths)):
        calibrated = calibrate(current, reply.tensors, lengths[reply.client])
        yield replace(reply, tensors=calibrated, numbers={"samples": weights[reply.client]})
