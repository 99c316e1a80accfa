"""Partitions: every sample at most once, the same seed the same parts, and the skew that was asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedforget.data.partition import (
    partition,
    partition_dirichlet,
    partition_iid,
    partition_shards,
)
from fedforget.errors import InputError

LABELS = torch.arange(1000) % 10

seeds = st.integers(0, 2**31)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, int, int]:
    """Labels, not necessarily of every class, a number of clients that fits, and a seed."""
    labels = draw(st.lists(st.integers(0, 5), min_size=1, max_size=60))
    return torch.tensor(labels), draw(st.integers(1, len(labels))), draw(seeds)


def assert_exactly_once(parts: list[Tensor], n: int, clients: int) -> None:
    assert len(parts) == clients
    assert all(len(part) > 0 for part in parts)
    assert all(part.dtype == torch.int64 for part in parts)
    assert all(torch.equal(part, part.sort().values) for part in parts)
    assert torch.cat(parts).sort().values.tolist() == list(range(n))


def assert_same(first: list[Tensor], second: list[Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@given(cases())
def test_iid_gives_every_sample_to_one_client_in_equal_parts(case) -> None:
    labels, clients, seed = case
    parts = partition_iid(len(labels), clients, seed)
    assert_exactly_once(parts, len(labels), clients)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert_same(parts, partition_iid(len(labels), clients, seed))


@given(cases(), st.floats(min_value=0, exclude_min=True, allow_infinity=False))
@settings(max_examples=200)
def test_dirichlet_gives_every_sample_to_one_client_whatever_alpha(case, alpha) -> None:
    labels, clients, seed = case
    parts = partition_dirichlet(labels, clients, seed, alpha)
    assert_exactly_once(parts, len(labels), clients)
    assert_same(parts, partition_dirichlet(labels, clients, seed, alpha))


@given(cases(), st.integers(1, 3))
def test_shards_give_every_sample_to_one_client_and_few_classes_each(case, per_client) -> None:
    labels, clients, seed = case
    if clients * per_client > len(labels):
        with pytest.raises(InputError, match="samples cannot be spread over"):
            partition_shards(labels, clients, seed, per_client)
        return
    parts = partition_shards(labels, clients, seed, per_client)
    assert_exactly_once(parts, len(labels), clients)
    assert_same(parts, partition_shards(labels, clients, seed, per_client))


@given(seeds, st.integers(1, 4))
def test_a_shard_of_one_class_size_holds_one_class(seed, per_client) -> None:
    labels = torch.arange(240) % 12  # 12 classes of 20 samples, and as many shards
    parts = partition_shards(labels, 12 // per_client, seed, per_client)
    assert all(len(labels[part].unique()) == per_client for part in parts)


@pytest.mark.parametrize("scheme", ["iid", "dirichlet:0.5", "shards:2"])
def test_another_seed_gives_other_parts(scheme) -> None:
    first, second = partition(scheme, LABELS, 4, 0), partition(scheme, LABELS, 4, 1)
    assert any(not torch.equal(a, b) for a, b in zip(first, second, strict=True))


def skew(alpha: float) -> float:
    """Mean distance between a client's class shares and everybody's, over ten seeds: 0 for IID, 0.9 at most here."""
    distances = []
    for seed in range(10):
        for part in partition_dirichlet(LABELS, 5, seed, alpha):
            shares = LABELS[part].bincount(minlength=10) / len(part)
            distances.append(float((shares - 0.1).abs().sum() / 2))
    return float(np.mean(distances))


def test_dirichlet_skew_grows_as_alpha_falls() -> None:
    """Down to alphas where gamma draws underflow: there a class must lie with one client, not be split evenly."""
    skews = [skew(alpha) for alpha in (1000.0, 10.0, 1.0, 0.1, 0.01)]
    assert skews == sorted(skews)
    assert skews[0] < 0.05
    assert skews[-1] > 0.6
    assert skew(1e-300) == pytest.approx(skew(1e-6), abs=0.1)


@pytest.mark.parametrize("alpha", [1e-300, 1e-10, 1e-3])
def test_tiny_alpha_gives_each_class_to_one_client(alpha) -> None:
    labels = torch.arange(2000) % 40  # so many classes that no client stays empty
    for part in partition_dirichlet(labels, 3, 0, alpha):
        counts = labels[part].bincount(minlength=40)
        assert set(counts.tolist()) == {0, 50}


@pytest.mark.parametrize("alpha", [1e10, 1.7e308])
def test_huge_alpha_gives_each_client_the_same_share(alpha) -> None:
    assert [len(part) for part in partition_dirichlet(LABELS, 4, 0, alpha)] == [250] * 4


def test_dirichlet_proportions_have_the_mean_and_spread_of_the_distribution() -> None:
    """Share of a class that a client gets: mean 1/K, variance (1/K)(1 - 1/K) / (K alpha + 1)."""
    clients, alpha, size = 4, 0.5, 1000
    labels = torch.zeros(size, dtype=torch.int64)
    shares = np.array([[len(p) / size for p in partition_dirichlet(labels, clients, s, alpha)] for s in range(400)])
    assert shares.mean(axis=0) == pytest.approx(1 / clients, abs=0.05)
    expected = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert shares.var() == pytest.approx(expected, rel=0.12)


def test_the_text_form_means_the_functions() -> None:
    assert_same(partition("iid", LABELS, 4, 3), partition_iid(1000, 4, 3))
    assert_same(partition("dirichlet:0.1", LABELS, 4, 3), partition_dirichlet(LABELS, 4, 3, 0.1))
    assert_same(partition("dirichlet", LABELS, 4, 3), partition_dirichlet(LABELS, 4, 3, 0.5))
    assert_same(partition("shards:3", LABELS, 4, 3), partition_shards(LABELS, 4, 3, 3))


@pytest.mark.parametrize(
    ("scheme", "clients", "sentence"),
    [
        ("iid", 0, "0 clients were asked for, but there must be at least 1"),
        ("iid", -3, "-3 clients were asked for"),
        ("iid", 1001, "1000 samples cannot be spread over 1001 clients"),
        ("dirichlet:1", 1001, "1000 samples cannot be spread over 1001 clients"),
        ("dirichlet:0", 4, "concentration is 0.0"),
        ("dirichlet:-1", 4, "concentration is -1.0"),
        ("dirichlet:nan", 4, "concentration is nan"),
        ("dirichlet:inf", 4, "concentration is inf"),
        ("dirichlet:much", 4, "'much' is not a fitting number"),
        ("shards:0", 4, "0 shards were asked for"),
        ("shards:-1", -4, "-4 clients were asked for"),
        ("shards:300", 4, "1000 samples cannot be spread over 1200 shards"),
        ("shards:2.5", 4, "'2.5' is not a fitting number"),
        ("iid:3", 4, "'iid:3' is unknown; choose iid"),
        ("stripes", 4, "'stripes' is unknown; choose iid, dirichlet:0.5 or shards:2"),
    ],
)
def test_wrong_schemes_are_refused_in_one_sentence(scheme, clients, sentence) -> None:
    with pytest.raises(InputError, match=sentence):
        partition(scheme, LABELS, clients, 0)
