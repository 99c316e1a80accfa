"""What a model and a reply must look like before anybody works with them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from torch import Tensor, nn

from fedforget.errors import DivergedError
from fedforget.federation.client import Client
from fedforget.federation.tasks import Reply, Task
from fedforget.flower.errors import ClientError, RefusedError
from fedforget.params import first_non_finite


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
    own = client.model.state_dict() if task.with_model else {}
    missing = next((name for name in own if name not in state), None)
    if missing is not None:
        raise RefusedError(f"The model that came lacks '{missing}'.")
    for name, tensor in state.items():
        expected = own[name] if name in own else task.beside(name, tensor, client.model)
        if expected is None:
            raise RefusedError(f"Tensor '{name}' does not belong to a {type(task).__name__}.")
        if _looks(tensor) != _looks(expected):
            raise RefusedError(f"Tensor '{name}' is {_looks(tensor)}, but it must be {_looks(expected)}.")
    broken = first_non_finite(state)
    if broken is not None:
        raise RefusedError(f"Tensor '{broken}' is not finite.")


def _looks(tensor: Tensor) -> str:
    """Type and shape.

    >>> _looks(Tensor(2, 3))
    'float32[2, 3]'
    """
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def check_reply(task: Task, reply: Reply, model: nn.Module) -> None:
    """Refuse, by the client's name, a reply that is not finite, or not what the task declares to return."""
    broken = first_non_finite(reply.tensors)
    if broken is not None:
        raise DivergedError(f"{type(task).__name__} at client {reply.client}", f"its '{broken}' is not finite.")
    if task.counts_samples and reply.numbers.get("samples", -1.0) < 0:
        raise ClientError(reply.client, "sent a model without the number of its samples.")
    if task.returns == "numbers" and reply.tensors:
        raise ClientError(reply.client, f"sent tensors, but a {type(task).__name__} returns none.")
    if task.returns != "model":
        return
    expected = {name: _looks(tensor) for name, tensor in model.state_dict().items()}
    sent = {name: _looks(tensor) for name, tensor in reply.tensors.items()}
    if sent and sent != expected:
        odd = next(name for name in (*expected, *sent) if expected.get(name) != sent.get(name))
        raise ClientError(reply.client, f"sent a model whose '{odd}' is not that of ours.")
