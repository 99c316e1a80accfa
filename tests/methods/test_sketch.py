"""CountSketch against an explicit J and an explicit S, its statistics over many hash draws, and Theorem 1."""

from __future__ import annotations

import itertools
import math

import pytest
import slow_twins
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.methods.fedaf import sketch
from fedforget.methods.fedaf import sketch as sketch_module
from fedforget.methods.fedaf.settings import BY_SIZE, PAPER
from fedforget.methods.fedaf.sketch import (
    PRIME,
    Jacobian,
    RowLabels,
    Sketch,
    batches_of,
    build_sketch,
    hash_buckets,
    hash_signs,
    hash_uniforms,
    row_losses,
)
from fedforget.models import xavier_initialise
from fedforget.params import digest, trainable

LABELS = ["data", "sampled", "mas"]


def network(kind: str, features: int, hidden: int, classes: int, seed: int, frozen: bool = False) -> nn.Module:
    """A small network of the given kind for float features [n, features] or [n, 1, 4, 4]."""
    if kind == "linear":
        model = nn.Sequential(nn.Linear(features, classes))
    elif kind == "mlp":
        model = nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes))
    else:
        norm = nn.BatchNorm2d(hidden) if kind == "batchnorm" else nn.Identity()
        conv = nn.Conv2d(1, hidden, 3, padding=1)
        model = nn.Sequential(conv, norm, nn.ReLU(), nn.Flatten(), nn.Linear(16 * hidden, classes))
    xavier_initialise(model, seed)
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)
    if frozen:
        next(model.parameters()).requires_grad_(False)
    return model


def random_samples(shape: tuple[int, ...], n: int, classes: int, seed: int, ids: list[int] | None = None) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, *shape, generator=generator)
    labels = torch.randint(0, classes, (n,), generator=generator)
    return Samples(features, labels, labels, torch.tensor(list(range(n)) if ids is None else ids, dtype=torch.int64))


def identity(features: Tensor) -> Tensor:
    return features


def assert_same_rows(got: Tensor, expected: Tensor, j: Tensor, precision: float = 2e-5) -> None:
    """Equal up to float32's rounding of sums of rows of J: entries may cancel, so the scale is that of the rows; and
    where a prediction is sure, 1 - p cancels too."""
    scale = 0.1 + float(j.abs().sum(dim=0).max())
    assert got.shape == expected.shape
    assert float((got.double() - expected).abs().max()) <= precision * scale


# S J, exactly


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["linear", "mlp", "conv", "batchnorm"]),
    labels=st.sampled_from(LABELS),
    n=st.integers(1, 24),
    rows=st.integers(1, 12),
    features=st.integers(1, 6),
    hidden=st.integers(1, 5),
    classes=st.integers(2, 5),
    batch_size=st.integers(1, 20),
    frozen=st.booleans(),
    seed=st.integers(0, 10_000),
    data=st.data(),
)
def test_sketch_is_s_times_j(kind, labels, n, rows, features, hidden, classes, batch_size, frozen, seed, data):
    ids = data.draw(st.lists(st.integers(0, PRIME - 1), min_size=n, max_size=n, unique=True), label="ids")
    frozen = frozen and kind != "linear"
    model = network(kind, features, hidden, classes, seed, frozen)
    shape = (features,) if kind in ("linear", "mlp") else (1, 4, 4)
    samples = random_samples(shape, n, classes, seed, ids)
    before = digest(model.state_dict())

    got = build_sketch(Jacobian(model, samples, identity, seed=seed, labels=labels), rows=rows, batch_size=batch_size)

    j = slow_twins.explicit_j(model, samples, labels, seed)
    s = slow_twins.explicit_s(ids, rows, seed)
    assert got.count == n
    assert got.rows.dtype == torch.float32
    assert got.rows.shape == (rows, sum(p.numel() for p in trainable(model).values()))
    assert_same_rows(got.rows, s @ j, j)
    assert digest(model.state_dict()) == before, "weights and running statistics stay as they are"
    assert all(p.grad is None for p in model.parameters())


