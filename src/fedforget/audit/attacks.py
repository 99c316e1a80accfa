"""Membership attacks: can somebody who sees the model tell what it was trained on?

Scores are higher for what looks more like a member (audit.scores). Shares, accuracies and AUC are in [0, 1]; 0.5 is
chance for accuracy and AUC. None stands where there is nothing, or too little, to measure. Except in `u_lira`, errors
are over examples and hold the model fixed."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedforget.audit.distributions import Estimate, proportion_error, two_ensembles
from fedforget.audit.scores import finite
from fedforget.audit.student import student_quantile
from fedforget.audit.verdict import Reading
from fedforget.errors import InputError


class Roc(NamedTuple):
    """Shares of non-members and members with a score of at least each threshold; the first is infinite, and the others
    are the distinct scores from the highest down: [points] each."""

    fpr: Tensor
    tpr: Tensor


def roc(members: Tensor, non_members: Tensor) -> Roc:
    """The exact empirical curve: one point for each distinct score, so that ties make one slanted piece. The area under
    the pieces is `auc`."""
    members, non_members = _two_sides(members, non_members)
    if not len(members) or not len(non_members):
        raise InputError("A ROC curve needs at least one member and one non-member.")
    thresholds = torch.cat([torch.cat([members, non_members]).unique(), torch.tensor([torch.inf]).double()]).flip(0)
    return Roc(_share_reaching(non_members, thresholds), _share_reaching(members, thresholds))


def auc(members: Tensor, non_members: Tensor) -> Reading | None:
    """A = P(member > non-member) + P(member = non-member) / 2, with DeLong's variance; None where a side is empty.

    Var A = s^2(V) / m + s^2(W) / n, where V_i is the share of the n non-members below member i, W_j that of the m
    members above non-member j (a tie counts half), and s^2 the sample variance (DeLong et al. 1988; by sorting as in
    Sun and Xu 2014).

    Where that variance cannot be had (one score on a side) or is 0 (sides apart, or all tied), the error is that of a
    share A of min(m, n) trials, as Var A <= A (1 - A) / min(m, n) (van Dantzig 1951), with Agresti and Coull's
    two hits and misses."""
    members, non_members = _two_sides(members, non_members)
    m, n = len(members), len(non_members)
    if not m or not n:
        return None
    v, w = _share_below(members, non_members.sort().values), 1 - _share_below(non_members, members.sort().values)
    area = float(v.mean())
    error = math.sqrt(float(v.var() / m + w.var() / n)) if min(m, n) > 1 else 0.0
    return Reading(area, error or proportion_error(area * min(m, n), min(m, n)))


def rmia(
    target: Tensor,
    target_reference: Tensor,
    population: Tensor,
    population_reference: Tensor,
    *,
    a: float = 0.3,
    gamma: float = 1.0,
) -> Tensor:
    """RMIA in its offline form (Zarifzadeh et al. 2024, arXiv 2312.03262): one score in [0, 1] for each x, [n].

    From the probabilities p_y that the model gives x, [n], and a population sample z, [z], and that K reference models
    give them, [K, n] and [K, z]; no reference model was trained on x or z, and no x is in z:
        LR(x, z) = (p(x | model) / p(x)) / (p(z | model) / p(z)),      score(x) = share of z with LR(x, z) >= gamma,
        p(x) = ((1 + a) p_out(x) + (1 - a)) / 2,                       p_out = mean over the reference models.
    `a` stands in for the models trained on x that the offline form lacks: 1 takes p_out as it is, and lower values
    move p(x) towards 1. `a` = 0.3 and `gamma` = 1 are what the authors' Privacy Meter uses."""
    if not 0 <= a <= 1 or not 0 < gamma < math.inf:
        raise InputError(f"RMIA needs a in [0, 1] and gamma > 0, not {a} and {gamma}.")
    if not len(population):
        raise InputError("RMIA compares with a population sample, which is empty.")
    of_x = _over_marginal(target, target_reference, a)
    of_z = _over_marginal(population, population_reference, a).sort().values
    return torch.searchsorted(gamma * of_z, of_x, right=True).double() / len(of_z)


def _over_marginal(model: Tensor, reference: Tensor, a: float) -> Tensor:
    """p(x | model) / p(x)."""
    model, reference = finite(model, 1, "probabilities"), finite(reference, 2, "reference models' probabilities")
    if not len(reference) or reference.shape[1] != len(model):
        raise InputError("RMIA needs a reference model or more, each with one probability for every example.")
    if not all(bool(((p >= 0) & (p <= 1 + 1e-6)).all()) for p in (model, reference)):
        raise InputError("RMIA needs probabilities, between 0 and 1.")
    marginal = ((1 + a) * reference.mean(0) + (1 - a)) / 2
    return model / marginal.clamp_min(torch.finfo(torch.float64).tiny)  # a = 1 and p_out = 0 would divide by 0


class ULira(NamedTuple):
    """`accuracy` of "unlearned if LLR > 0" (0 counts half), `auc`, and `tpr` at 1 % FPR (None below 100 examples; its
    chance is j / (n + 1), j = floor(n / 100) + 1), with intervals over models."""

    accuracy: Estimate
    auc: Estimate
    tpr: Estimate | None


FEWEST_MODELS, MOST_GROUPS = 4, 16
MODELS_FOR_OWN_VARIANCE = 64
VARIANCE_FLOOR = 1e-6


