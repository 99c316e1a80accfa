"""Distances between distributions of models and intervals of shares, against slow twins and closed forms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from fedforget.audit.distributions import (
    Estimate,
    klom,
    proportion_error,
    two_ensembles,
)
from fedforget.errors import InputError


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Shares


def test_the_error_of_a_share_is_never_zero():
    for trials in (1, 7, 1000):
        assert proportion_error(0, trials) == pytest.approx(proportion_error(trials, trials))
        assert proportion_error(0, trials) > 0
    assert proportion_error(0, 10) == pytest.approx(math.sqrt(2 * 12 / 14**3))
    assert proportion_error(5000, 10000) == pytest.approx(0.005, rel=1e-3)
    for hits, trials in ((0, 0), (-1, 5), (6, 5), (math.nan, 5)):
        with pytest.raises(InputError, match="at least one trial"):
            proportion_error(hits, trials)


def test_an_estimate_stays_within_its_range():
    assert Estimate.within_unit(0.9, 0.1, 2.0) == (0.9, 0.1, pytest.approx(0.7), 1.0)
    assert Estimate.within_unit(0.1, 0.1, 2.0) == (0.1, 0.1, 0.0, pytest.approx(0.3))


# KLoM


def slow_klom(unlearned: Sequence[float], oracle: Sequence[float]) -> float:
    u, o = ([min(100.0, max(-100.0, phi)) for phi in side] for side in (unlearned, oracle))
    low, high = min(*u, *o), max(*u, *o)
    high = high if high > low else low + 1

    def shares(values: Sequence[float]) -> list[float]:
        found = [0.0] * 20
        for value in values:
            place = 0
            while place < 19 and value >= low + (high - low) * ((place + 1) / 20):
                place += 1
            found[place] += 1 / len(values)
        return found

    return sum(p * math.log(p / max(q, 1e-5)) for p, q in zip(shares(u), shares(o), strict=True) if p > 0)


def test_klom_is_its_slow_twin():
    unlearned, oracle = 3 * normal(17, 23, seed=1) + 1, 3 * normal(30, 23, seed=2)
    unlearned[:, 3] = 250.0
    oracle[4, 5] = -1e6
    result = klom(unlearned.float(), oracle.float())
    assert result is not None
    unlearned, oracle = unlearned.float().double(), oracle.float().double()
    expected = [slow_klom(unlearned[:, i].tolist(), oracle[:, i].tolist()) for i in range(23)]
    assert result.tolist() == pytest.approx(expected, abs=1e-12)
    assert float(result.quantile(0.95)) == pytest.approx(float(np.percentile(expected, 95)))


def test_klom_is_the_authors_numpy_up_to_the_last_edge():
    """numpy.histogram over the joint range, which includes the last edge where the authors' digitize drops it."""
    unlearned, oracle = normal(50, 4, seed=3) + 0.5, normal(40, 4, seed=4)
    result = klom(unlearned, oracle)
    assert result is not None
    for i in range(4):
        u, o = unlearned[:, i].numpy(), oracle[:, i].numpy()
        edges = np.linspace(min(u.min(), o.min()), max(u.max(), o.max()), 21)
        p, q = (np.histogram(side, edges)[0] / len(side) for side in (u, o))
        there = p > 0
        expected = float(np.sum(p[there] * np.log(p[there] / np.maximum(q[there], 1e-5))))
        assert float(result[i]) == pytest.approx(expected, abs=1e-12)


def test_klom_closed_forms():
    """The same models: 0. No bin shared: log(1 / 1e-5). Half the models each in two bins against all in one."""
    same = normal(8, 5)
    assert klom(same, same) is not None
    assert klom(same, same).tolist() == pytest.approx([0.0] * 5, abs=1e-12)  # type: ignore[union-attr]
    apart = klom(torch.full((4, 2), 1.0), torch.full((6, 2), 2.0))
    assert apart is not None
    assert apart.tolist() == pytest.approx([math.log(1e5)] * 2)
    assert float(apart.quantile(0.95)) == pytest.approx(11.513, abs=1e-3)
    two, one = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [0.0]])
    assert float(klom(two, one)) == pytest.approx(0.5 * math.log(0.5) + 0.5 * math.log(0.5 / 1e-5))  # type: ignore[union-attr]
    assert float(klom(one, two)) == pytest.approx(math.log(2)), "the direction matters"  # type: ignore[union-attr]


def test_a_bin_begins_at_its_lower_edge():
    """Over [0, 20] in 20 bins, 3 lies with 3.5 and not with 2.5."""
    ends = torch.tensor([[0.0], [20.0]])
    with_three, with_above, with_below = (torch.cat([ends, torch.tensor([[x]])]) for x in (3.0, 3.5, 2.5))
    assert float(klom(with_three, with_above)) == pytest.approx(0.0, abs=1e-12)  # type: ignore[union-attr]
    assert float(klom(with_three, with_below)) > 3  # type: ignore[union-attr]


def test_klom_sees_an_ensemble_at_the_top():
    """All unlearned margins at the limit, the joint maximum: as far as can be, not nothing."""
    result = klom(torch.full((5, 1), 400.0), normal(5, 1))
    assert result is not None
    assert float(result) == pytest.approx(math.log(1e5))
    tied = klom(torch.full((5, 1), 3.3), torch.full((4, 1), 3.3))
    assert tied is not None
    assert float(tied) == 0


def test_ensembles_of_other_examples_are_refused():
    assert klom(torch.zeros(3, 0), torch.zeros(2, 0)) is None
    assert klom(torch.zeros(1, 1), torch.zeros(1, 1)) is not None
    with pytest.raises(InputError, match="same examples"):
        klom(torch.zeros(3, 4), torch.zeros(3, 5))
    with pytest.raises(InputError, match="at least one unlearned"):
        klom(torch.zeros(0, 4), torch.zeros(3, 4))
    with pytest.raises(InputError, match="not a finite number"):
        klom(torch.full((2, 2), math.nan), torch.zeros(3, 2))
    with pytest.raises(InputError, match="dimensions"):
        two_ensembles(torch.zeros(3), torch.zeros(3, 4))


# Predictions


# Tug of war
