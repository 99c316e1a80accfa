"""Tasks and replies as the content of Flower messages, and what they must look like before anybody works with them.

A content has two records: `fedforget`, one JSON text, and `tensors`, the arrays as raw bytes with their types and
shapes. The JSON lists the tensors' names in order, since flattening a model depends on it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor, nn

from fedforget.errors import ClientError, DivergedError, FedForgetError, InputError, NotYetError, RefusedError
from fedforget.federation.client import Client
from fedforget.federation.tasks import Reply, Task, Withdraw
from fedforget.flower.values import decode, encode, fits, read_json
from fedforget.params import State, first_non_finite
from fedforget.requests import ErasureRequest

TASK_TYPE = "train.forget"
"""The message type of every task."""
QUERY_TYPE = "query.forget"
"""Of the question who a node is."""
VERSION = 2
TEXT, TENSORS, QUERY = "fedforget", "tensors", "fedforget.query"
RAW = "fedforget.raw"
"""The name of our serialisation in Flower's arrays: the tensor's bytes, in C order."""
TYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip


def pack(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """The tensors bit for bit, whatever their type."""

    def array(tensor: Tensor) -> Array:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        data = flat.view(torch.uint8).numpy().tobytes()
        return Array(dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape), stype=RAW, data=data)

    return ArrayRecord({name: array(tensor) for name, tensor in tensors.items()})


def unpack(content: RecordDict, names: Any) -> State:
    """The tensors again, in the order of `names`; what is not what it says it is is refused."""
    record = content.get(TENSORS)
    if not isinstance(record, ArrayRecord):
        raise RefusedError("The message has no record of tensors.")
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(record):
        raise RefusedError("The message does not hold the tensors that it lists.")
    return {name: _tensor(name, record[name]) for name in names}


def _tensor(name: str, array: Array) -> Tensor:
    dtype = TYPES.get(array.dtype)
    if dtype is None or array.stype != RAW:
        raise RefusedError(f"Tensor '{name}' is of the unknown type '{array.dtype}' ({array.stype}).")
    shape = tuple(array.shape)
    if any(size < 0 for size in shape) or math.prod(shape) * dtype.itemsize != len(array.data):
        raise RefusedError(
            f"Tensor '{name}' has {len(array.data)} bytes, which do not make {array.dtype}{list(shape)}."
        )
    # In memory that torch aligned: the bits of a product can depend on where its factors lie.
    flat = torch.empty(len(array.data), dtype=torch.uint8)
    flat.numpy()[:] = np.frombuffer(array.data, dtype=np.uint8)
    return flat.view(dtype).reshape(shape)


def _content(values: Mapping[str, Any], arrays: ArrayRecord | None = None) -> RecordDict:
    text = json.dumps({"version": VERSION, **values})
    return RecordDict({TEXT: ConfigRecord({"json": text}), TENSORS: arrays or ArrayRecord()})


def _opened(content: RecordDict, name: str = TEXT) -> dict[str, Any]:
    """The JSON of a content of ours."""
    record = content.get(name)
    text = record.get("json") if isinstance(record, ConfigRecord) else None
    if not isinstance(text, str):
        raise RefusedError("The message is not one of fedforget's.")
    values = read_json(text)
    if values.pop("version", None) != VERSION:
        raise RefusedError("The message is of another version; both sides must run the same fedforget.")
    return values


def _expect(values: Mapping[str, Any], **hints: Any) -> None:
    """Refuse an entry that is missing, unknown, or of the wrong type."""
    unknown = set(values) - set(hints)
    if unknown:
        raise RefusedError(f"The message has the unknown entry '{min(unknown)}'.")
    for name, hint in hints.items():
        if name not in values or not fits(values[name], hint):
            raise RefusedError(f"The message's entry '{name}' is missing or of the wrong type.")


def task_content(
    task: Task,
    client: int,
    state: Mapping[str, Tensor],
    arrays: ArrayRecord | None = None,
    withdrawal: Withdraw | None = None,
) -> RecordDict:
    """A task for one client, and what it must note down before. `arrays` is the packed `state`, where several clients
    get the same."""
    values = {"client": client, "task": encode(task, {}), "tensors": list(state)}
    if withdrawal is not None:
        values["before"] = encode(withdrawal, {})
    return _content(values, pack(state) if arrays is None else arrays)


def read_task(content: RecordDict) -> tuple[Task, int, State]:
    """(the task, the client it is for, the tensors that came with it)."""
    values = _opened(content)
    values.pop("before", None)
    _expect(values, client=int, task=dict, tensors=list)
    task = decode(values["task"], {})
    if not isinstance(task, Task):
        raise RefusedError(f"'{type(task).__name__}' is no task.")
    return task, values["client"], unpack(content, values["tensors"])


def read_withdrawal(content: RecordDict) -> Withdraw | None:
    """What the client must note down before the task, if anything."""
    told = _opened(content).get("before")
    withdrawal = None if told is None else decode(told, {})
    if not isinstance(withdrawal, Withdraw | None):
        raise RefusedError(f"'{type(withdrawal).__name__}' cannot come before a task.")
    return withdrawal


Questions = Sequence[tuple[ErasureRequest, ...]]
"""Requests, as many at a time as a client is to count together."""


def query_content(questions: Questions) -> RecordDict:
    """The question who a node is, and how much of its data its own of some requests name."""
    if not questions:
        return RecordDict()
    text = json.dumps({"version": VERSION, "questions": [encode(asked, {}) for asked in questions]})
    return RecordDict({QUERY: ConfigRecord({"json": text})})


def read_query(content: RecordDict) -> Questions:
    if QUERY not in content:
        return ()
    values = _opened(content, QUERY)
    _expect(values, questions=list)
    questions = decode(values["questions"], {})
    if not all(fits(asked, tuple[ErasureRequest, ...]) for asked in questions):
        raise RefusedError("The questions are malformed.")
    return questions


def reply_content(reply: Reply) -> RecordDict:
    return _content({**vars(reply), "tensors": list(reply.tensors)}, pack(reply.tensors))


def read_reply(content: RecordDict, client: int) -> Reply:
    """What `client` replied. The error it tells of is raised; what is no reply of this client is refused."""
    values = _opened(content)
    _raise_error(values, client)
    _expect(
        values, client=int, tensors=list, numbers=dict, curves=dict, gradient_evaluations=float, seconds=dict,
        stored_bytes=int, notes=list,
    )  # fmt: skip
    if values["client"] != client:
        raise RefusedError(f"It answers as client {values['client']}.")
    curves = values["curves"].values()
    if not all(isinstance(curve, list) for curve in curves) or not all(isinstance(n, str) for n in values["notes"]):
        raise RefusedError("The reply's curves or notes are malformed.")
    numbers = [*values["numbers"].values(), *values["seconds"].values(), values["gradient_evaluations"]]
    for number in itertools.chain(numbers, *curves):
        if not fits(number, float) or not math.isfinite(number):
            raise RefusedError(f"The reply holds {number!r:.40}, which is no finite number.")
    return Reply(**{**values, "tensors": unpack(content, values["tensors"]), "notes": tuple(values["notes"])})


def error_content(client: int, error: FedForgetError) -> RecordDict:
    """A refusal or a divergence in the client's own words; the server raises the same."""
    return _content({"client": client, "error": _told(error)})


