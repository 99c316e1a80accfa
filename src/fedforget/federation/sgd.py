"""Stochastic gradient descent with momentum, bit for bit what `torch.optim.SGD` computes.

    v <- momentum v + g,    theta <- theta - lr v

The first optimiser of `torch.optim` imports a compiler, a second in every new process: longer than a whole request on
MNIST takes, and a client of a distributed federation starts a process for every message."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


class SGD:
    """Steps down a loss, over `parameters`; those that the loss does not depend on stay."""

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.0, longest: float = math.inf
    ) -> None:
        """A step is no longer than `lr` times `longest`: a gradient that would make it so lowers the learning rate, for
        this and all later steps."""
        self._parameters = [p for p in parameters if p.requires_grad]
        self._velocity = [torch.zeros_like(p) for p in self._parameters]
        self._lr, self._momentum, self._longest_step = lr, momentum, lr * longest

    def step(self, loss: Tensor) -> None:
        self.descend(torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True))

    def descend(self, gradients: Sequence[Tensor], length: float | None = None) -> None:
        """The step, where the gradients of the parameters are at hand, and perhaps their `length_of`."""
        if self._longest_step < math.inf:
            length = float(length_of(gradients)) if length is None else length
            if self._lr * length > self._longest_step:
                self._lr = self._longest_step / length
        momentum_step(self._parameters, self._velocity, gradients, self._lr, self._momentum)


def length_of(gradients: Sequence[Tensor]) -> Tensor:
    """Euclidean, of all of them as one vector."""
    length: Tensor = torch.stack(torch._foreach_norm(list(gradients))).norm()
    return length


@torch.no_grad()
def momentum_step(
    parameters: list[Tensor], velocity: list[Tensor], gradients: Sequence[Tensor], lr: float, momentum: float
) -> None:
    """v <- momentum v + g, theta <- theta - lr v, in place."""
    torch._foreach_mul_(velocity, momentum)
    torch._foreach_add_(velocity, list(gradients))
    torch._foreach_add_(parameters, velocity, alpha=-lr)
