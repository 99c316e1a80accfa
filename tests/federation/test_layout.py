"""Which networks take images in channels_last, and what finding out leaves behind."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedforget.federation.layout import for_convolutions, takes_channels_last
from fedforget.models import MODELS, build_model
from fedforget.params import digest, state_of

CHANNELS_LAST = torch.channels_last


class Viewing(nn.Module):
    """Joins dimensions by `view`, always or in one mode alone."""

    def __init__(self, modes: tuple[bool, ...] = (True, False)) -> None:
        super().__init__()
        self.modes = modes
        self.convolution, self.out = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.convolution(x)
        return self.out(x.view(len(x), -1) if self.training in self.modes else x.flatten(1))


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"vit-20m", "resnet18"}))
def test_every_shipped_network_takes_it(name: str):
    model = build_model(name, (3, 16, 16), 5, seed=0)
    assert takes_channels_last(model, (3, 16, 16))
    assert for_convolutions(model, torch.rand(4, 3, 16, 16)).is_contiguous(memory_format=CHANNELS_LAST)


@pytest.mark.parametrize("modes", [(True, False), (True,), (False,)])
def test_a_network_that_views_gets_its_images_as_they_are(modes: tuple[bool, ...]):
    model, images = Viewing(modes), torch.rand(4, 3, 8, 8)
    assert for_convolutions(model, images) is images
    for training in (True, False):
        model.train(training)(for_convolutions(model, images)).sum().backward()


def test_tables_and_sequences_have_no_such_order():
    for features in (torch.rand(4, 6), torch.rand(4, 5, 6)):
        assert for_convolutions(nn.Linear(6, 2), features) is features


def test_finding_out_leaves_no_trace():
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(4 * 36, 5)]
    model = nn.Sequential(*layers).eval()
    before, drawn = digest(state_of(model)), torch.get_rng_state()
    assert takes_channels_last(model, (3, 8, 8))
    assert digest(state_of(model)) == before
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_it_is_found_out_once(monkeypatch: pytest.MonkeyPatch):
    model = Viewing()
    assert not takes_channels_last(model, (3, 8, 8))
    monkeypatch.setattr(Viewing, "forward", lambda self, x: self.out(self.convolution(x).flatten(1)))
    assert not takes_channels_last(model, (3, 8, 8))
    assert takes_channels_last(Viewing(), (3, 8, 8))
