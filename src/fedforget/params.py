"""Arithmetic on named parameters: a model's state is a plain `dict[str, Tensor]`, as `state_dict` gives it."""

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

State = dict[str, Tensor]


def copy_state(state: Mapping[str, Tensor], device: torch.device | str | None = None) -> State:
    """A detached copy, on `device` if one is given."""
    return {name: tensor.detach().to(device=device, copy=True) for name, tensor in state.items()}


def state_of(model: nn.Module) -> State:
    """A detached copy of the model's parameters and buffers."""
    return copy_state(model.state_dict())


def is_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every floating-point value in `tensors` is a finite number."""
    return all(bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point())


def first_non_finite(state: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that holds a NaN or an infinity, or None."""
    return next((name for name, tensor in state.items() if not is_finite([tensor])), None)


def state_bytes(state: Mapping[str, Tensor]) -> int:
    """Bytes the tensors take on the wire."""
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def distance(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> float:
    """Euclidean distance ||a - b|| over all floating-point entries (parameters and running statistics)."""
    return float(
        sum((a[name].double() - b[name].double()).square().sum() for name in a if a[name].is_floating_point()) ** 0.5
    )


def digest(state: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes: two models have the same digest when they are the same bits."""
    sha = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        sha.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training moves, by name, in the model's order."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def weight_count(model: nn.Module) -> int:
    """m, how many numbers training moves."""
    return sum(parameter.numel() for parameter in trainable(model).values())


def unflatten(theta: Tensor, parameters: Mapping[str, Tensor]) -> State:
    """Where each parameter lies in the flat vector theta of length m: views of it, in the parameters' shapes."""
    views, start = {}, 0
    for name, parameter in parameters.items():
        views[name] = theta[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
    return views


def flatten(parameters: Mapping[str, Tensor]) -> Tensor:
    """theta as one float32 vector of length m."""
    return torch.cat([parameter.detach().reshape(-1).float() for parameter in parameters.values()])


@torch.no_grad()
def move(parameters: Mapping[str, Tensor], step: Tensor, scale: float = 1.0) -> None:
    """theta <- theta + scale * step, in place."""
    torch._foreach_add_(list(parameters.values()), list(unflatten(step, parameters).values()), alpha=scale)
