"""Embedding space: what reaches a network's last linear layer, its head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fedforget.errors import InputError


@torch.no_grad()
def last_linear_inputs(
    model: nn.Module, features: Tensor, inputs: Callable[[Tensor], Tensor], batch_size: int = 500
) -> Tensor:
    """H [n, d] in float64: what reaches the last `nn.Linear` that runs, for each sample, in evaluation mode."""
    return _through(model, features, inputs, batch_size)[0]


def find_head(model: nn.Module, batch: Tensor) -> str:
    """The head's name, as a batch of the model's inputs shows it; refused where what the head says is not the model's
    answer, since then a head that changes is not all that changes."""
    rows, layer, logits = _through(model, batch, lambda x: x, len(batch))
    with torch.no_grad():
        if not torch.allclose(layer(rows.to(logits)), logits, rtol=1e-4, atol=1e-5):
            raise InputError("The model goes on after its last nn.Linear layer, so that layer is not its head.")
    return next(name for name, module in model.named_modules() if module is layer)


@torch.no_grad()
def _through(
    model: nn.Module, features: Tensor, inputs: Callable[[Tensor], Tensor], batch_size: int
) -> tuple[Tensor, nn.Linear, Tensor]:
    """(H, the layer it reaches, the last batch's logits)."""
    reached: list[tuple[nn.Linear, Tensor]] = []

    def keep(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert isinstance(layer, nn.Linear)
        reached[:] = [(layer, (args[0] if args else kwargs["input"]).clone())]  # a model may go on with it in place

    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers]
    rows: list[Tensor] = []
    logits = torch.zeros(0)
    model.eval()
    try:
        for part in features.split(batch_size):
            reached.clear()
            logits = model(inputs(part))
            if not reached:
                raise InputError("The model runs no nn.Linear layer, so it has no features before one.")
            if len(reached[0][1]) != len(part):
                raise InputError("The model's last nn.Linear layer does not get one row for each sample.")
            rows.append(reached[0][1].flatten(1).double().cpu())
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(rows), reached[0][0], logits