def _told(error: FedForgetError) -> dict[str, Any]:
    if isinstance(error, DivergedError):
        return {"kind": "diverged", "words": [error.stage, error.detail]}
    kinds = {NotYetError: "not yet", InputError: "input", FedForgetError: "refused"}
    return {"kind": next(kinds[kind] for kind in kinds if isinstance(error, kind)), "words": [str(error)]}


def _raise_error(values: Mapping[str, Any], client: int) -> None:
    """Raise what a client told of, as it did there; a divergence names the client."""
    if "error" not in values:
        return
    error = values["error"]
    kind, words = (error.get("kind"), error.get("words")) if isinstance(error, dict) else (None, None)
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ClientError(client, "answered with an error that cannot be read.")
    if kind == "diverged" and len(words) == 2:
        stage, detail = words
        named = f"client {client}" in stage.lower()
        raise DivergedError(stage if named else f"{stage} at client {client}", detail)
    if kind in ("input", "not yet"):
        raise (InputError if kind == "input" else NotYetError)(words[0])
    raise ClientError(client, f"refused: {words[0]}")


Answer = tuple[int, int] | FedForgetError | None
"""How many samples (the target, the retained) have; a refusal; None where no request is the client's."""


@dataclass(frozen=True)
class Description:
    """Who a node is: the client's number, a name for people, and how many samples it would train on.

    `model` names its model's tensors, with types and shapes, and `images` says how it prepares them: the server's must
    be the same."""

    client: int
    name: str
    samples: int
    model: tuple[str, ...]
    images: str
    answers: tuple[Answer, ...] = ()
    """To the questions that came along."""


def description_content(description: Description) -> RecordDict:
    answers = [_told(said) if isinstance(said, FedForgetError) else said for said in description.answers]
    return _content({**vars(description), "model": list(description.model), "answers": answers})


def read_description(content: RecordDict) -> Description:
    values = _opened(content)
    if "error" in values:
        client = values.get("client")
        try:
            _raise_error(values, -1)
        except FedForgetError as error:
            why = error.reason if isinstance(error, ClientError) else str(error)
            raise ClientError(client if isinstance(client, int) else -1, why) from None
    _expect(
        values, client=int, name=str, samples=int, model=list[str], images=str, answers=list[list[int] | dict | None]
    )  # fmt: skip
    answers = tuple(_answer(said, values["client"]) for said in values["answers"])
    return Description(**{**values, "model": tuple(values["model"]), "answers": answers})


def _answer(said: list[int] | dict[str, Any] | None, client: int) -> Answer:
    if isinstance(said, dict):
        try:
            _raise_error({"error": said}, client)
        except FedForgetError as error:
            return error
    if isinstance(said, list) and len(said) == 2 and min(said) >= 0:
        return said[0], said[1]
    if said is not None:
        raise RefusedError("An answer to a question is malformed.")
    return None


def outline(model: nn.Module) -> tuple[str, ...]:
    """The names, types and shapes of a model's tensors, in order.

    >>> outline(nn.Linear(3, 2))
    ("'weight' of float32[2, 3]", "'bias' of float32[2]")
    """
    return tuple(f"'{name}' of {_looks(tensor)}" for name, tensor in model.state_dict().items())


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
