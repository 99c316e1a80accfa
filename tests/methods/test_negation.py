"""NoT: which layer is turned around, and that nothing else is."""

from __future__ import annotations

import pytest
import torch
from small_worlds import SCHEDULE, loaded, trained
from torch import nn

from fedforget.errors import InputError
from fedforget.federation.rounds import recover
from fedforget.federation.tasks import Train
from fedforget.methods import forget
from fedforget.methods.negation import NegationSettings, first_kernel, negate
from fedforget.models import build_model
from fedforget.params import digest
from fedforget.requests import ErasureRequest

CLASS = ErasureRequest.of_class(0, 1)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("cnn", "0.weight"), ("mlp", "1.weight"), ("resnet10", "stem.0.weight"), ("resnet10-gn", "stem.0.weight"),
        ("vit", "embed.weight"),
    ],
)  # fmt: skip
def test_the_first_kernel_of_the_shipped_networks(name: str, kernel: str):
    assert first_kernel(build_model(name, (1, 8, 8), 10, 0)) == kernel


def test_only_the_kernel_changes_its_sign():
    _, before, _ = trained(normalised=True)
    negated = negate(before, "0.weight")
    for name, tensor in before.items():
        expected = [-x for x in tensor.flatten().tolist()] if name == "0.weight" else tensor.flatten().tolist()
        assert negated[name].flatten().tolist() == expected
    assert digest(negate(negated, "0.weight")) == digest(before)


def test_a_network_without_biases_sees_the_negative():
    """A closed form: with the first kernel negated, the first layer answers to -x as it did to x."""
    world, before, _ = trained()
    before["0.bias"].zero_()
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    turned = loaded(world, negate(before, "0.weight"))
    assert torch.allclose(turned(-x), loaded(world, before)(x))


def test_the_method_is_negation_and_ordinary_rounds():
    world, before, _ = trained()
    result = forget(world, before, CLASS, SCHEDULE, "not", rounds=2)
    tasks = [task for task, _, _ in world.log]
    assert all(isinstance(task, Train) and task.exclude == (CLASS,) for task in tasks)
    assert len(tasks) == 2 * 4
    assert digest(world.log[0][1]) == digest(negate(before, "0.weight"))
    assert digest(result.state) == digest(recover(world, negate(before, "0.weight"), SCHEDULE, 2, [CLASS]))


def test_a_model_without_such_a_layer_is_refused():
    with pytest.raises(
        InputError, match=r"^NoT negates the first convolution or linear layer, but the model has none;"
    ):
        first_kernel(nn.Sequential(nn.Flatten(), nn.LayerNorm(6)))


def test_no_rounds_would_leave_a_broken_model():
    with pytest.raises(InputError, match=r"^NoT setting 'rounds' is 0, but it must be a finite number above 0\.$"):
        NegationSettings(rounds=0)