def test_a_parameter_that_the_network_does_not_use_has_a_zero_column():
    model = network("mlp", 3, 4, 3, seed=1)
    model.unused = nn.Parameter(torch.ones(2))
    model.forward = lambda x: nn.Sequential.forward(nn.Sequential(model[0], model[1], model[2]), x)
    samples = random_samples((3,), 9, 3, seed=1)
    got = build_sketch(Jacobian(model, samples, identity, seed=5), rows=4)
    names = list(trainable(model))
    assert names[0] == "unused"
    assert torch.equal(got.rows[:, :2], torch.zeros(4, 2))
    assert float(got.rows[:, 2:].abs().max()) > 0


@pytest.mark.parametrize("batch_size", [64, 2])
def test_bfloat16_storage_is_the_same_sketch_rounded_once(batch_size):
    """Once, however many batches are summed into a row."""
    model, samples = network("conv", 0, 4, 3, seed=2), random_samples((1, 4, 4), 40, 3, seed=2)
    full = build_sketch(Jacobian(model, samples, identity, seed=3), rows=6, batch_size=batch_size)
    half = build_sketch(Jacobian(model, samples, identity, seed=3), rows=6, batch_size=batch_size, dtype=torch.bfloat16)
    assert half.rows.dtype == torch.bfloat16
    assert torch.equal(half.rows, full.rows.to(torch.bfloat16))
    assert 2 * half.bytes == full.bytes == 4 * full.rows.numel()


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sketches_of_disjoint_ids_add_up_to_the_sketch_of_the_union(labels, dtype):
    model = network("mlp", 5, 6, 4, seed=4)
    whole = random_samples((5,), 50, 4, seed=4, ids=[7 * i + 3 for i in range(50)])
    union = build_sketch(Jacobian(model, whole, identity, seed=9, labels=labels), rows=8, dtype=dtype)
    shuffled = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    parts = [whole.select(positions) for positions in shuffled.split([23, 1, 26])]
    sketches = [
        build_sketch(Jacobian(model, part, identity, seed=9, labels=labels), rows=8, dtype=dtype, batch_size=size)
        for part, size in zip(parts, (64, 3, 10), strict=True)
    ]
    merged = sum(s.rows for s in sketches)
    assert sum(s.count for s in sketches) == union.count == 50
    # Each bfloat16 sum rounds to 8 bits; three of them make at most 2 % of the rows' size.
    j = slow_twins.explicit_j(model, whole, labels, seed=9)
    assert_same_rows(merged, union.rows.double(), j, 1e-6 if dtype == torch.float32 else 0.02)


def test_another_hash_seed_is_another_sketch():
    model, samples = network("linear", 4, 0, 3, seed=0), random_samples((4,), 20, 3, seed=0)
    first, again, other = (
        build_sketch(Jacobian(model, samples, identity, seed=s, labels="data"), rows=5).rows for s in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# Hashes


@settings(max_examples=50, deadline=None)
@given(
    ids=st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=20),
    rows=st.integers(1, 1000),
    seed=st.integers(0, 2**31),
)
def test_hashes_equal_big_integer_arithmetic(ids, rows, seed):
    at = torch.tensor(ids, dtype=torch.int64)
    assert hash_buckets(at, rows, seed).tolist() == [slow_twins.bucket(i, rows, seed) for i in ids]
    assert hash_signs(at, seed).tolist() == [slow_twins.sign(i, seed) for i in ids]
    assert hash_uniforms(at, seed).tolist() == [slow_twins.uniform(i, seed) for i in ids]


@pytest.mark.parametrize("bad", [-1, PRIME, 2**62])
@pytest.mark.parametrize("hash_", [lambda ids: hash_buckets(ids, 5, 0), lambda ids: hash_signs(ids, 0)])
def test_ids_that_cannot_be_hashed_are_refused(bad, hash_):
    with pytest.raises(InputError, match=f"ids must lie in 0 to {PRIME - 1}"):
        hash_(torch.tensor([3, bad]))


