"""Shards: federations of disjoint clients that train apart and are served as one model (the idea of SISA, Bourtoule et
al. 2021, arXiv 1912.03817, with clients in place of samples).

    f(x) = log (1/|V|) sum_{k in V} softmax f_k(x)        V: the members that anybody has trained

Client c belongs to shard c mod S, whoever else there is. Member k begins with a draw of its own and trains on its own
clients alone, with draws of its own, so no bit of it depends on another shard: a request retrains the shards that hold
the target (`methods.retrain`), and the rest stays as it would be had the target never been there.

A network's tensor NAME is `members.K.NAME` of the ensemble. `rounds` counts the rounds of training, `trained` those in
which a member learned something. A member whose clients have no data left keeps its first weights and has no voice."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedforget.errors import InputError
from fedforget.federation.starts import Network, network_of
from fedforget.models import Prepared, begins_with, fresh_copy, start_of
from fedforget.params import State, state_of
from fedforget.seeds import derive_seed

ROUNDS, TRAINED = "rounds", "trained"


class Ensemble(Prepared):
    """The model of a federation with shards: one network for each, and the mean of their probabilities.

    >>> ensemble = Ensemble(lambda: nn.Linear(4, 3), shards=2, seed=0)
    >>> bool(torch.allclose(ensemble(torch.ones(1, 4)).exp().sum(), torch.tensor(1.0)))
    True
    """

    rounds: Tensor
    trained: Tensor
    serving = "has shards, so a request retrains the shards that hold the target"
    assumed = ("Every client trained as it was asked to: without the target, and for its own shard alone.",)

    def __init__(
        self, network: Network, shards: int, seed: int, *, initial: Mapping[str, Tensor] | None = None
    ) -> None:
        """`network` and `initial` are as in `LocalFederation`; every member begins as that network does, with a draw
        of its own from `seed`."""
        super().__init__()
        if isinstance(shards, bool) or not isinstance(shards, int) or shards < 1:
            raise InputError(f"The number of shards is {shards!r}, but it must be a whole number, 1 or larger.")
        one = network_of(network, initial)
        if isinstance(one, Ensemble):
            raise InputError("The network of a shard is an ensemble itself; give the network of one shard.")
        start = start_of(one)
        assert start is not None, "network_of notes it"
        self.shards, self.seed, self._start = shards, seed, start
        self.members = nn.ModuleList(fresh_copy(one, derive_seed(seed, "shard", k)) for k in range(shards))
        self.register_buffer(ROUNDS, torch.zeros((), dtype=torch.int64))
        self.register_buffer(TRAINED, torch.zeros(shards, dtype=torch.int64))
        begins_with(self, _begin)

    def forward(self, x: Tensor) -> Tensor:
        voices = self.trained > 0
        voices = voices | ~voices.any()  # before the first round all of them speak
        logs = torch.stack([member(x).log_softmax(1) for member in self.members])
        logs = logs.masked_fill(~voices[:, None, None], -torch.inf)
        return logs.logsumexp(0) - voices.sum().log()

    def clients_of(self, shard: int, clients: Iterable[int]) -> list[int]:
        """Which of the `clients` belong to it."""
        return [client for client in clients if client % self.shards == shard]

    def holding(self, clients: Iterable[int]) -> list[int]:
        """The shards that the `clients` belong to."""
        return sorted({client % self.shards for client in clients})

    def clients_beside(self, some: Iterable[int], clients: Iterable[int]) -> list[int]:
        """Which of the `clients` belong to a shard that holds `some` of them."""
        shards = self.holding(some)
        return [client for client in clients if client % self.shards in shards]

    def check_clients(self, clients: Sequence[int]) -> None:
        """Refuse a federation in which a shard would have nobody."""
        empty = next((shard for shard in range(self.shards) if not self.clients_of(shard, clients)), None)
        if empty is not None:
            raise InputError(
                f"{self.shards} shards need at least as many clients, but shard {empty} would have none of "
                f"{len(clients)}; use fewer shards."
            )

    def first(self, shard: int) -> State:
        """The weights that this member began with."""
        fresh = copy.deepcopy(self.members[shard]).cpu()
        return state_of(self._start(fresh, derive_seed(self.seed, "shard", shard)).to(self.trained.device))


def _begin(model: nn.Module, seed: int) -> nn.Module:
    """Another draw for every member; nothing is trained yet."""
    assert isinstance(model, Ensemble)
    for shard, member in enumerate(model.members):
        model._start(member, derive_seed(seed, "shard", shard))
    model.rounds.zero_()
    model.trained.zero_()
    return model


def member_of(state: Mapping[str, Tensor], shard: int) -> State:
    """The weights of one member."""
    prefix = f"members.{shard}."
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}


def as_member(member: Mapping[str, Tensor], shard: int) -> State:
    """The same, as the ensemble names them."""
    return {f"members.{shard}.{name}": tensor for name, tensor in member.items()}


def begun_again(ensemble: Ensemble, state: Mapping[str, Tensor], shards: Sequence[int], fresh: State | None) -> State:
    """`state` with these shards at the beginning: at their first weights, or at those of the ensemble `fresh`."""
    again = dict(state)
    for shard in shards:
        again |= as_member(ensemble.first(shard) if fresh is None else member_of(fresh, shard), shard)
    trained = state[TRAINED].clone()
    trained[list(shards)] = 0
    return {**again, ROUNDS: torch.zeros_like(state[ROUNDS]), TRAINED: trained}


def shard_seed(seed: int, shard: int) -> int:
    """What a shard draws from in training."""
    return derive_seed(seed, "shard", shard)


def network_for(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """The network that takes the weights `state`: one member of an ensemble where they are a member's, else `model`."""
    if not isinstance(model, Ensemble) or not state:
        return model
    member: nn.Module = model.members[0]
    whole = next(iter(as_member(member.state_dict(), 0)))
    return model if whole in state else member


def refuse_shards(model: nn.Module) -> nn.Module:
    """`model`, where it is none: the rounds of somebody else's app know nothing of shards."""
    if isinstance(model, Ensemble):
        raise InputError(
            "This app's own rounds train one model at all clients, so an Ensemble would know every client's data; "
            "train shards with `fedforget train --shards`, or with fedforget's own Flower app."
        )
    return model
