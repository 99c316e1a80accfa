"""Attacks, against loops over all pairs, resampling, and distributions whose answer is known."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from fedforget.audit import attacks
from fedforget.audit.attacks import auc, rmia, roc, u_lira
from fedforget.audit.distributions import proportion_error
from fedforget.audit.student import student_quantile
from fedforget.audit.verdict import Reading
from fedforget.errors import InputError

NOBODY = torch.zeros(0)
PHI = NormalDist().cdf


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sides(m: int, n: int, shift: float, seed: int = 0, grid: float | None = None) -> tuple[Tensor, Tensor]:
    """Normal scores of variance 1, `shift` apart; rounded to a grid there are ties."""
    drawn = generator(seed)
    both = torch.randn(m, generator=drawn).double() + shift, torch.randn(n, generator=drawn).double()
    return both if grid is None else ((both[0] / grid).round() * grid, (both[1] / grid).round() * grid)


def known_auc(members: Tensor, non_members: Tensor) -> Reading:
    result = auc(members, non_members)
    assert result is not None
    return result


def ordered(x: float, y: float) -> float:
    return 1.0 if x > y else 0.5 if x == y else 0.0


# ROC and AUC


@pytest.mark.parametrize("grid", [None, 0.5])
def test_roc_is_counted_at_every_threshold(grid: float | None):
    members, others = sides(25, 40, 0.7, grid=grid)
    curve = roc(members, others)
    thresholds = [math.inf, *sorted({*members.tolist(), *others.tolist()}, reverse=True)]
    for fpr, tpr, threshold in zip(*(side.tolist() for side in curve), thresholds, strict=True):
        assert tpr == sum(x >= threshold for x in members.tolist()) / 25
        assert fpr == sum(x >= threshold for x in others.tolist()) / 40
    assert float(torch.trapezoid(curve.tpr, curve.fpr)) == pytest.approx(known_auc(members, others).value)


def slow_delong(members: Tensor, others: Tensor) -> tuple[float, float]:
    """All m n pairs, and the variances of their means by row and by column."""
    m, n = len(members), len(others)
    pairs = [[ordered(x, y) for y in others.tolist()] for x in members.tolist()]
    area = sum(map(sum, pairs)) / (m * n)
    rows = [sum(row) / n for row in pairs]
    columns = [sum(row[j] for row in pairs) / m for j in range(n)]
    variance = sum((v - area) ** 2 for v in rows) / (m - 1) / m + sum((w - area) ** 2 for w in columns) / (n - 1) / n
    return area, math.sqrt(variance)


@pytest.mark.parametrize(("m", "n", "grid"), [(25, 40, None), (25, 40, 0.5), (5, 4, None), (60, 7, 1.0)])
def test_auc_and_its_error_are_the_slow_twin(m: int, n: int, grid: float | None):
    members, others = sides(m, n, 0.3, seed=n, grid=grid)
    result = known_auc(members, others)
    assert (result.value, result.error) == tuple(map(pytest.approx, slow_delong(members, others)))


def test_auc_of_small_arrays():
    assert known_auc(torch.tensor([3, 1]), torch.tensor([2, 0])).value == 0.75
    assert known_auc(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])).value == 0.375
    assert known_auc(torch.tensor([1.0]), torch.tensor([1.0, 1.0])).value == 0.5
    assert auc(NOBODY, torch.ones(2)) is None
    assert auc(torch.ones(2), NOBODY) is None


def test_the_error_is_that_of_resampling():
    members, others = sides(80, 120, 0.8, seed=3)
    drawn = generator(4)
    areas = []
    for _ in range(800):
        again = (side[torch.randint(len(side), (len(side),), generator=drawn)] for side in (members, others))
        areas.append(known_auc(*again).value)
    assert known_auc(members, others).error == pytest.approx(float(torch.tensor(areas).std()), rel=0.1)


@pytest.mark.parametrize(
    ("members", "others", "area"),
    [([2.0] * 5, [1.0] * 9, 1.0), ([1.0, 1.5], [2.0] * 30, 0.0), ([1.0] * 6, [1.0] * 8, 0.5), ([3.0], [1.0, 4.0], 0.5)],
)
def test_no_certainty_from_separated_tied_or_single_scores(members: list[float], others: list[float], area: float):
    result = known_auc(torch.tensor(members), torch.tensor(others))
    fewest = min(len(members), len(others))
    assert result.value == area
    assert result.error == proportion_error(area * fewest, fewest) > 0


def test_wrong_scores_are_refused():
    good, bad = torch.tensor([0.0, 1.0]), torch.tensor([0.0, math.nan])
    for attack in (roc, auc):
        for both in ((bad, good), (good, bad)):
            with pytest.raises(InputError, match="not a finite number"):
                attack(*both)
        with pytest.raises(InputError, match="dimensions"):
            attack(good[None], good)
    with pytest.raises(InputError, match="at least one member"):
        roc(NOBODY, good)


# RMIA


def slow_rmia(x: Tensor, x_ref: Tensor, z: Tensor, z_ref: Tensor, a: float, gamma: float) -> list[float]:
    def ratio(p: float, reference: list[float]) -> float:
        return p / (((1 + a) * sum(reference) / len(reference) + (1 - a)) / 2)

    scores = []
    for i in range(len(x)):
        of_x = ratio(float(x[i]), x_ref[:, i].tolist())
        hits = [of_x / ratio(float(z[j]), z_ref[:, j].tolist()) >= gamma for j in range(len(z))]
        scores.append(sum(hits) / len(z))
    return scores


@pytest.mark.parametrize(("a", "gamma", "references"), [(0.3, 1.0, 1), (0.0, 2.0, 4), (1.0, 1.1, 3)])
def test_rmia_is_its_slow_twin(a: float, gamma: float, references: int):
    drawn = generator(7)
    x, z = torch.rand(12, generator=drawn), torch.rand(30, generator=drawn)
    x_ref, z_ref = torch.rand(references, 12, generator=drawn), torch.rand(references, 30, generator=drawn)
    made = rmia(x, x_ref, z, z_ref, a=a, gamma=gamma)
    assert made.dtype == torch.float64
    assert made.tolist() == pytest.approx(slow_rmia(x.double(), x_ref.double(), z.double(), z_ref.double(), a, gamma))


def test_rmia_closed_forms():
    """a = 1, p_out = 1/2 everywhere: the share of the population with a probability no higher than x's."""
    z, half = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.full((1, 4), 0.5)
    x = torch.tensor([0.05, 0.2, 0.35, 0.9])
    assert rmia(x, half, z, half, a=1.0).tolist() == [0.0, 0.5, 0.75, 1.0]
    assert rmia(x, half, z, half, a=1.0, gamma=2.0).tolist() == [0.0, 0.25, 0.25, 1.0]
    # An example that every model is sure of says nothing: the same ratio as the population has.
    easy = rmia(
        torch.tensor([0.9]), torch.tensor([[0.9]]), torch.tensor([0.3, 0.5]), torch.tensor([[0.15, 0.55]]), a=1.0
    )
    assert easy.tolist() == [0.5]