@pytest.mark.parametrize("wise", [2, 4])
def test_polynomials_are_exactly_independent(wise, monkeypatch):
    """Modulo 5 all coefficients can be tried: any `wise` different ids take each combination of values exactly once."""
    monkeypatch.setattr(sketch_module, "PRIME", 5)
    seen: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for coefficients in itertools.product(range(5), repeat=wise):
        monkeypatch.setattr(torch, "randint", lambda *_, c=coefficients, **__: torch.tensor(c))
        values = sketch_module._polynomial(torch.arange(5), wise, 0, "any")
        for ids in itertools.combinations(range(5), wise):
            seen.setdefault(ids, set()).add(tuple(int(values[i]) for i in ids))
    assert all(len(combinations) == 5**wise for combinations in seen.values())


IDS = torch.tensor([0, 1, 2, 3, 17, 60_000, PRIME - 1])


@pytest.fixture(scope="module")
def draws() -> tuple[Tensor, Tensor]:
    """(buckets out of 6, signs) of seven ids under 4,000 seeds."""
    buckets = torch.stack([hash_buckets(IDS, 6, seed) for seed in range(4000)])
    return buckets, torch.stack([hash_signs(IDS, seed) for seed in range(4000)]).double()


def test_bucket_hash_is_pairwise_independent_over_seeds(draws):
    buckets, _ = draws
    for a, b in itertools.combinations(range(len(IDS)), 2):
        counts = torch.bincount(6 * buckets[:, a] + buckets[:, b], minlength=36).double()
        expected = len(buckets) / 36
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        # 35 degrees of freedom: mean 35, standard deviation 8.4. 85 is six of them, for 21 pairs.
        assert chi_square < 85


def test_sign_hash_is_4_wise_independent_over_seeds(draws):
    _, signs = draws
    for size in (1, 2, 3, 4):
        for which in itertools.combinations(range(len(IDS)), size):
            mean = float(signs[:, list(which)].prod(dim=1).mean())
            # A mean of fair signs has standard error 1/sqrt(4000); five of them, for 98 subsets.
            assert abs(mean) < 5 / math.sqrt(len(signs))


def test_signs_and_buckets_are_independent_of_each_other(draws):
    buckets, signs = draws
    same = (buckets[:, 0] == buckets[:, 1]).double()
    assert abs(float((same * signs[:, 0] * signs[:, 1]).mean())) < 5 / math.sqrt(6 * len(signs))


# Statistics of S over many draws, on a fixed J


def sketch_grams(j: Tensor, rows: int, seeds: range) -> Tensor:
    """J^T S^T S J for every seed, [T, m, m], with S from the hashes."""
    ids = torch.arange(len(j))
    buckets = torch.stack([hash_buckets(ids, rows, seed) for seed in seeds])
    signs = torch.stack([hash_signs(ids, seed) for seed in seeds]).double()
    sketches = torch.zeros(len(seeds), rows, j.shape[1], dtype=torch.float64)
    sketches.scatter_add_(1, buckets[:, :, None].expand(-1, -1, j.shape[1]), signs[:, :, None] * j)
    return sketches.transpose(1, 2) @ sketches


