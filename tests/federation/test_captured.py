"""A gradient of a batch: what autograd gives, on a CPU as it is, on a GPU as a recorded graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.federation.captured import gradient_of
from fedforget.models import build_model
from fedforget.params import trainable

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="recording needs a GPU")


@pytest.mark.parametrize(
    ("device", "half"), [("cpu", False), ("cpu", True), *(pytest.param("cuda", h, marks=NEEDS_GPU) for h in (0, 1))]
)
def test_it_is_the_gradient_at_the_weights_of_the_moment(device: str, half: bool):
    model = build_model("resnet10", (3, 8, 8), 4, seed=0).to(device).eval()
    parameters = trainable(model)
    generator = torch.Generator().manual_seed(0)

    def loss(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = F.cross_entropy(model(x).float(), y)
        return total, total.detach()

    gradient = gradient_of(loss, model, ("test",), half=bool(half))
    for step in range(3):
        x = torch.randn(5, 3, 8, 8, generator=generator).to(device)
        y = torch.randint(0, 4, (5,), generator=generator).to(device)
        expected, value = torch.autograd.grad(loss(x, y)[0], list(parameters.values())), loss(x, y)[1]
        found, figure = gradient(x, y)
        # bfloat16 has 8 bits: through a few layers a gradient of five samples differs by up to a tenth
        near = 0.2 if device == "cuda" and half else 1e-3
        assert float(figure) == pytest.approx(float(value), rel=near, abs=near), step
        for a, b in zip(found, expected, strict=True):
            assert float((a - b).norm()) <= near * float(b.norm()) + 1e-6, step
        with torch.no_grad():
            for parameter in parameters.values():
                parameter -= 0.01