def test_rmia_tells_members():
    """The model is surer of members than the references are, which differ from example to example."""
    drawn = generator(8)
    hardness = 3 * torch.randn(900, generator=drawn).double()
    reference = torch.sigmoid(hardness + 0.3 * torch.randn(2, 900, generator=drawn))
    own = hardness + 0.3 * torch.randn(900, generator=drawn)
    own[:300] += 1.0
    p = own.sigmoid()
    population = (p[600:], reference[:, 600:])
    scores = rmia(p[:300], reference[:, :300], *population), rmia(p[300:600], reference[:, 300:600], *population)
    assert known_auc(*scores).value > known_auc(p[:300], p[300:600]).value + 0.1
    assert float(scores[1].mean()) == pytest.approx(0.5, abs=0.07), "non-members are like the population"


def test_rmia_edges():
    z, z_ref = torch.tensor([0.0, 0.5]), torch.tensor([[0.0, 0.5]])
    assert rmia(NOBODY, torch.zeros(1, 0), z, z_ref).shape == (0,)
    assert rmia(torch.tensor([0.0]), torch.tensor([[0.0]]), z, z_ref, a=1.0).tolist() == [0.5]
    with pytest.raises(InputError, match="empty"):
        rmia(z, z_ref, NOBODY, torch.zeros(1, 0))
    with pytest.raises(InputError, match="a reference model or more"):
        rmia(z, torch.zeros(0, 2), z, z_ref)
    with pytest.raises(InputError, match="a reference model or more"):
        rmia(z, torch.zeros(1, 3), z, z_ref)
    with pytest.raises(InputError, match="between 0 and 1"):
        rmia(torch.tensor([0.5, 1.2]), z_ref, z, z_ref)
    with pytest.raises(InputError, match="not a finite number"):
        rmia(torch.tensor([0.5, math.nan]), z_ref, z, z_ref)
    for a, gamma in ((-0.1, 1.0), (1.1, 1.0), (math.nan, 1.0), (0.3, 0.0), (0.3, math.inf)):
        with pytest.raises(InputError, match="a in"):
            rmia(z, z_ref, z, z_ref, a=a, gamma=gamma)


