"""How far unlearned models are from retrained ones as distributions, and how sure a share or an estimate is.

Shares are in [0, 1] and accuracies in percent. Everything is computed in double precision."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedforget.audit.scores import MARGIN_LIMIT, finite
from fedforget.audit.verdict import Reading
from fedforget.errors import InputError

FEWEST_JUDGED = 5
"""Of fewer samples nothing is read: their error is not known well enough for a p-value. Counted out over all outcomes
of three oracles and one more, a share of 1 or 2 samples accuses up to 10 % of the models that never saw them, where
LEVEL is 2.5 %; one of 5 or more at most LEVEL (tests/audit/test_few_samples.py)."""
KLOM_BINS = 20
KLOM_FLOOR = 1e-5


class Estimate(NamedTuple):
    """A value with its standard error, which is never 0 (verdicts divide by it), and its 95 % interval."""

    value: float
    error: float
    low: float
    high: float

    @classmethod
    def within_unit(cls, value: float, error: float, reach: float) -> Estimate:
        """value +- reach error, cut to [0, 1]."""
        return cls(value, error, max(0.0, value - reach * error), min(1.0, value + reach * error))


def proportion_error(hits: float, trials: int) -> float:
    """Standard error of a share after two hits and two misses are added, sqrt(p~ (1 - p~) / (n + 4)) with
    p~ = (hits + 2) / (n + 4) (Agresti and Coull 1998). Unlike sqrt(p (1 - p) / n) it is not 0 where all or none hit."""
    if trials < 1 or not 0 <= hits <= trials:
        raise InputError(f"A share needs 0 to {trials} hits in at least one trial, not {hits}.")
    share = (hits + 2) / (trials + 4)
    return math.sqrt(share * (1 - share) / (trials + 4))


def percentage(hits: float, judged: int) -> Reading | None:
    """The share of hits in percent with its error; None where too few were judged to know one."""
    if judged < FEWEST_JUDGED:
        return None
    return Reading(100.0 * hits / judged, 100.0 * proportion_error(hits, judged))


def klom(phi_unlearned: Tensor, phi_oracle: Tensor) -> Tensor | None:
    """KL divergence of margins (Georgiev et al., ICLR 2025, arXiv 2410.23232), from the `margin` of n examples under M
    unlearned models, [M, n], and K retrained ones, [K, n]; None without an example.

    Per example D_KL(unlearned || oracle) = sum_{b: u_b > 0} u_b log(u_b / max(o_b, 1e-5)) in nats, where u_b and o_b
    are the shares of models in bin b of 20 equal bins over the joint range of both, margins clipped to +-100: the
    direction, the bins and the floor of the authors' code. At most log(1e5) = 11.5; the paper reports the 95th
    percentile over the examples. One difference: the last bin includes its upper edge, as in every histogram. The
    authors' code drops whatever equals the joint maximum, and with it the whole ensemble where all margins are there.

    Equal distributions do not give 0: an empty bin of the oracle's costs up to 11.5 u_b, and few models leave many
    bins empty. Compare with klom(one half of the oracles, the other half)."""
    unlearned, oracle = two_ensembles(phi_unlearned, phi_oracle)
    if unlearned.shape[1] == 0:
        return None
    unlearned, oracle = (phi.clamp(-MARGIN_LIMIT, MARGIN_LIMIT).T.contiguous() for phi in (unlearned, oracle))
    low = torch.minimum(unlearned.amin(1), oracle.amin(1))
    high = torch.maximum(unlearned.amax(1), oracle.amax(1))
    width = torch.where(high > low, high - low, 1.0)
    inner = low[:, None] + width[:, None] * (torch.arange(1, KLOM_BINS, dtype=torch.float64) / KLOM_BINS)
    u, o = _bin_shares(unlearned, inner), _bin_shares(oracle, inner)
    divergences: Tensor = (torch.special.xlogy(u, u) - u * o.clamp_min(KLOM_FLOOR).log()).sum(1)
    return divergences


def _bin_shares(values: Tensor, inner_edges: Tensor) -> Tensor:
    """[n, bins]: the share of each row's values in each bin."""
    places = torch.searchsorted(inner_edges, values, right=True)
    counts = torch.zeros(len(values), KLOM_BINS, dtype=torch.float64)
    return counts.scatter_add_(1, places, torch.ones_like(values)) / values.shape[1]


def two_ensembles(unlearned: Tensor, oracle: Tensor) -> tuple[Tensor, Tensor]:
    """Both in double precision, [models, examples]; an error unless they are of the same examples."""
    unlearned, oracle = (
        finite(unlearned, 2, "unlearned models' margins"),
        finite(oracle, 2, "retrained models' margins"),
    )
    if not len(unlearned) or not len(oracle):
        raise InputError("Comparing distributions over models needs at least one unlearned and one retrained model.")
    if unlearned.shape[1] != oracle.shape[1]:
        raise InputError(
            f"The unlearned models' margins are of {unlearned.shape[1]} examples and the retrained models' of"
            f" {oracle.shape[1]}; both need the same examples."
        )
    return unlearned, oracle
