"""Networks run on the shipped shapes, start from Xavier's draw, and unsuitable models are refused in one sentence."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from fedforget.errors import InputError
from fedforget.models import MODELS, ResNet, build_model, check_model, fresh_copy, xavier_initialise
from fedforget.params import digest

LARGE = ("resnet18", "vit-20m")
NETWORKS = [pytest.param(name, marks=[pytest.mark.real] if name in LARGE else []) for name in MODELS]
SHAPES = [(1, 28, 28), (3, 32, 32), (1, 8, 8)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_runs_forward_and_backward(name, shape):
    model = build_model(name, shape, 10, seed=0)
    check_model(model, shape, 10)
    logits = model.train()(torch.randn(3, *shape, generator=torch.Generator().manual_seed(0)))
    assert logits.shape == (3, 10)
    logits.square().sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert bool(torch.isfinite(parameter.grad).all()), parameter_name


@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 7), (9, 30), (28, 13)])
def test_the_papers_network_takes_images_of_any_size(height, width):
    check_model(build_model("cnn", (2, height, width), 4, seed=0), (2, height, width), 4)


@pytest.mark.parametrize("shape", [(1, 30, 30), (3, 9, 15), (1, 11, 11), (1, 14, 7)])
def test_the_transformer_finds_a_patch_that_fits(shape):
    check_model(build_model("vit", shape, 4, seed=0), shape, 4)


def test_the_mlp_takes_tables():
    check_model(build_model("mlp", (13,), 2, seed=0), (13,), 2)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        # 16 (25 + 1) + 32 (16 25 + 1) + 10 (32 7 7 + 1)
        ("cnn", (1, 28, 28), 28_938),
        # 200 (784 + 1) + 200 (200 + 1) + 10 (200 + 1)
        ("mlp", (1, 28, 28), 199_210),
        # convolutions 4,892,352; normalisation 2 * 3 (64 + 128 + 256 + 512) = 5,760; head 10 (512 + 1)
        ("resnet10", (3, 32, 32), 4_903_242),
        ("resnet10-gn", (3, 32, 32), 4_903_242),
    ],
)
def test_parameter_counts(name, shape, expected):
    assert sum(p.numel() for p in build_model(name, shape, 10, seed=0).parameters()) == expected


def test_groupnorm_networks_keep_no_running_statistics():
    assert list(build_model("resnet10-gn", (3, 32, 32), 10, seed=0).buffers()) == []
    assert list(build_model("resnet10", (3, 32, 32), 10, seed=0).buffers()) != []


# Initialisation


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_are_xavier_uniform_biases_zero_and_norms_one(name):
    model = build_model(name, (1, 8, 8), 10, seed=1)
    for parameter_name, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            field = math.prod(parameter.shape[2:])
            bound = math.sqrt(6 / ((parameter.shape[0] + parameter.shape[1]) * field))
            largest = float(parameter.detach().abs().max())
            assert largest <= bound + 1e-6
            if parameter.numel() > 500:
                assert largest > 0.97 * bound
                assert float(parameter.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.1)
        elif parameter_name.endswith("bias"):
            assert float(parameter.detach().abs().max()) == 0.0
        else:
            assert torch.equal(parameter.detach(), torch.ones_like(parameter))


@pytest.mark.parametrize("name", NETWORKS)
def test_initialisation_is_decided_by_the_seed_and_leaves_the_global_generator_alone(name):
    build_model(name, (1, 8, 8), 10, seed=0)
    first = digest(build_model(name, (1, 8, 8), 10, seed=3).state_dict())
    torch.rand(5)
    assert digest(build_model(name, (1, 8, 8), 10, seed=3).state_dict()) == first
    assert digest(build_model(name, (1, 8, 8), 10, seed=4).state_dict()) != first
    model, before = build_model(name, (1, 8, 8), 10, seed=0), torch.get_rng_state()
    xavier_initialise(model, 9)
    assert torch.equal(torch.get_rng_state(), before)


class Everything(nn.Module):
    """Layers that reset themselves in different ways."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.recurrent = nn.GRU(8, 4, batch_first=True)
        self.norm = nn.BatchNorm1d(4)
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.head = nn.Linear(4, 3)

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.token)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.attention(torch.cat([x, self.token.expand(len(x), -1, -1)], dim=1))
        return self.head(self.norm(self.recurrent(tokens)[0][:, -1]))


def test_a_fresh_copy_remembers_nothing():
    """Whatever a trained network holds, its untrained copy is the same: nothing of the training is left in it."""
    trained, other = Everything(), Everything()
    with torch.no_grad():
        for tensor in trained.state_dict().values():
            tensor.add_(5)
    before = digest(trained.state_dict())
    assert digest(fresh_copy(trained, 1).state_dict()) == digest(fresh_copy(other, 1).state_dict())
    assert digest(fresh_copy(trained, 2).state_dict()) != digest(fresh_copy(trained, 1).state_dict())
    assert digest(trained.state_dict()) == before


# Refusals


def test_unknown_models_and_tables_for_image_networks_are_refused():
    with pytest.raises(InputError, match=r"^Model 'resnet99' is unknown; choose one of cnn, mlp, .*vit-20m\.$"):
        build_model("resnet99", (1, 8, 8), 10, seed=0)
    with pytest.raises(
        InputError, match=r"^Model 'cnn' needs images, but a sample has shape \(13,\); use the model 'mlp'\.$"
    ):
        build_model("cnn", (13,), 10, seed=0)


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.linear(x * mask)


class Picky(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        raise AssertionError


class TwoOutputs(nn.Linear):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x), x


def frozen() -> nn.Module:
    return nn.Linear(4, 3).requires_grad_(False)


def mixing() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False))


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            nn.Linear(4, 5),
            r"The model's output is \(5,\) for a sample, but the data has 3 classes, so it must be \(3,\)\.",
        ),
        (nn.Unflatten(1, (2, 2)), r"The model has no trainable parameter; .*"),
        (nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3))), r"The model's output is \(2, 3\) for a sample, .*"),
        (TwoOutputs(4, 3), r"The model's output is tuple for a sample, .*"),
        (nn.Linear(7, 3), r"The model cannot take samples of shape \(4,\): mat1 and mat2 .*"),
        (nn.Conv2d(1, 3, 3), r"The model cannot take samples of shape \(4,\): .*"),
        (TwoInputs(), r"The model cannot take samples of shape \(4,\): .*mask.*"),
        (Picky(4, 3), r"The model cannot take samples of shape \(4,\): AssertionError"),
        (frozen(), r"The model has no trainable parameter; set requires_grad on the ones that training may move\."),
        (nn.Sequential(nn.LazyLinear(3)), r"Layer '0' is lazy, .*; run one batch through it first\."),
        (mixing(), r"Layer '1' normalises by the batch also in evaluation, .*; set track_running_stats=True, .*"),
    ],
)
def test_unsuitable_models_are_refused_in_one_sentence(model, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$") as refusal:
        check_model(model, (4,), 3)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("training", [True, False])
def test_the_check_leaves_the_model_as_it_was(training):
    model = build_model("resnet10", (1, 8, 8), 4, seed=0).train(training)
    before = digest(model.state_dict())
    check_model(model, (1, 8, 8), 4)
    assert model.training == training
    assert digest(model.state_dict()) == before


def test_partly_frozen_and_own_networks_are_fine():
    model = ResNet((1, 8, 8), 4, width=8)
    model.stem.requires_grad_(False)
    check_model(model, (1, 8, 8), 4)
    check_model(Everything(), (5, 8), 3)
