"""When a retrained model is exact: where it began with fresh weights throughout."""

from __future__ import annotations

import pytest
import small_worlds
import torch
from torch import Tensor, nn

from fedforget.methods import forget
from fedforget.methods.retrain import RetrainSettings, is_drawn
from fedforget.models import MODELS, build_model
from fedforget.params import state_of
from fedforget.requests import ErasureRequest

REQUEST = ErasureRequest.of_class(0, 1)


class Scale(nn.Module):
    """Scales every feature; it begins as `first` says, whatever the seed."""

    def __init__(self, first: Tensor) -> None:
        super().__init__()
        self.first = first
        self.weight = nn.Parameter(first.clone())

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.weight.copy_(self.first)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


@pytest.mark.parametrize(
    ("first", "exact"), [(torch.ones(6), True), (torch.linspace(0.5, 1.5, 6), False)], ids=["constant", "pretrained"]
)
def test_weights_that_were_given_may_have_seen_the_target(first: Tensor, exact: bool):
    federation = small_worlds.federation(
        kind=lambda data, parts, _: small_worlds.Tapped(
            data, parts, lambda: nn.Sequential(Scale(first), nn.Linear(6, 3))
        )
    )
    result = forget(federation, state_of(federation.model), REQUEST, small_worlds.SCHEDULE, "retrain")
    assert result.exact == exact


@pytest.mark.parametrize("name", [name for name in MODELS if name != "vit-20m"])
def test_every_shipped_network_begins_with_a_draw(name: str):
    network = build_model(name, (1, 8, 8), 3, 0)
    assert is_drawn(network, small_worlds.SCHEDULE, RetrainSettings())
