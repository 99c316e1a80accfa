"""Scores of single examples, against loops over classes and values known in closed form."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedforget.audit.scores import (
    SCORES,
    entropy_score,
    finite,
    histogram,
    loss_score,
    margin,
)
from fedforget.errors import InputError


def draw(n: int = 40, classes: int = 5, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    return scale * torch.randn(n, classes, generator=generator), torch.randint(classes, (n,), generator=generator)


def slow(logits: list[float], label: int) -> dict[str, float]:
    total = sum(math.exp(f) for f in logits)
    p = [math.exp(f) / total for f in logits]
    return {
        "loss": math.log(p[label]),
        "entropy": sum(q * math.log(q) for q in p),
        "margin": math.log(p[label]) - math.log(sum(q for c, q in enumerate(p) if c != label)),
    }


def test_every_score_is_the_loop_over_classes():
    logits, labels = draw()
    expected = [slow([float(f) for f in row], int(label)) for row, label in zip(logits, labels, strict=True)]
    for name, score in SCORES.items():
        made = score(logits, labels)
        assert made.dtype == torch.float64
        assert made.tolist() == pytest.approx([e[name] for e in expected], rel=1e-9, abs=1e-12)


def test_closed_forms():
    """Equal logits: p = 1/C. Two classes d apart: phi = d, p = 1 / (1 + exp(-d))."""
    even, label = torch.zeros(1, 4), torch.tensor([2])
    assert float(loss_score(even, label)) == pytest.approx(-math.log(4))
    assert float(entropy_score(even, label)) == pytest.approx(-math.log(4))
    assert float(margin(even, label)) == pytest.approx(-math.log(3))
    apart = torch.tensor([[1.5, -0.5]], dtype=torch.float64)
    assert float(margin(apart, torch.tensor([0]))) == pytest.approx(2.0)


def test_huge_logits_stay_finite():
    """Where p_y rounds to 1 or 0 the margin still tells how sure the model is, up to its limit."""
    logits = torch.tensor([[60.0, 0.0, 0.0], [0.0, 60.0, 0.0], [9e4, 0.0, 0.0], [0.0, 9e4, 0.0]])
    labels = torch.zeros(4, dtype=torch.int64)
    assert margin(logits, labels).tolist() == pytest.approx([60 - math.log(2), -60.0, 100.0, -100.0])
    for score in SCORES.values():
        assert bool(torch.isfinite(score(logits, labels)).all())
    assert loss_score(logits, labels).tolist() == pytest.approx([0.0, -60.0, 0.0, -9e4], abs=1e-9)


def test_higher_is_better_remembered():
    """Raising the label's logit raises every score (the entropy's where the label is the guess already)."""
    logits, labels = draw()
    own = torch.nn.functional.one_hot(labels, 5)
    for score in (loss_score, margin):
        assert bool((score(logits + own, labels) > score(logits, labels)).all())
    sure = logits + 20 * own
    assert bool((entropy_score(sure + own, labels) > entropy_score(sure, labels)).all())


def test_loss_and_margin_order_alike():
    logits, labels = draw(scale=1.0)
    orders = [score(logits, labels).argsort().tolist() for score in (loss_score, margin)]
    assert orders[0] == orders[1]


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES.keys())
def test_wrong_input_is_refused(score):
    logits, labels = draw(3)
    assert score(logits[:0], labels[:0]).shape == (0,)
    assert score(torch.zeros(0, 0), labels[:0]).shape == (0,), "what `predict` gives for no sample"
    assert score(logits[:1], labels[:1]).shape == (1,)
    for bad in (math.nan, math.inf):
        broken = logits.clone()
        broken[1, 2] = bad
        with pytest.raises(InputError, match="not a finite number"):
            score(broken, labels)
    with pytest.raises(InputError, match="as many whole numbers"):
        score(logits, labels[:2])
    with pytest.raises(InputError, match="as many whole numbers"):
        score(logits, labels.float())
    with pytest.raises(InputError, match="outside 0 to 4"):
        score(logits, torch.tensor([0, 5, 1]))
    with pytest.raises(InputError, match="outside 0 to 4"):
        score(logits, torch.tensor([0, -1, 1]))
    with pytest.raises(InputError, match="two classes"):
        score(logits[:, :1], torch.zeros(3, dtype=torch.int64))
    with pytest.raises(InputError, match="dimensions"):
        score(logits[0], labels)


def test_scores_want_no_gradient():
    logits, labels = draw(3)
    assert not margin(logits.requires_grad_(), labels).requires_grad


def test_a_histogram_counts_every_score_once():
    scores = torch.tensor([-5.0, -1.0, -0.999, 0.0, 0.49, 0.5, 0.999, 1.0, 7.0])
    counts = histogram(scores, -1.0, 1.0, 4)
    assert counts.tolist() == [3, 0, 2, 4]
    assert counts.dtype == torch.int64
    generator = torch.Generator().manual_seed(0)
    many = torch.randn(500, generator=generator, dtype=torch.float64)
    expected = [0] * 10
    for value in many.tolist():
        expected[min(9, max(0, math.floor((value + 2) / 0.4)))] += 1
    assert histogram(many, -2.0, 2.0, 10).tolist() == expected
    assert histogram(torch.zeros(0), 0.0, 1.0, 3).tolist() == [0, 0, 0]
    assert histogram(many, 0.0, 1.0, 1).tolist() == [500]


def test_wrong_histograms_are_refused():
    with pytest.raises(InputError, match="not a finite number"):
        histogram(torch.tensor([0.0, math.nan]), 0.0, 1.0, 3)
    for low, high, bins in ((1.0, 1.0, 3), (1.0, 0.0, 3), (0.0, 1.0, 0), (math.nan, 1.0, 3)):
        with pytest.raises(InputError, match="low < high"):
            histogram(torch.zeros(1), low, high, bins)


def test_finite_makes_doubles():
    assert finite(torch.ones(2, dtype=torch.float16), 1, "scores").dtype == torch.float64
    with pytest.raises(InputError, match="The scores have 1 dimensions and need 2"):
        finite(torch.ones(2), 2, "scores")
