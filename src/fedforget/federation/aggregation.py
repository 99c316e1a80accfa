"""FedAvg's server step, streamed: replies are added up one at a time, so memory does not grow with the clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from fedforget.errors import DivergedError, FedForgetError
from fedforget.federation.tasks import Reply
from fedforget.params import State, first_non_finite


class WeightedMean:
    """theta_{t+1} = sum_k w_k theta_{k,t+1} with w_k = n_k / sum_j n_j (Eq. 2), one client at a time.

    Parameters and running statistics (floats) are averaged with these weights, summed in float64. Counters (integers,
    such as BatchNorm's number of batches) take the largest value seen: an average of counts is no count.

    >>> mean = WeightedMean()
    >>> mean.add({"w": torch.tensor([0.0])}, 1.0)
    >>> mean.add({"w": torch.tensor([4.0])}, 3.0)
    >>> mean.result()["w"]
    tensor([3.])
    """

    def __init__(self) -> None:
        self._sums: State = {}
        self._types: dict[str, torch.dtype] = {}
        self.weight = 0.0

    def add(self, state: State, weight: float) -> None:
        if self._sums and {n: t.shape for n, t in state.items()} != {n: t.shape for n, t in self._sums.items()}:
            raise FedForgetError("The clients' models do not have the same tensors, so they cannot be averaged.")
        for name, tensor in state.items():
            if not tensor.is_floating_point():
                seen = self._sums.get(name)
                self._sums[name] = tensor.clone() if seen is None else torch.maximum(seen, tensor)
            elif name in self._sums:
                self._sums[name].add_(tensor.double(), alpha=weight)
            else:
                self._sums[name] = tensor.double() * weight
                self._types[name] = tensor.dtype
        self.weight += weight

    def result(self) -> State:
        if self.weight <= 0:
            raise FedForgetError("No client sent a model with data behind it, so there is nothing to average.")
        return {
            name: (total / self.weight).to(self._types[name]) if name in self._types else total
            for name, total in self._sums.items()
        }


def average(replies: Iterable[Reply]) -> State:
    """The weighted mean of the clients' models; a model that is not finite stops it by name."""
    return mean_of(replies).result()


def mean_of(replies: Iterable[Reply]) -> WeightedMean:
    """The same, to be asked first whether anybody had data."""
    mean = WeightedMean()
    for reply in replies:
        if reply.numbers["samples"] > 0:
            broken = first_non_finite(reply.tensors)
            if broken is not None:
                raise DivergedError("Aggregation", f"client {reply.client} sent a '{broken}' that is not finite.")
            mean.add(reply.tensors, reply.numbers["samples"])
    return mean


def scaled_towards(anchor: State, moved: State, factor: float) -> State:
    """anchor + factor (moved - anchor) for floats; counters as in `moved`. What a client sends so that averaging
    with idle peers by weight 1/factor lands on `moved` itself."""

    def scale(name: str, tensor: Tensor) -> Tensor:
        start = anchor[name].double()
        return (start + factor * (moved[name].double() - start)).to(tensor.dtype)

    return {name: scale(name, t) if t.is_floating_point() else t.clone() for name, t in moved.items()}


def without_return(original: Mapping[str, Tensor], forgotten: State, updated: State, names: Iterable[str]) -> State:
    """`updated` without the part of its step from `forgotten` that leads back towards `original`:

        u <- u - min(0, <u, d> / <d, d>) d,    u = updated - forgotten,  d = forgotten - original

    over the parameters `names`; everything else stays as in `updated`. Forgetting moved the model along d, and a later
    step against d would undo it (the idea of FedOSD's post-training, Pan et al. 2025, applied to the sum by the server,
    which needs no data for it)."""
    trained = sorted(names)
    drift = {name: forgotten[name].double() - original[name].double() for name in trained}
    steps = {name: updated[name].double() - forgotten[name].double() for name in trained}
    length = sum(float(d.square().sum()) for d in drift.values())
    along = sum(float((steps[name] * drift[name]).sum()) for name in trained)
    if length == 0.0 or along >= 0.0:
        return updated
    share = along / length
    kept = {name: (updated[name].double() - share * drift[name]).to(updated[name].dtype) for name in trained}
    return {name: kept.get(name, tensor) for name, tensor in updated.items()}
