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
    reached: list[Tensor] = []

    def keep(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        reached[:] = [(args[0] if args else kwargs["input"]).clone()]  # a model may go on with it in place

    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers]
    rows: list[Tensor] = []
    model.eval()
    try:
        for part in features.split(batch_size):
            reached.clear()
            model(inputs(part))
            if not reached:
                raise InputError("The model runs no nn.Linear layer, so it has no features before one.")
            if len(reached[0]) != len(part):
                raise InputError("The model's last nn.Linear layer does not get one row for each sample.")
            rows.append(reached[0].flatten(1).double().cpu())
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(rows)
