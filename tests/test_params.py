"""Arithmetic on named parameters."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from fedforget.params import (
    copy_state,
    digest,
    distance,
    first_non_finite,
    flatten,
    is_finite,
    move,
    state_bytes,
    state_of,
    trainable,
    unflatten,
    weight_count,
)


def model() -> nn.Module:
    made = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    made[3].bias.requires_grad_(False)
    return made


def state() -> dict[str, Tensor]:
    return {
        "w": torch.tensor([[1.0, -2.0], [3.0, 0.5]]),
        "h": torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
        "n": torch.tensor(7),
    }


def test_copies_are_detached_and_own():
    network = model()
    taken = state_of(network)
    assert list(taken) == list(network.state_dict())
    assert not any(tensor.requires_grad for tensor in taken.values())
    with torch.no_grad():
        network[0].weight.zero_()
    assert float(taken["0.weight"].abs().max()) > 0
    again = copy_state(taken)
    again["0.weight"].zero_()
    assert float(taken["0.weight"].abs().max()) > 0


def test_digest_sees_every_bit():
    """One flipped bit in any tensor makes another digest, and flipping it back the same one."""
    values = state()
    original = digest(values)
    assert digest(copy_state(values)) == original
    for tensor in values.values():
        raw = tensor.reshape(-1).view(torch.uint8)
        for byte in range(len(raw)):
            raw[byte] ^= 1
            assert digest(values) != original
            raw[byte] ^= 1
    assert digest(values) == original


def test_digest_sees_names_shapes_and_types_and_not_order_or_layout():
    values = state()
    original = digest(values)
    assert digest(dict(reversed(values.items()))) == original
    assert digest(values | {"w": values["w"].T.contiguous().T}) == original
    assert digest(values | {"w": values["w"].reshape(4)}) != original
    assert digest(values | {"w": values["w"].view(torch.int32)}) != original
    assert digest({("v" if name == "w" else name): t for name, t in values.items()}) != original
    assert digest({name: t for name, t in values.items() if name != "n"}) != original
    assert digest({"b": torch.tensor([True]), "e": torch.zeros(0)}) != digest(
        {"b": torch.tensor([False]), "e": torch.zeros(0)}
    )


def test_distance_is_euclidean_over_floats():
    a, b = state(), state()
    assert distance(a, b) == 0.0
    b["w"] = b["w"] + torch.tensor([[3.0, 0.0], [0.0, 0.0]])
    b["h"] = b["h"] + 4.0 * torch.tensor([1.0, 0.0], dtype=torch.bfloat16)
    b["n"] = torch.tensor(1000)
    assert distance(a, b) == distance(b, a) == 5.0


def test_distance_is_summed_in_double():
    a = {"w": torch.full((10_000,), 1e-4)}
    b = {"w": torch.zeros(10_000)}
    assert distance(a, b) == pytest.approx(0.01, rel=1e-7)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_values_are_found_by_name(bad):
    values = state()
    assert first_non_finite(values) is None
    assert is_finite(values.values())
    values["h"][1] = bad
    assert first_non_finite(values) == "h"
    assert not is_finite(values.values())


def test_bytes_on_the_wire():
    assert state_bytes(state()) == 4 * 4 + 2 * 2 + 8
    assert state_bytes({}) == 0


def test_only_what_training_moves_is_trainable():
    assert list(trainable(model())) == ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight"]
    assert weight_count(model()) == 2 * 9 + 2 + 2 + 2 + 3 * 8


def test_unflatten_finds_each_parameter_where_flatten_puts_it():
    parameters = trainable(model())
    flat = flatten(parameters)
    assert flat.dtype == torch.float32
    assert not flat.requires_grad
    views = unflatten(flat, parameters)
    assert list(views) == list(parameters)
    end = 0
    for name, view in views.items():
        assert view.data_ptr() == flat[end:].data_ptr(), "it is no copy"
        end += view.numel()
        assert torch.equal(view, parameters[name].detach())
    assert end == len(flat) == sum(p.numel() for p in parameters.values())


def test_flatten_reads_rows_whatever_the_layout():
    images = torch.randn(2, 3, 4, 5)
    same = images.to(memory_format=torch.channels_last)
    assert torch.equal(flatten({"a": same}), images.reshape(-1))


@pytest.mark.parametrize("scale", [1.0, -1.0, -0.3, 0.0])
def test_move_takes_a_step_in_place_and_leaves_the_rest(scale: float):
    network = model()
    network[0].weight.data = network[0].weight.data.to(memory_format=torch.channels_last)
    parameters, start = trainable(network), state_of(network)
    before = flatten(parameters)
    step = torch.randn(weight_count(network), generator=torch.Generator().manual_seed(0))
    move(parameters, step, *([] if scale == 1.0 else [scale]))
    assert torch.allclose(flatten(trainable(network)), before + scale * step, rtol=0, atol=1e-6)
    assert all(parameter.requires_grad and parameter.grad_fn is None for parameter in parameters.values())
    untouched = start.keys() - parameters.keys()
    assert untouched == {"1.running_mean", "1.running_var", "1.num_batches_tracked", "3.bias"}
    assert all(torch.equal(network.state_dict()[name], start[name]) for name in untouched)


def test_a_step_back_is_a_subtraction_bit_for_bit():
    generator = torch.Generator().manual_seed(1)
    theta, step = torch.randn(1001, generator=generator), torch.randn(1001, generator=generator)
    for scale in (1.0, 0.1, 3e-5):
        moved = {"a": theta.clone()}
        move(moved, step, -scale)
        assert torch.equal(moved["a"], theta.sub(step, alpha=scale))