def matrix(kind: str, n: int = 40, m: int = 6) -> Tensor:
    """J with unrelated rows, with nearly parallel rows (the worst case of the bound), or with one very large row."""
    j = torch.randn(n, m, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if kind == "parallel":
        j = 1.0 + 0.1 * j
    if kind == "one large row":
        j[3] *= 20
    return j


@pytest.mark.daily(2)
@pytest.mark.parametrize("kind", ["random", "parallel", "one large row"])
@pytest.mark.parametrize("rows", [4, 20])
def test_sketch_is_unbiased_and_its_squared_error_is_within_the_bound(kind, rows):
    j, draws = matrix(kind), 2000
    error = sketch_grams(j, rows, range(draws)) - slow_twins.gram(j)

    standard_error = error.std(dim=0) / math.sqrt(draws)
    assert float((error.mean(dim=0).abs() / standard_error).max()) < 5, "unbiased, within five standard errors"

    squared = error.square().sum(dim=(1, 2))
    allowance = 4 * float(squared.std()) / math.sqrt(draws)
    assert float(squared.mean()) <= 2 * float(j.norm()) ** 4 / rows + allowance

    # The same expectation exactly: pairs of different rows meet with probability 1/s.
    norms = j.square().sum(dim=1)
    pairs = torch.outer(norms, norms) + (j @ j.T).square()
    expected = float(pairs.sum() - pairs.diagonal().sum()) / rows
    assert abs(float(squared.mean()) - expected) < 1.25 * allowance


def with_singular_values(values: list[float], n: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    left = torch.linalg.qr(torch.randn(n, len(values), generator=generator, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(len(values), len(values), generator=generator, dtype=torch.float64)).Q
    return left @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ right


def share_within(j: Tensor, rows: int, epsilon: float, draws: int) -> float:
    """Share of draws with | ||S J theta||^2 - ||J theta||^2 | <= epsilon ||J||_2^2 ||theta||^2 for all theta.

    The largest of the left side over unit theta is the spectral norm of J^T S^T S J - J^T J."""
    limit, good = epsilon * float(torch.linalg.matrix_norm(j, 2)) ** 2, 0
    for first in range(0, draws, 50):
        error = sketch_grams(j, rows, range(first, first + 50)) - j.T @ j
        good += int((torch.linalg.eigvalsh(error).abs().amax(dim=1) <= limit).sum())
    return good / draws


@pytest.mark.parametrize(
    ("singular_values", "epsilon"),
    [([3.0, 1.0, 0.5, 0.2], 0.5), ([2.0, 2.0, 1.0, 0.1, 0.1], 0.9), ([1.0] * 5, 1.0)],
)
def test_theorem_1_holds_in_99_percent_of_draws(singular_values, epsilon):
    j = with_singular_values(singular_values, n=250)
    stable_rank = float(j.norm() ** 2 / torch.linalg.matrix_norm(j, 2) ** 2)
    rows = math.ceil(200 * stable_rank**2 / epsilon**2)
    assert share_within(j, rows, epsilon, draws=400) >= 0.99
    assert share_within(j, 2, epsilon / 10, draws=100) < 0.9, "the measure itself can fail"


ROWS_IN_USE = sorted({PAPER.sketch_rows, *BY_SIZE["sketch_rows", "auto"]})


@pytest.mark.parametrize("rows", ROWS_IN_USE)
@pytest.mark.parametrize("singular_values", [[3.0, 1.0, 0.5, 0.2], [2.0, 2.0, 1.0, 0.1, 0.1], [1.0] * 5])
def test_theorem_1_at_the_rows_in_use(rows, singular_values):
    """With so few rows the theorem promises eps = r sqrt(200/s) > 1: less than the penalty itself. What the rows have
    is at most half of that in 99 of 100 draws, and it is no small error either."""
    assert ROWS_IN_USE == [50, 75, 150]
    j = with_singular_values(singular_values, n=250)
    promised = float(j.norm() ** 2 / torch.linalg.matrix_norm(j, 2) ** 2) * math.sqrt(200 / rows)
    assert promised > 1
    assert share_within(j, rows, promised / 2, draws=400) >= 0.99
    assert share_within(j, rows, 0.05, draws=400) < 0.5


# Labels of the rows


def test_sampled_labels_follow_the_models_distribution():
    """Three classes with p = 0.2, 0.5, 0.3: over 60,000 consecutive ids and several seeds."""
    probabilities = torch.tensor([0.2, 0.5, 0.3])
    ids = torch.arange(60_000)
    logits = probabilities.log().expand(len(ids), 3)
    none = torch.zeros(len(ids), dtype=torch.int64)
    for seed in range(4):
        losses = row_losses(logits, none, hash_uniforms(ids, seed), "sampled")
        drawn = (losses[:, None] + probabilities.log()).abs().argmin(dim=1)
        counts, expected = torch.bincount(drawn, minlength=3), 60_000 * probabilities
        # Two degrees of freedom: above 20 once in 22,000 draws.
        assert float(((counts - expected) ** 2 / expected).sum()) < 20


def test_the_label_of_a_sample_does_not_depend_on_its_batch():
    logits = torch.randn(30, 4, generator=torch.Generator().manual_seed(3))
    u, y = hash_uniforms(torch.arange(100, 130), 7), torch.zeros(30, dtype=torch.int64)
    together = row_losses(logits, y, u, "sampled")
    alone = torch.cat([row_losses(logits[i : i + 1], y[i : i + 1], u[i : i + 1], "sampled") for i in range(30)])
    assert torch.equal(together, alone)


class Logistic(nn.Module):
    """p(y = 1 | x) = 1 / (1 + exp(-w x))."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(w)

    def forward(self, x: Tensor) -> Tensor:
        z = x @ self.w
        return torch.stack([torch.zeros_like(z), z], dim=1)


def test_expected_sketch_of_logistic_regression_is_its_fisher_matrix():
    """E[J^^T J^] = sum_i p_i (1 - p_i) x_i x_i^T, over hash and label draws."""
    x = torch.randn(15, 3, generator=torch.Generator().manual_seed(4))
    samples, model = Samples.of(x, torch.zeros(15)), Logistic(torch.tensor([0.8, -1.2, 0.3]))
    p = torch.sigmoid(x @ model.w.detach()).double()
    expected = torch.einsum("n,ni,nj->ij", p * (1 - p), x.double(), x.double())

    grams = []
    for seed in range(600):
        rows = build_sketch(Jacobian(model, samples, identity, seed=seed, labels="sampled"), rows=4).rows.double()
        grams.append(rows.T @ rows)
    drawn = torch.stack(grams)
    standard_error = drawn.std(dim=0) / math.sqrt(len(grams))
    assert float(((drawn.mean(dim=0) - expected).abs() / standard_error).max()) < 4.5
    assert float((standard_error / expected.diagonal().mean()).max()) < 0.1, "tight enough to tell"


def test_size_of_a_sketch_in_bytes():
    assert Sketch(torch.zeros(5, 7), 3).bytes == 5 * 7 * 4


@given(n=st.integers(1, 200), limit=st.integers(1, 64), filled=st.booleans(), seed=st.integers(0, 9))
def test_batches_of_a_bucket_hold_each_sample_once(n: int, limit: int, filled: bool, seed: int):
    """In even parts within the limit, or a little beyond it and filled up, after the real ones, to one of few sizes."""
    members = torch.randperm(300, generator=torch.Generator().manual_seed(seed))[:n]
    batches = list(batches_of(members, limit, filled=filled))
    assert torch.equal(torch.cat([batch[:real] for batch, real in batches]), members)
    reals = [real for _, real in batches]
    assert max(reals) <= (limit * 3 // 2 if filled else limit)
    assert max(reals) - min(reals) <= 1
    for batch, real in batches:
        if filled:
            assert len(batch) in (8, 16, 24, 32, 48, 64, 80, 96)
            assert len(batch) - real < 16
        else:
            assert len(batch) == real


@pytest.mark.parametrize("labels", LABELS)
def test_filling_up_a_batch_changes_nothing(monkeypatch: pytest.MonkeyPatch, labels: RowLabels):
    """What a GPU does for constant shapes, here on the CPU."""
    model = network("cnn", 0, 3, 4, seed=0)
    samples = random_samples((1, 4, 4), 30, 4, seed=0)
    plain = build_sketch(Jacobian(model, samples, lambda x: x, seed=1, labels=labels), rows=4, batch_size=8)
    monkeypatch.setattr(sketch, "batches_of", lambda members, limit, filled: batches_of(members, limit, filled=True))
    filled = build_sketch(Jacobian(model, samples, lambda x: x, seed=1, labels=labels), rows=4, batch_size=8)
    torch.testing.assert_close(filled.rows, plain.rows, rtol=1e-4, atol=1e-5)


def test_the_gram_matrix_is_that_of_the_rows():
    rows = torch.randn(5, 70, generator=torch.Generator().manual_seed(0))
    made = Sketch(rows, 11)
    exact = rows.double() @ rows.double().T
    torch.testing.assert_close(made.gram, exact, rtol=1e-12, atol=1e-12)
    assert made.largest == pytest.approx(float(torch.linalg.eigvalsh(exact)[-1]), rel=1e-10)
    assert made.mean_square == pytest.approx(float(rows.double().square().sum()) / 11, rel=1e-12)
