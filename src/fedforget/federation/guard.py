"""What later rounds may not undo: bounds on the weights that the forgetting moved most (not in the paper).

Ordinary rounds on other people's data bring a forgotten target back, since it is near: they move the weights back from
where the forgetting put them. The server can see that without any data. With theta* the model before and theta_f what
the forgetting made of it, it keeps for the share of the weights j with the largest |d_j|, d = theta_f - theta*,

    theta_j >= b_j  where d_j > 0,        theta_j <= b_j  where d_j < 0,        b = theta_f

from then on, in the recovery and in every later round, by clamping the average (Eq. 2) once. All other weights are
free, and a held one may go on in the direction of the forgetting and come back as far as its bound. Where the weights
are broken after the forgetting (`extensions/rebuilding.py` of FedAF), b is what that leaves. A later request moves what
it must, and is held to both from there on. docs/decisions/guard.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedforget.errors import InputError
from fedforget.params import State

LOWER, UPPER = "lower.", "upper."


@dataclass(frozen=True)
class Guard:
    """For each parameter the least and the most that its weights may be: infinite where they are free.

    >>> before, forgotten = {"w": torch.tensor([0.0, 0.0, 0.0])}, {"w": torch.tensor([2.0, -1.0, 0.1])}
    >>> guard = Guard.of(before, forgotten, ["w"], share=0.5)
    >>> guard.hold({"w": torch.tensor([1.0, -3.0, 0.0])})["w"]
    tensor([ 2., -3.,  0.])
    """

    lower: State
    upper: State

    @classmethod
    def of(
        cls, original: Mapping[str, Tensor], forgotten: Mapping[str, Tensor], names: Iterable[str], share: float
    ) -> Guard:
        """Holds the `share` of the parameters `names` that moved most from `original` to `forgotten`."""
        moved = {name: forgotten[name].float() - original[name].float() for name in names}
        lengths = torch.cat([step.abs().reshape(-1) for step in moved.values()])
        least = lengths.topk(max(1, round(share * len(lengths)))).values[-1]
        most = {name: step.abs() >= least for name, step in moved.items()}
        bound = {name: forgotten[name].detach() for name in moved}
        return cls(
            {name: bound[name].where(most[name] & (step > 0), -math.inf) for name, step in moved.items()},
            {name: bound[name].where(most[name] & (step < 0), math.inf) for name, step in moved.items()},
        )

    def check(self, state: Mapping[str, Tensor]) -> None:
        """Refuse a guard that is of another network than `state`."""
        odd = next((n for n, least in self.lower.items() if n not in state or least.shape != state[n].shape), None)
        if odd is not None:
            raise InputError(f"The guard is of another network: the model has no '{odd}' of that shape.")

    def hold(self, state: Mapping[str, Tensor]) -> State:
        """`state` with every held weight no further back than its bound."""
        held = {
            name: state[name].clamp(least.to(state[name]), self.upper[name].to(state[name]))
            for name, least in self.lower.items()
        }
        return {name: held.get(name, tensor) for name, tensor in state.items()}

    def including(self, state: Mapping[str, Tensor]) -> Guard:
        """The same sides, with bounds no narrower than `state`: what a later request had to move stays moved."""
        return Guard(
            {name: torch.minimum(bound, state[name].detach().to(bound)) for name, bound in self.lower.items()},
            {name: torch.maximum(bound, state[name].detach().to(bound)) for name, bound in self.upper.items()},
        )

    def moved_to(self, state: Mapping[str, Tensor]) -> Guard:
        """The same weights, on the same sides, with `state` as their bounds; a weight that was held on both sides is
        free now, else it would stay in that place for ever."""
        once = {name: bound.isfinite() ^ self.upper[name].isfinite() for name, bound in self.lower.items()}
        places = {name: state[name].detach() for name in once}
        return Guard(
            {name: places[name].where(once[name] & bound.isfinite(), -math.inf) for name, bound in self.lower.items()},
            {name: places[name].where(once[name] & bound.isfinite(), math.inf) for name, bound in self.upper.items()},
        )

    def then(self, later: Guard) -> Guard:
        """Both. This one must include the model that the `later` one is about (`including`), so that there is always
        room; a weight that they hold against each other stays where it is."""
        names = {**self.lower, **later.lower}
        every = [(guard, name) for guard in (self, later) for name in names if name in guard.lower]
        lower: State = {}
        upper: State = {}
        for guard, name in every:
            least, most = guard.lower[name], guard.upper[name]
            lower[name] = torch.maximum(lower[name], least.to(lower[name])) if name in lower else least
            upper[name] = torch.minimum(upper[name], most.to(upper[name])) if name in upper else most
        return Guard(lower, upper)

    @property
    def count(self) -> int:
        """How many weights are held."""
        return sum(int((least.isfinite() | self.upper[name].isfinite()).sum()) for name, least in self.lower.items())

    def to_state(self) -> State:
        """As named tensors, for a file."""
        lower = {f"{LOWER}{name}": bound for name, bound in self.lower.items()}
        return lower | {f"{UPPER}{name}": bound for name, bound in self.upper.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> Guard:
        lower = {name.removeprefix(LOWER): tensor for name, tensor in state.items() if name.startswith(LOWER)}
        upper = {name.removeprefix(UPPER): tensor for name, tensor in state.items() if name.startswith(UPPER)}
        if set(lower) != set(upper) or len(lower) + len(upper) != len(state) or not lower:
            raise InputError("These tensors are no guard: each parameter needs a lower and an upper bound.")
        return cls(lower, upper)
