"""NoT: turn the first layer's kernel around, then train on without the target (Khalil et al., CVPR 2025, arXiv
2503.05657).

    kernel of the first layer <- - kernel                            at the server; nobody's data is looked at
    then ordinary rounds on the retained data

What the later layers were tuned to no longer comes out of the first one. The retained data teaches it anew; what only
the target supported does not come back. The paper negates the parameters of chosen layers; the public port negates the
kernel of the first layer, without its bias, and so does this. First means: first among the network's modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from fedforget.errors import InputError
from fedforget.federation.cost import Meter
from fedforget.federation.rounds import Schedule, recover
from fedforget.methods.checks import check_numbers
from fedforget.params import State, copy_state
from fedforget.requests import ErasureRequest

_LAYERS = (nn.modules.conv._ConvNd, nn.Linear)


@dataclass(frozen=True)
class NegationSettings:
    rounds: int = 3
    """Ordinary rounds after the negation."""

    def __post_init__(self) -> None:
        check_numbers("NoT", self, above_zero=["rounds"])


def forget_by_negation(
    federation: Meter,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: NegationSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
) -> tuple[State, dict[str, list[float]]]:
    """(the global model without the target, no curves)."""
    with federation.stage("forgetting"):
        negated = negate(state, first_kernel(federation.model))
    with federation.stage("recovery"):
        return recover(federation, negated, schedule, settings.rounds, (*served, *requests)), {}


def first_kernel(model: nn.Module) -> str:
    """The name of the kernel of the first convolution or linear layer."""
    for name, module in model.named_modules():
        if isinstance(module, _LAYERS) and "weight" in dict(module.named_parameters(recurse=False)):
            return f"{name}.weight" if name else "weight"
    raise InputError("NoT negates the first convolution or linear layer, but the model has none; use another method.")


def negate(state: Mapping[str, Tensor], kernel: str) -> State:
    """A copy in which `kernel` has the opposite sign."""
    negated = copy_state(state)
    negated[kernel].neg_()
    return negated
