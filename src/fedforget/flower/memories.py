"""What a server's strategy remembers of the model from round to round. After a request it must begin anew: momentum and
moments are old updates, and lead the next round back to the model of before."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from flwr.app import Array
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedYogi,
    QFedAvg,
    Strategy,
)
from torch import Tensor

from fedforget.errors import InputError

MOMENTS = ("current_arrays", "m_t", "v_t")
MEMORIES: dict[type[Strategy], tuple[str, ...]] = {
    FedAvgM: ("current_arrays", "momentum_vector"),
    FedAdagrad: MOMENTS,
    FedAdam: MOMENTS,
    FedYogi: MOMENTS,
    QFedAvg: ("current_arrays",),
    DifferentialPrivacyServerSideFixedClipping: ("current_arrays",),
    DifferentialPrivacyServerSideAdaptiveClipping: ("current_arrays",),
}
"""What Flower's own strategies remember. With None there each begins anew, with what its next round is given."""
ADAPTED = "clipping_norm"
"""What a wrapper for differential privacy may adapt from round to round."""
Adapted = list[tuple[Strategy, float]]


def check_memories(strategy: Strategy) -> None:
    """Refuse a strategy that remembers what nobody knows how to renew."""
    for part in _parts(strategy):
        known = _known(part)
        odd = next((name for name, value in vars(part).items() if name not in known and _holds_arrays(value)), None)
        if odd is not None:
            raise InputError(
                f"The strategy {type(part).__name__} remembers arrays in its '{odd}', which could bring back what is "
                f"forgotten, and fedforget does not know how to renew it; set its '{odd}' to None and ask again."
            )


def renew_memories(strategy: Strategy) -> None:
    """Let the strategy, and whatever it wraps, begin anew with the model that its next round is given."""
    for part in _parts(strategy):
        for name in _known(part) & vars(part).keys():
            setattr(part, name, None)


def adapted(strategy: Strategy) -> Adapted:
    """Every wrapper with a clipping norm, and that norm now."""
    return [(part, vars(part)[ADAPTED]) for part in _parts(strategy) if ADAPTED in vars(part)]


def adapt_again(values: Adapted) -> None:
    """Let each wrapper go on from that norm."""
    for part, norm in values:
        setattr(part, ADAPTED, norm)


def adds_noise(strategy: Strategy) -> bool:
    """Whether the strategy, or one that it wraps, adds noise to what it aggregates, for differential privacy."""
    return any(getattr(part, "noise_multiplier", 0) for part in _parts(strategy))


def _parts(strategy: Strategy) -> Iterator[Strategy]:
    """The strategy and all that it wraps."""
    yield strategy
    for value in vars(strategy).values():
        if isinstance(value, Strategy):
            yield from _parts(value)


def _known(part: Strategy) -> set[str]:
    return {name for kind, names in MEMORIES.items() if isinstance(part, kind) for name in names}


def _holds_arrays(value: Any) -> bool:
    """Whether there is an array of more than one number in it, however deep."""
    if isinstance(value, np.ndarray | Tensor | Array):
        return int(np.prod(value.shape)) > 1
    if isinstance(value, Mapping):
        return any(map(_holds_arrays, value.values()))
    return isinstance(value, list | tuple | set | deque) and any(map(_holds_arrays, value))
