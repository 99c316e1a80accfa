"""The Fisher diagonal against one backward pass per sample, and against logistic regression's closed form."""

from __future__ import annotations

import math

import pytest
import slow_twins
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.methods.fedaf.sketch import Jacobian
from fedforget.methods.fisher import fisher_diagonal
from fedforget.models import build_model, xavier_initialise
from fedforget.params import digest


def random_samples(shape: tuple[int, ...], n: int, classes: int, seed: int) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, *shape, generator=generator)
    return Samples.of(features, torch.randint(0, classes, (n,), generator=generator), first_id=1000)


def identity(features: Tensor) -> Tensor:
    return features


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(["mlp", "batchnorm"]),
    labels=st.sampled_from(["data", "sampled", "mas"]),
    n=st.integers(1, 20),
    classes=st.integers(2, 4),
    batch_size=st.integers(1, 9),
    frozen=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_fisher_diagonal_equals_the_mean_of_squared_per_sample_gradients(
    kind, labels, n, classes, batch_size, frozen, seed
):
    if kind == "mlp":
        shape, model = (4,), nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, classes))
    else:
        layers = [nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, classes)]
        shape, model = (1, 4, 4), nn.Sequential(*layers)
        model[1].running_var.fill_(2.0)
    xavier_initialise(model, seed)
    next(model.parameters()).requires_grad_(not frozen)
    samples, before = random_samples(shape, n, classes, seed), digest(model.state_dict())
    got = fisher_diagonal(Jacobian(model, samples, identity, labels=labels, seed=seed), batch_size=batch_size)
    expected = slow_twins.fisher_diagonal(model, samples, labels, seed)
    assert got.shape == expected.shape
    assert torch.allclose(got.double(), expected, rtol=1e-4, atol=1e-6 * float(expected.max()))
    assert digest(model.state_dict()) == before, "weights and running statistics stay as they are"


@pytest.mark.parametrize("name", ["cnn", "vit"])
def test_shipped_networks(name):
    model, samples = build_model(name, (1, 8, 8), 3, seed=0), random_samples((1, 8, 8), 4, 3, seed=0)
    got = fisher_diagonal(Jacobian(model, samples, identity, labels="data"), batch_size=3)
    expected = slow_twins.fisher_diagonal(model, samples, "data", seed=0)
    assert torch.allclose(got.double(), expected, rtol=1e-3, atol=1e-5 * float(expected.max()))


class Logistic(nn.Module):
    """p(y = 1 | x) = 1 / (1 + exp(-w x))."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(w)

    def forward(self, x: Tensor) -> Tensor:
        z = x @ self.w
        return torch.stack([torch.zeros_like(z), z], dim=1)


def logistic(n: int) -> tuple[Logistic, Samples, Tensor]:
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(1))
    model = Logistic(torch.tensor([0.7, -1.0, 0.4]))
    p = torch.sigmoid(x @ model.w.detach())
    labels = (torch.rand(n, generator=torch.Generator().manual_seed(2)) < p).long()
    return model, Samples.of(x, labels), p


def test_data_labels_on_logistic_regression():
    """(1/n) sum (p - y)^2 x^2, exactly."""
    model, samples, p = logistic(50)
    expected = ((p - samples.labels)[:, None] * samples.features).square().mean(dim=0)
    assert torch.allclose(fisher_diagonal(Jacobian(model, samples, identity, labels="data")), expected, rtol=1e-5)


def test_sampled_labels_on_logistic_regression_in_expectation():
    """E over the labels = (1/n) sum p (1 - p) x^2, the true Fisher."""
    model, samples, p = logistic(50)
    expected = ((p * (1 - p))[:, None] * samples.features.square()).mean(dim=0)
    rows = [Jacobian(model, samples, identity, seed=seed) for seed in range(300)]
    drawn = torch.stack([fisher_diagonal(j, batch_size=50) for j in rows])
    standard_error = drawn.std(dim=0) / math.sqrt(len(drawn))
    assert float(((drawn.mean(dim=0) - expected).abs() / standard_error).max()) < 4.5
    assert float((standard_error / expected).max()) < 0.05, "tight enough to tell"


def test_it_is_not_the_squared_mean_gradient_of_minibatches():
    """At the true weights gradients cancel in a batch: the squared mean is smaller by about the batch size."""
    model, samples, _ = logistic(1024)
    batch = 32
    squared_means = []
    for part in torch.arange(len(samples)).split(batch):
        loss = F.cross_entropy(model(samples.features[part]), samples.labels[part])
        squared_means.append(torch.autograd.grad(loss, model.w)[0].square())
    wrong = torch.stack(squared_means).mean(dim=0)
    right = fisher_diagonal(Jacobian(model, samples, identity, labels="data"), batch_size=batch)
    assert float((wrong / right).max()) < 3 / batch


def test_the_batch_size_does_not_matter():
    model, samples, _ = logistic(50)
    one, many = (fisher_diagonal(Jacobian(model, samples, identity), batch_size=b) for b in (1, 50))
    assert torch.allclose(one, many, rtol=1e-5)
