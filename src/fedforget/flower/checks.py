"""What a model and a reply must look like before anybody works with them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedforget.errors import DivergedError
from fedforget.federation.client import Client
from fedforget.federation.masking import KEY_BYTES
from fedforget.federation.tasks import CheckRequests, CountSamples, Reply, Task, Train, Withdraw
from fedforget.flower.errors import ClientError, RefusedError
from fedforget.methods.fedaf.extensions.masked_sketch import PUBLIC_KEY, BuildMaskedSketch, OfferKey
from fedforget.methods.fedaf.forgetting import TEACHER_KEY, Forget
from fedforget.methods.fedaf.sketching import SKETCH_KEY
from fedforget.methods.fedquit import Distil
from fedforget.methods.pgd import Climb
from fedforget.methods.sga import FISHER_KEY, Ascend
from fedforget.params import first_non_finite, weight_count

WITHOUT_MODEL = (CheckRequests, CountSamples, Withdraw, OfferKey)
"""The tasks that come without a model."""
RETURN_A_MODEL = (Train, Forget, Ascend, Distil, Climb)
"""The tasks whose reply, where it holds tensors, is a whole model."""


def outline(model: nn.Module) -> str:
    """A digest of the names, types and shapes of a model's tensors, in order."""
    text = "\n".join(f"{name}|{t.dtype}|{tuple(t.shape)}" for name, t in model.state_dict().items())
    return hashlib.sha256(text.encode()).hexdigest()


def check_task(task: Task, addressee: int, state: Mapping[str, Tensor], client: Client) -> None:
    """Refuse a task that is for another client, or whose tensors are not the finite ones that this client expects."""
    if addressee != client.index:
        raise RefusedError(f"The task is for client {addressee}, but this node is client {client.index}.")
    if task.at_target and not any(request.client == client.index for request in getattr(task, "requests", ())):
        raise RefusedError(f"The requests are other clients', but this node is client {client.index}.")
    own = {} if isinstance(task, WITHOUT_MODEL) else client.model.state_dict()
    missing = next((name for name in own if name not in state), None)
    if missing is not None:
        raise RefusedError(f"The model that came lacks '{missing}'.")
    weights = weight_count(client.model)
    for name, tensor in state.items():
        expected = _looks(own[name]) if name in own else _extra(task, name, tensor, own, weights)
        if expected is None:
            raise RefusedError(f"Tensor '{name}' does not belong to a {type(task).__name__}.")
        if _looks(tensor) != expected:
            raise RefusedError(f"Tensor '{name}' is {_looks(tensor)}, but it must be {expected}.")
    broken = first_non_finite(state)
    if broken is not None:
        raise RefusedError(f"Tensor '{broken}' is not finite.")


def _extra(task: Task, name: str, tensor: Tensor, own: Mapping[str, Tensor], weights: int) -> str | None:
    """What a tensor beside the model must look like; None where there can be none of this name."""
    if isinstance(task, Ascend) and name == FISHER_KEY:
        return f"float32[{weights}]"
    if isinstance(task, BuildMaskedSketch) and name.startswith(PUBLIC_KEY):
        return f"uint8[{KEY_BYTES}]" if name.removeprefix(PUBLIC_KEY).isdecimal() else None
    if not isinstance(task, Forget):
        return None
    if name.startswith(TEACHER_KEY) and name.removeprefix(TEACHER_KEY) in own:
        return _looks(own[name.removeprefix(TEACHER_KEY)])
    if name == f"{SKETCH_KEY}.count":
        return "int64[]"
    if name == SKETCH_KEY and tensor.dim() == 2:
        return _looks(torch.empty(len(tensor), weights, dtype=task.settings.dtype, device="meta"))
    return None


def _looks(tensor: Tensor) -> str:
    """Type and shape.

    >>> _looks(torch.zeros(2, 3))
    'float32[2, 3]'
    """
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def check_reply(task: Task, reply: Reply, model: nn.Module) -> None:
    """Refuse, by the client's name, a reply that is not finite, or a model that is not of our shape."""
    broken = first_non_finite(reply.tensors)
    if broken is not None:
        raise DivergedError(f"{type(task).__name__} at client {reply.client}", f"its '{broken}' is not finite.")
    if not isinstance(task, RETURN_A_MODEL):
        return
    if isinstance(task, Train | Forget) and reply.numbers.get("samples", -1.0) < 0:
        raise ClientError(reply.client, "sent a model without the number of its samples.")
    expected = {name: _looks(tensor) for name, tensor in model.state_dict().items()}
    sent = {name: _looks(tensor) for name, tensor in reply.tensors.items()}
    if sent and sent != expected:
        odd = next(name for name in (*expected, *sent) if expected.get(name) != sent.get(name))
        raise ClientError(reply.client, f"sent a model whose '{odd}' is not that of ours.")
