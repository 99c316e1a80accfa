"""The knowledge preserver against dense matrices in double precision, and the sentences of its refusals."""

from __future__ import annotations

import itertools

import pytest
import slow_twins
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedforget.methods.fedaf import sketch
from fedforget.methods.fedaf.knowledge_preserver import DiagonalPreserver, Preserver, SketchPreserver
from fedforget.methods.fedaf.sketch import Sketch
from fedforget.params import flatten

Parameters = dict[str, Tensor]


class Case:
    """A preserver, its dense twin (A and lambda in float64), an anchor and a place away from it."""

    def __init__(
        self, kind: str, *, rows: int, shapes: list[tuple[int, ...]], strength: float, lr: float, seed: int
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.anchor = {f"p{i}": torch.randn(shape, generator=generator) for i, shape in enumerate(shapes)}
        self.theta = {name: a + torch.randn(a.shape, generator=generator) for name, a in self.anchor.items()}
        self.strength, self.lr, size = strength, lr, len(flatten(self.anchor))
        self.preserver: Preserver
        if kind == "diagonal":
            diagonal = torch.rand(size, generator=generator) * 3
            diagonal[0] = 0.0
            self.curvature = torch.diag(diagonal.double())
            self.preserver = DiagonalPreserver(diagonal, self.anchor, strength=strength, lr=lr)
            return
        dtype = torch.bfloat16 if "bfloat16" in kind else torch.float32
        stored = torch.randn(rows, size, generator=generator).to(dtype)
        stored[0] = 0.0  # an empty bucket
        count = 7
        self.curvature = stored.double().T @ stored.double() / (count if "normalised" in kind else 1)
        self.preserver = SketchPreserver(
            Sketch(stored, count), self.anchor, strength=strength, lr=lr, normalise="normalised" in kind
        )

    def flat(self, parameters: Parameters) -> Tensor:
        return flatten(parameters).double()

    def penalty(self, parameters: Parameters) -> float:
        return slow_twins.quadratic(self.curvature, self.flat(self.anchor), self.flat(parameters), self.strength)

    def close(self, got: Parameters, expected: Tensor, start: Parameters) -> bool:
        """Equal up to float32's rounding, on the scale of where the step began and where it ended."""
        moved = self.flat(start) - self.flat(self.anchor)
        scale = float(max(moved.norm(), (expected - self.flat(self.anchor)).norm(), self.flat(start).norm()))
        return float((self.flat(got) - expected).norm()) <= 2e-5 * scale


def copy_of(parameters: Parameters) -> Parameters:
    return {name: p.clone() for name, p in parameters.items()}


def gradient_step(case: Case, theta: Parameters, lr: float) -> None:
    """theta <- theta - lr gradient, in place: SGD where the loss has no other term."""
    for parameter, gradient in zip(theta.values(), case.preserver.gradient(theta), strict=True):
        parameter -= lr * gradient


KINDS = ["sketch", "sketch normalised", "sketch bfloat16", "sketch bfloat16 normalised", "diagonal"]

cases = st.builds(
    Case,
    st.sampled_from(KINDS),
    rows=st.integers(1, 140),
    shapes=st.lists(
        st.one_of(st.tuples(st.integers(1, 6)), st.tuples(st.integers(1, 4), st.integers(1, 4)), st.just((2, 1, 3, 3))),
        min_size=1,
        max_size=4,
    ),
    strength=st.sampled_from([0.0, 1e-3, 0.5, 10.0, 1e3]),
    lr=st.sampled_from([1e-4, 0.01, 1.0]),
    seed=st.integers(0, 1000),
)


@settings(max_examples=60, deadline=None)
@given(case=cases)
def test_gradient_step_equals_the_dense_one(case):
    theta = copy_of(case.theta)
    gradient_step(case, theta, case.lr)
    anchor, start = case.flat(case.anchor), case.flat(case.theta)
    expected = slow_twins.quadratic_gradient_step(case.curvature, anchor, start, case.strength, case.lr)
    assert case.close(theta, expected, case.theta)


def test_gradient_step_follows_the_penaltys_own_gradient():
    """(penalty(theta + h u) - penalty(theta - h u)) / 2h = <gradient, u> for a quadratic, exactly up to rounding."""
    case = Case("sketch normalised", rows=5, shapes=[(4, 3), (2,)], strength=2.0, lr=0.1, seed=0)
    stepped = copy_of(case.theta)
    gradient_step(case, stepped, 1.0)
    gradient = flatten(case.theta) - flatten(stepped)
    u = {name: torch.randn(p.shape, generator=torch.Generator().manual_seed(5)) for name, p in case.theta.items()}
    forward, backward = ({n: p + h * u[n] for n, p in case.theta.items()} for h in (0.5, -0.5))
    slope = case.penalty(forward) - case.penalty(backward)
    assert slope == pytest.approx(float(gradient @ flatten(u)), rel=1e-4)


@settings(max_examples=100, deadline=None)
@given(case=cases)
def test_proximal_step_is_the_exact_minimiser(case):
    """The minimiser of ||theta - v||^2/(2 lr) + penalty(theta), from a dense solve."""
    theta = copy_of(case.theta)
    case.preserver.proximal_step(theta)
    anchor, v = case.flat(case.anchor), case.flat(case.theta)
    expected = slow_twins.quadratic_minimiser(case.curvature, anchor, v, case.strength, case.lr)
    assert case.close(theta, expected, case.theta)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_near_the_proximal_step_is_better(kind):
    """The same without a dense solve: the objective grows in every direction away from it."""
    case = Case(kind, rows=6, shapes=[(5, 4), (3,)], strength=3.0, lr=0.05, seed=3)
    anchor, v = case.flat(case.anchor), case.flat(case.theta)

    def objective(theta: Tensor) -> float:
        pull = float((theta - v).square().sum()) / (2 * case.lr)
        return pull + slow_twins.quadratic(case.curvature, anchor, theta, case.strength)

    theta = copy_of(case.theta)
    case.preserver.proximal_step(theta)
    best = objective(case.flat(theta))
    generator = torch.Generator().manual_seed(1)
    for _ in range(50):
        away = torch.randn(len(v), generator=generator, dtype=torch.float64)
        assert objective(case.flat(theta) + 0.01 * away) > best
    assert objective(v) > best


@pytest.mark.parametrize("kind", KINDS)
def test_no_strength_moves_nothing(kind):
    case = Case(kind, rows=4, shapes=[(3, 3)], strength=0.0, lr=0.1, seed=1)
    theta = copy_of(case.theta)
    case.preserver.proximal_step(theta)
    gradient_step(case, theta, 0.1)
    assert torch.equal(theta["p0"], case.theta["p0"])


@pytest.mark.parametrize("kind", KINDS)
def test_largest_curvature_is_the_largest_eigenvalue_and_decides_stability(kind):
    case = Case(kind, rows=5, shapes=[(4, 5), (6,)], strength=4.0, lr=1.0, seed=2)
    largest = case.preserver.largest_curvature()
    assert largest == pytest.approx(4.0 * float(torch.linalg.eigvalsh(case.curvature)[-1]), rel=1e-5)

    def after_steps(lr: float) -> float:
        theta = copy_of(case.theta)
        for _ in range(60):
            gradient_step(case, theta, lr)
        return case.penalty(theta)

    start = case.penalty(case.theta)
    assert after_steps(1.9 / largest) < start
    assert after_steps(2.2 / largest) > 100 * start


@pytest.mark.parametrize("kind", KINDS)
def test_far_above_the_stable_rate_gradient_steps_blow_up_and_proximal_steps_shrink(kind):
    probe = Case(kind, rows=5, shapes=[(4, 5), (6,)], strength=4.0, lr=1.0, seed=2)
    lr = 1000 * 2.0 / probe.preserver.largest_curvature()
    case = Case(kind, rows=5, shapes=[(4, 5), (6,)], strength=4.0, lr=lr, seed=2)
    exploding, shrinking = copy_of(case.theta), copy_of(case.theta)
    start = case.penalty(case.theta)
    penalties = [start]
    for _ in range(4):
        gradient_step(case, exploding, lr)
        case.preserver.proximal_step(shrinking)
        penalties.append(case.penalty(shrinking))
    assert case.penalty(exploding) > 1e12 * start
    # Below 1e-9 of the start there is only float32's rounding left.
    assert all(after < before or after < 1e-9 * start for before, after in itertools.pairwise(penalties))
    assert penalties[-1] < 1e-3 * start


@pytest.mark.parametrize("rows", [4, 12])
@pytest.mark.parametrize("strength", [1e8, 1e12, 1e30])
def test_a_large_strength_is_the_projection(rows, strength):
    """d <- d - J^^+ J^ d: what the rows see goes back to the anchor, everything else stays.

    Twelve rows over nine weights are linearly dependent, so J^ J^^T has no inverse of its own."""
    generator = torch.Generator().manual_seed(8)
    anchor = {"w": torch.randn(3, 3, generator=generator)}
    theta = {"w": anchor["w"] + torch.randn(3, 3, generator=generator)}
    stored = torch.randn(rows, 9, generator=generator)
    if rows == 12:
        stored[:, 4:] = 0.0
    preserver = SketchPreserver(Sketch(stored, 1), anchor, strength=strength, lr=0.1)
    moved = flatten(theta).double() - flatten(anchor).double()
    seen = torch.linalg.pinv(stored.double()) @ stored.double()
    preserver.proximal_step(theta)
    after = flatten(theta).double() - flatten(anchor).double()
    assert torch.allclose(after, moved - seen @ moved, atol=1e-4)


def test_weights_are_changed_in_place_also_when_they_need_gradients():
    model = nn.Linear(3, 2)
    parameters = dict(model.named_parameters())
    anchor = {name: p.detach() + 1.0 for name, p in parameters.items()}
    before = model.weight.detach().clone()
    preserver = SketchPreserver(Sketch(torch.ones(2, 8), 1), anchor, strength=1.0, lr=0.1)
    preserver.proximal_step(parameters)
    assert not torch.equal(model.weight.detach(), before)
    assert model.weight.requires_grad
    assert model.weight.grad_fn is None


def test_products_of_rows_are_the_same_over_blocks_of_columns(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(70, 101, generator=generator).to(torch.bfloat16)
    others = torch.randn(13, 101, generator=generator)
    monkeypatch.setattr(sketch, "COLUMNS_AT_ONCE", 7)
    for right in (rows, others):
        expected = rows.double() @ right.double().T
        assert torch.allclose(sketch.row_products(rows, right), expected, rtol=1e-12, atol=1e-12)
