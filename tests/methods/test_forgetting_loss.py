"""L_M - L_R in its three forms, against scalar arithmetic."""

from __future__ import annotations

import pytest
import slow_twins
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget.methods.fedaf.forgetting import forgetting_loss

ASCENTS = ["none", "plain", "capped"]


@settings(max_examples=80, deadline=None)
@given(
    ascent=st.sampled_from(ASCENTS),
    cap=st.sampled_from([0.5, 2.0, 6.0]),
    n=st.integers(1, 6),
    classes=st.integers(2, 5),
    scale=st.sampled_from([0.1, 1.0, 8.0]),
    seed=st.integers(0, 1000),
)
def test_forgetting_loss_equals_scalar_arithmetic(ascent, cap, n, classes, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    memory = torch.softmax(torch.randn(n, classes, generator=generator, dtype=torch.float64), dim=1)
    labels = torch.randint(0, classes, (n,), generator=generator)
    got = forgetting_loss(logits, memory, labels, ascent, cap)
    expected = slow_twins.forgetting_loss(logits.tolist(), memory.tolist(), labels.tolist(), ascent, cap)
    assert [float(x) for x in got] == pytest.approx(list(expected), rel=1e-9, abs=1e-9)


def push(ascent: str, trained_logit: float, cap: float = 6.0) -> float:
    """The gradient of - L_R alone on the trained label's logit: positive pushes it down."""
    logits = torch.tensor([[trained_logit, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    label, memory = torch.tensor([0]), torch.zeros(1, 3, dtype=torch.float64)
    loss, _, _ = forgetting_loss(logits, memory, label, ascent, cap)
    (gradient,) = torch.autograd.grad(loss, logits)
    return float(gradient[0, 0])


def test_every_ascent_pushes_a_remembered_label_down():
    assert push("none", 3.0) == 0.0
    assert all(push(ascent, 3.0) > 0 for ascent in ASCENTS if ascent != "none")


def test_what_is_forgotten_enough_stops_pushing_but_in_the_papers_form():
    assert push("plain", -20.0) == pytest.approx(1.0)
    assert push("capped", -20.0) == 0.0
    assert push("capped", -1.0) == pytest.approx(push("plain", -1.0))


def test_only_the_papers_form_has_no_lower_bound():
    logits = torch.tensor([[-1000.0, 0.0]], dtype=torch.float64)
    memory, label = torch.tensor([[0.0, 1.0]], dtype=torch.float64), torch.tensor([0])
    lowest = {a: float(forgetting_loss(logits, memory, label, a, 6.0)[0]) for a in ASCENTS}
    assert lowest["plain"] == pytest.approx(-1000.0)
    assert lowest["capped"] == pytest.approx(-6.0)