def u_lira(phi_unlearned: Tensor, phi_retrained: Tensor) -> ULira | None:
    """U-LiRA (Hayes et al. 2024, arXiv 2403.01218) on the target's `margin` under M models that were trained on it and
    unlearned it, [M, n], and K that never saw it, [K, n]; None without an example.

    LLR_i = log N(phi_i; mu_u,i, s_u,i^2) - log N(phi_i; mu_r,i, s_r,i^2), with Gaussians fitted over the models, but
    not over the two that are being told apart: for each of the M K pairs, both are left out of the fit and scored, and
    accuracy, AUC and TPR are means over the pairs (leave-pair-out; Airola et al. 2011). Given the fit, the two are
    alike wherever unlearned models are like retrained ones, so that chance is exactly 0.5; leaving out one alone would
    put it below. The variances are each example's own from 64 models of each kind on, and their mean over the examples
    with fewer (Carlini et al. 2022), at least 1e-6.

    Examples of one model are correlated, so the intervals are over models and hold the examples fixed: leave one model
    out and do everything again (jackknife), Var = sum over both kinds of (k - 1)/k sum_j (v_(-j) - mean)^2, and
    value +- t error within [0, 1], t of Student with min(M, K) - 1 degrees of freedom. Of more than 16 models one of 16
    groups is left out at a time, k = 16. An error of 0 (all pairs told apart) becomes that of a share of min(M, K)
    trials (`proportion_error`)."""
    unlearned, retrained = two_ensembles(phi_unlearned, phi_retrained)
    fewest = min(len(unlearned), len(retrained))
    if fewest < FEWEST_MODELS:
        raise InputError(f"U-LiRA needs at least {FEWEST_MODELS} unlearned and as many retrained models, not {fewest}.")
    if not unlearned.shape[1]:
        return None
    own_variance = fewest >= MODELS_FOR_OWN_VARIANCE
    values = _leave_pair_out(unlearned, retrained, own_variance)
    fewer_unlearned = [_leave_pair_out(rest, retrained, own_variance) for rest in _without_each(unlearned)]
    fewer_retrained = [_leave_pair_out(unlearned, rest, own_variance) for rest in _without_each(retrained)]
    errors = (_jackknife_variance(fewer_unlearned) + _jackknife_variance(fewer_retrained)).sqrt()
    reach = student_quantile(0.975, min(fewest, MOST_GROUPS) - 1)
    accuracy, area, found = (
        Estimate.within_unit(value, error or proportion_error(value * fewest, fewest), reach)
        for value, error in zip(values.tolist(), errors.tolist(), strict=True)
    )
    enough = _allowed_mistakes(unlearned.shape[1])
    return ULira(accuracy, area, found if enough else None)


def _leave_pair_out(unlearned: Tensor, retrained: Tensor, own_variance: bool) -> Tensor:
    """[accuracy, AUC, TPR]."""
    allowed = _allowed_mistakes(unlearned.shape[1])
    to_unlearned, to_retrained = _fits_without_one(unlearned, own_variance), _fits_without_one(retrained, own_variance)
    totals = torch.zeros(3, dtype=torch.float64)
    for m, phi in enumerate(unlearned):
        fit = (to_unlearned[0][m], to_unlearned[1][m])
        one, others = (_log_density(x, *fit) - _log_density(x, *to_retrained) for x in (phi, retrained))  # [K, n] both
        correct = (1 + (one.sign().mean() - others.sign().mean()) / 2) / 2
        others = others.sort(1).values
        found = (one > others[:, -1 - allowed, None]).double().mean()
        totals += torch.stack([correct, _share_below(one, others).mean(), found])
    return totals / len(unlearned)


def _fits_without_one(phi: Tensor, own_variance: bool) -> tuple[Tensor, Tensor]:
    """Means and variances, [k, n] each, over the k - 1 models other than each one."""
    k = len(phi)
    centred = phi - phi.mean(0)
    squares = centred.square().sum(0) - centred.square() * k / (k - 1)
    variances = squares / (k - 2)
    if not own_variance:
        variances = variances.mean(1, keepdim=True).expand_as(phi)
    return phi.mean(0) - centred / (k - 1), variances.clamp_min(VARIANCE_FLOOR)


def _log_density(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """log N(x; mean, variance), without the constant that every Gaussian shares."""
    return -((x - mean).square() / variance + variance.log()) / 2


def _without_each(models: Tensor) -> list[Tensor]:
    """The models without each one of them, or without each of 16 groups dealt in turn where there are more."""
    groups = torch.arange(len(models)) % MOST_GROUPS
    return [models[groups != group] for group in groups.unique()]


def _jackknife_variance(replicates: list[Tensor]) -> Tensor:
    return (len(replicates) - 1) * torch.stack(replicates).var(0, unbiased=False)


def _two_sides(members: Tensor, non_members: Tensor) -> tuple[Tensor, Tensor]:
    return finite(members, 1, "members' scores"), finite(non_members, 1, "non-members' scores")


def _share_reaching(scores: Tensor, thresholds: Tensor) -> Tensor:
    """The share of `scores` that are at least each threshold."""
    return (len(scores) - torch.searchsorted(scores.sort().values, thresholds)).double() / len(scores)


def _share_below(scores: Tensor, ordered: Tensor) -> Tensor:
    """For each of `scores` the share of `ordered` below it, a tie counting half; row by row if there are rows."""
    below, not_above = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    return (below + not_above).double() / (2 * ordered.shape[-1])


def _allowed_mistakes(non_members: int) -> int:
    """How many non-members may be taken for members: 1 % of them."""
    return non_members // 100