# U-LiRA


def levels(n: int) -> Tensor:
    return 3 * torch.randn(n, generator=generator(99)).double()


def models(count: int, n: int, seed: int, shift: float = 0.0, shared: float = 0.0) -> Tensor:
    """Margins of variance 1 over models, of which `shared` is common to all examples of a model."""
    drawn = generator(seed)
    own, common = torch.randn(count, n, generator=drawn).double(), torch.randn(count, 1, generator=drawn).double()
    return levels(n) + shift + math.sqrt(1 - shared) * own + math.sqrt(shared) * common


def slow_pairs(unlearned: Tensor, retrained: Tensor, own_variance: bool) -> list[float]:
    """Accuracy, AUC and TPR at 1 %: one pair, one example, one comparison at a time."""
    m, k, n = len(unlearned), len(retrained), unlearned.shape[1]

    def gaussians(phi: Tensor, left_out: int) -> list[NormalDist]:
        columns = [[float(row[i]) for j, row in enumerate(phi) if j != left_out] for i in range(n)]
        means = [sum(column) / len(column) for column in columns]
        variances = [
            sum((x - mean) ** 2 for x in column) / (len(column) - 1)
            for column, mean in zip(columns, means, strict=True)
        ]
        variances = variances if own_variance else [sum(variances) / n] * n
        return [NormalDist(mean, math.sqrt(max(v, 1e-6))) for mean, v in zip(means, variances, strict=True)]

    accuracy = area = found = 0.0
    for a in range(m):
        for b in range(k):
            to_u, to_r = gaussians(unlearned, a), gaussians(retrained, b)
            first, second = (
                [math.log(to_u[i].pdf(float(phi[i])) / to_r[i].pdf(float(phi[i]))) for i in range(n)]
                for phi in (unlearned[a], retrained[b])
            )
            accuracy += sum(ordered(x, 0) for x in first) / 2 + sum(ordered(0, x) for x in second) / 2
            area += sum(ordered(x, y) for x in first for y in second) / n
            found += sum(x > sorted(second)[-1 - n // 100] for x in first)
    return [total / (m * k * n) for total in (accuracy, area, found)]


@pytest.mark.parametrize("own_variance", [False, True])
def test_u_lira_is_its_slow_twin(own_variance: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attacks, "MODELS_FOR_OWN_VARIANCE", 5 if own_variance else 64)
    unlearned, retrained = models(6, 9, seed=1, shift=0.5), models(5, 9, seed=2)
    result = u_lira(unlearned, retrained)
    assert result is not None
    expected = slow_pairs(unlearned, retrained, own_variance)
    assert [result.accuracy.value, result.auc.value] == pytest.approx(expected[:2])
    assert result.tpr is None, "nine examples have no 1 %"

    def jackknife(which: int) -> float:
        keep = [[j for j in range(count) if j != out] for count in (6, 5) for out in range(count)]
        less_u = [slow_pairs(unlearned[rows], retrained, own_variance)[which] for rows in keep[:6]]
        less_r = [slow_pairs(unlearned, retrained[rows], own_variance)[which] for rows in keep[6:]]
        return math.sqrt(
            sum((len(v) - 1) / len(v) * sum((x - sum(v) / len(v)) ** 2 for x in v) for v in (less_u, less_r))
        )

    reach = student_quantile(0.975, 4)
    for which, estimate in enumerate((result.accuracy, result.auc)):
        assert estimate.error == pytest.approx(jackknife(which))
        assert estimate.low == pytest.approx(max(0.0, estimate.value - reach * estimate.error))


def test_u_lira_finds_a_share_at_one_percent():
    unlearned, retrained = models(4, 100, seed=3, shift=1.0), models(4, 100, seed=4)
    result = u_lira(unlearned, retrained)
    assert result is not None
    assert result.tpr is not None
    assert result.tpr.value == pytest.approx(slow_pairs(unlearned, retrained, False)[2])


def test_u_lira_in_closed_form():
    """Unit Gaussians d apart: accuracy Phi(d/2) and AUC Phi(d / sqrt 2), a little less as the fits are estimates."""
    result = u_lira(models(24, 120, seed=5, shift=1.5), models(20, 120, seed=6))
    assert result is not None
    assert result.accuracy.value == pytest.approx(PHI(0.75), abs=0.02)
    assert result.auc.value == pytest.approx(PHI(1.5 / math.sqrt(2)), abs=0.02)


def test_u_lira_tells_spreads_apart():
    """The same means, one side four times as spread: the likelihood ratio sees it, a threshold on phi cannot."""
    result = u_lira(models(12, 60, seed=7), levels(60) + 4 * (models(12, 60, seed=8) - levels(60)))
    assert result is not None
    assert result.accuracy.low > 0.6


@pytest.mark.real
@pytest.mark.parametrize("shared", [0.0, 0.5])
def test_u_lira_of_equal_distributions_is_chance(shared: float):
    """Half, on average over repetitions and within nearly every interval, though the examples of a model agree."""
    results = [u_lira(models(6, 30, 100 + s, shared=shared), models(5, 30, 900 + s, shared=shared)) for s in range(40)]
    for estimates in ([r.accuracy for r in results if r], [r.auc for r in results if r]):
        values = torch.tensor([e.value for e in estimates])
        assert abs(float(values.mean()) - 0.5) < 3 * float(values.std()) / math.sqrt(40)
        assert sum(e.low <= 0.5 <= e.high for e in estimates) >= 36


def test_u_lira_intervals_are_over_models():
    """A hundred times the examples of correlated models are hardly more evidence."""
    few, many = (u_lira(models(8, n, 1, 0.5, shared=0.6), models(8, n, 2, shared=0.6)) for n in (10, 1000))
    assert few is not None
    assert many is not None
    assert many.auc.error > few.auc.error / 3


def test_u_lira_leaves_out_groups_of_many_models():
    """Sixteen groups in place of twenty-four models give nearly the same error."""
    unlearned, retrained = models(24, 15, seed=11, shift=0.5, shared=0.3), models(24, 15, seed=12, shared=0.3)
    assert [len(rest) for rest in attacks._without_each(unlearned)] == [22] * 8 + [23] * 8
    assert [len(rest) for rest in attacks._without_each(unlearned[:5])] == [4] * 5
    grouped = u_lira(unlearned, retrained)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attacks, "MOST_GROUPS", 24)
        single = u_lira(unlearned, retrained)
    assert grouped is not None
    assert single is not None
    assert grouped.auc.error == pytest.approx(single.auc.error, rel=0.4)


def test_u_lira_edges():
    good = models(4, 3, seed=13)
    assert u_lira(good[:, :0], good[:, :0]) is None
    assert u_lira(good[:, :1], good[:, :1] + 1) is not None
    with pytest.raises(InputError, match="at least 4"):
        u_lira(good[:3], good)
    with pytest.raises(InputError, match="same examples"):
        u_lira(good, good[:, :2])
    with pytest.raises(InputError, match="not a finite number"):
        u_lira(good, good * math.nan)
    alike = u_lira(torch.full((5, 3), 3.3), torch.full((7, 3), 3.3))
    assert alike is not None
    assert (alike.accuracy.value, alike.auc.value) == (0.5, 0.5)
    assert alike.accuracy.error == proportion_error(2.5, 5)
    apart = u_lira(torch.full((5, 3), 100.0), torch.full((7, 3), -100.0))
    assert apart is not None
    assert (apart.accuracy.value, apart.auc.value) == (1.0, 1.0)
    assert apart.auc.error == proportion_error(5, 5)
