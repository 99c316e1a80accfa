"""The diagonal of the Fisher information, from per-sample gradients.

    F_j = (1/n) sum_i (d l_i / d theta_j)^2

The mean of squared gradients, not the squared mean gradient of a minibatch, which at an optimum is smaller by about
the batch size and not by a constant factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedforget.methods.fedaf.sketch import Jacobian, hash_uniforms, row_losses
from fedforget.params import trainable


def per_sample_gradients(j: Jacobian, batch_size: int = 32) -> Iterator[dict[str, Tensor]]:
    """The rows of J, `batch_size` samples at a time: for each parameter, the gradients [b, *shape]."""
    model, samples = j.model.eval(), j.samples
    device = next(model.parameters()).device
    uniforms = hash_uniforms(samples.ids, j.seed)

    def loss(logits: Tensor, y: Tensor, u: Tensor) -> Tensor:
        return row_losses(logits, y, u, j.labels)[0]

    for batch in torch.arange(len(samples)).split(batch_size):
        x = j.inputs(samples.features[batch.to(samples.features.device)])
        yield derivatives(model, loss, x, samples.labels[batch].to(device), uniforms[batch].to(device))


def derivatives(model: nn.Module, scalar: Callable[..., Tensor], x: Tensor, *columns: Tensor) -> dict[str, Tensor]:
    """For each parameter, the derivative by it of `scalar` of each sample's logits [1, C] and its row of the `columns`,
    [b, *shape]."""
    parameters = {name: parameter.detach() for name, parameter in trainable(model).items()}

    def of_one(values: dict[str, Tensor], one: Tensor, *rows: Tensor) -> Tensor:
        return scalar(functional_call(model, values, (one[None],)), *(row[None] for row in rows))

    with sdpa_kernel(SDPBackend.MATH):  # vmap knows no rule for the fused attentions
        found: dict[str, Tensor] = vmap(grad(of_one), in_dims=(None, 0, *[0] * len(columns)))(parameters, x, *columns)
    return found


def fisher_diagonal(j: Jacobian, batch_size: int = 32) -> Tensor:
    """F as one flat vector of length m."""
    total: Tensor | None = None
    for gradients in per_sample_gradients(j, batch_size):
        squares = torch.cat([g.square().sum(dim=0).reshape(-1) for g in gradients.values()])
        total = squares if total is None else total + squares
    assert total is not None
    return total / len(j.samples)
