"""Who holds what: pure functions from labels and a seed to one index tensor per client. Every sample at most once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedforget.errors import InputError
from fedforget.seeds import derive_generator, derive_seed


def partition_iid(n: int, clients: int, seed: int) -> list[Tensor]:
    """Shuffle and cut into `clients` parts whose sizes differ by at most one."""
    _check(n, clients)
    order = torch.randperm(n, generator=derive_generator(seed, "partition", "iid"))
    return [part.sort().values for part in order.tensor_split(clients)]


def partition_dirichlet(labels: Tensor, clients: int, seed: int, alpha: float = 0.5) -> list[Tensor]:
    """Each class is split over the clients in proportions drawn from Dirichlet(alpha): small alpha, strong skew.

    A client may end up with few samples, never with none: the largest client gives one away."""
    _check(len(labels), clients)
    if not alpha > 0 or alpha == float("inf"):
        raise InputError(f"The Dirichlet concentration is {alpha}, but it must be a finite number above 0.")
    generator = derive_generator(seed, "partition", "dirichlet")
    # numpy draws the shares: torch's gamma underflows below alpha 0.01, and the shares come out even instead of skewed.
    draws = np.random.default_rng(derive_seed(seed, "partition", "dirichlet", "shares"))
    concentration = np.full(clients, min(float(alpha), 1e9))  # even above that, and the largest floats would overflow
    parts: list[list[Tensor]] = [[] for _ in range(clients)]
    for label in labels.unique(sorted=True):
        members = (labels == label).nonzero().squeeze(1)
        members = members[torch.randperm(len(members), generator=generator)]
        cuts = np.rint(draws.dirichlet(concentration).cumsum()[:-1] * len(members)).astype(int)
        for part, piece in zip(parts, members.tensor_split(cuts.tolist()), strict=True):
            part.append(piece)
    result = [torch.cat(part) for part in parts]
    for k in range(clients):
        while len(result[k]) == 0:
            largest = max(range(clients), key=lambda j: len(result[j]))
            result[k], result[largest] = result[largest][:1], result[largest][1:]
    return [part.sort().values for part in result]


def partition_shards(labels: Tensor, clients: int, seed: int, shards_per_client: int = 2) -> list[Tensor]:
    """Sort by class, cut into clients x `shards_per_client` shards, deal them out (McMahan et al. 2017)."""
    _check(len(labels), clients)
    _check(len(labels), clients * shards_per_client, what="shards")
    by_class = torch.sort(labels, stable=True).indices
    shards = by_class.tensor_split(clients * shards_per_client)
    deal = torch.randperm(len(shards), generator=derive_generator(seed, "partition", "shards")).tolist()
    hands = [deal[k * shards_per_client : (k + 1) * shards_per_client] for k in range(clients)]
    return [torch.cat([shards[i] for i in hand]).sort().values for hand in hands]


def partition(scheme: str, labels: Tensor, clients: int, seed: int) -> list[Tensor]:
    """Partition by a scheme written as text: `iid`, `dirichlet:ALPHA` or `shards:PER_CLIENT`."""
    name, _, argument = scheme.partition(":")
    try:
        if name == "iid" and not argument:
            return partition_iid(len(labels), clients, seed)
        if name == "dirichlet":
            return partition_dirichlet(labels, clients, seed, float(argument) if argument else 0.5)
        if name == "shards":
            return partition_shards(labels, clients, seed, int(argument) if argument else 2)
    except ValueError:
        raise InputError(f"In partition '{scheme}', '{argument}' is not a fitting number.") from None
    raise InputError(f"Partition '{scheme}' is unknown; choose iid, dirichlet:0.5 or shards:2.")


def _check(n: int, parts: int, what: str = "clients") -> None:
    if parts < 1:
        raise InputError(f"{parts} {what} were asked for, but there must be at least 1.")
    if parts > n:
        raise InputError(f"{n} samples cannot be spread over {parts} {what}; use fewer.")
