"""Rank-s PCA against numpy's decomposition of an explicit J, and its error against the sketch's."""

from __future__ import annotations

import pytest
import slow_twins
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.methods.fedaf.extensions import principal
from fedforget.methods.fedaf.extensions.principal import all_rows, principal_rows, samples_that_fit, spectral_error
from fedforget.methods.fedaf.knowledge_preserver import SketchPreserver
from fedforget.methods.fedaf.settings import FullSettings
from fedforget.methods.fedaf.sketch import Jacobian, build_sketch
from fedforget.models import xavier_initialise
from fedforget.params import digest, flatten, trainable


def identity(features: Tensor) -> Tensor:
    return features


def world(n: int, seed: int, classes: int = 3, batchnorm: bool = False) -> tuple[nn.Module, Samples]:
    layers: list[nn.Module] = [nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, classes)]
    if batchnorm:
        layers.insert(1, nn.BatchNorm1d(5))
    model = xavier_initialise(nn.Sequential(*layers), seed)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (n,), generator=generator)
    return model, Samples.of(torch.randn(n, 4, generator=generator), labels, first_id=500)


@settings(max_examples=30, deadline=None)
@given(
    labels=st.sampled_from(["data", "sampled", "mas"]),
    n=st.integers(1, 25),
    rows=st.integers(1, 30),
    batch_size=st.integers(1, 9),
    batchnorm=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_the_rows_are_those_of_the_svd(labels, n, rows, batch_size, batchnorm, seed):
    model, samples = world(n, seed, batchnorm=batchnorm)
    before = digest(model.state_dict())
    got = principal_rows(Jacobian(model, samples, identity, seed=seed, labels=labels), rows=rows, batch_size=batch_size)
    j = slow_twins.explicit_j(model, samples, labels, seed)
    expected = slow_twins.principal_rows(j, rows)
    scale = float(j.norm() ** 2)
    assert got.rows.shape == (min(rows, n), j.shape[1])
    kept = got.rows.double()
    assert torch.allclose(kept.T @ kept, expected.T @ expected, atol=2e-5 * scale), "up to the rows' signs"
    assert got.mean_square == pytest.approx(scale / n, rel=1e-4), "with what the rows leave out"
    assert digest(model.state_dict()) == before


def test_what_memory_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch):
    model, samples = world(11, seed=0)
    size = sum(p.numel() for p in trainable(model).values())
    monkeypatch.setattr(principal, "available_bytes", lambda device: 4 * size * 50)
    assert samples_that_fit(model) == 10
    with pytest.raises(InputError, match=r"memory holds those of 10 of the 11 samples; set sketch_samples to 10 or"):
        principal_rows(Jacobian(model, samples, identity, seed=0), rows=3)
    monkeypatch.setattr(principal, "available_bytes", lambda device: 0)
    assert samples_that_fit(model) == 1


@settings(max_examples=20, deadline=None)
@given(
    n=st.integers(1, 20), rows=st.integers(1, 12), strength=st.sampled_from([0.1, 10.0, 1e4]), seed=st.integers(0, 99)
)
def test_the_proximal_step_is_the_exact_minimiser(n, rows, strength, seed):
    model, samples = world(n, seed)
    kept = principal_rows(Jacobian(model, samples, identity, seed=seed), rows=rows)
    anchor = {name: p.detach().clone() for name, p in trainable(model).items()}
    generator = torch.Generator().manual_seed(seed)
    theta = {name: a + 0.1 * torch.randn(a.shape, generator=generator) for name, a in anchor.items()}
    start, lr = flatten(theta).double(), 0.05
    SketchPreserver(kept, anchor, strength=strength, lr=lr).proximal_step(theta)
    curvature = kept.rows.double().T @ kept.rows.double() / n
    expected = slow_twins.quadratic_minimiser(curvature, flatten(anchor).double(), start, strength, lr)
    assert torch.allclose(flatten(theta).double(), expected, atol=2e-5 * float(start.norm()))


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 20), rows=st.integers(1, 10), seed=st.integers(0, 99))
def test_the_error_is_that_of_the_whole_matrices(n, rows, seed):
    model, samples = world(n, seed)
    j = all_rows(Jacobian(model, samples, identity, labels="sampled", seed=seed))
    assert torch.allclose(j.double(), slow_twins.explicit_j(model, samples, "sampled", seed), atol=1e-5)
    generator = torch.Generator().manual_seed(seed)
    some = torch.randn(rows, j.shape[1], generator=generator)
    assert spectral_error(j, some) == pytest.approx(slow_twins.spectral_error(j.double(), some.double()), rel=1e-4)
    assert spectral_error(j, j) < 1e-6


def test_no_rows_of_that_rank_are_better_and_the_sketch_is_within_its_variance():
    """PCA's error is the next squared singular value; the sketch's is larger for every seed, and shrinks with s."""
    model, samples = world(60, seed=1, classes=5)
    j = all_rows(Jacobian(model, samples, identity, labels="sampled", seed=0))
    w = torch.linalg.svdvals(j.double())
    means = []
    for rows in (2, 5, 20):
        best = principal_rows(Jacobian(model, samples, identity, seed=0), rows=rows)
        error = spectral_error(j, best.rows)
        assert error == pytest.approx(float(w[rows] ** 2 / w[0] ** 2), rel=1e-3, abs=1e-6)
        own = all_rows(Jacobian(model, samples, identity, labels="data", seed=0))
        sketched = [
            spectral_error(own, build_sketch(Jacobian(model, samples, identity, "data", seed), rows=rows).rows)
            for seed in range(8)
        ]
        least = principal_rows(Jacobian(model, samples, identity, seed=0, labels="data"), rows=rows)
        assert min(sketched) > spectral_error(own, least.rows)
        means.append(sum(sketched) / len(sketched))
    assert means == sorted(means, reverse=True)


def test_a_federation_has_no_common_components():
    with pytest.raises(InputError, match="do not add up as sketches do; use the preserver 'sketch'"):
        FullSettings(preserver="pca", sketch_scope="federation")
