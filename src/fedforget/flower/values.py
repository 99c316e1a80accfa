"""Tasks, settings and what clients keep as JSON, and back: the only classes that can come out are the declared ones.

    None, numbers, words      themselves; a number must be finite
    a tuple                   a list
    an erasure request        {"request": what its to_json says}
    a declared dataclass      {"type": its name, "fields": {every field}}
    a tensor                  {"tensor": its name among the tensors beside the JSON}

There is no pickle anywhere, and no field, type or class that the other side made up."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from fedforget.audit import tasks as audit
from fedforget.errors import FedForgetError, InputError, RefusedError
from fedforget.federation import sums
from fedforget.federation import tasks as federation
from fedforget.federation.tasks import Task
from fedforget.methods import METHODS
from fedforget.params import State
from fedforget.requests import ErasureRequest

MOST_THREADS = 1024


@cache
def known_tasks() -> tuple[type[Task], ...]:
    """Every task that may travel: the federation's own, those of each method, and the audit's."""
    of_methods = (task for method in METHODS.values() for task in method.tasks)
    return tuple(dict.fromkeys((*federation.TASKS, *sums.TASKS, *of_methods, *audit.TASKS)))


@cache
def known_classes() -> dict[str, Any]:
    """Every dataclass that may travel or be kept, by name: tasks, what they keep, and the methods' settings."""
    kept = {cls for task in known_tasks() for cls in task.keeps}
    settings = {type(preset) for method in METHODS.values() for preset in method.presets.values()}
    return {cls.__name__: cls for cls in (*known_tasks(), *kept, *settings)}


def encode(value: Any, tensors: State) -> Any:
    """`value` as JSON; the tensors in it go into `tensors`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [encode(item, tensors) for item in value]
    if isinstance(value, ErasureRequest):
        return {"request": value.to_json()}
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value
        return {"tensor": name}
    name, cls = type(value).__name__, known_classes().get(type(value).__name__)
    if cls is not type(value):
        raise FedForgetError(f"A '{name}' cannot travel; list it among a method's tasks, or among what a task keeps.")
    values = {item.name: encode(getattr(value, item.name), tensors) for item in fields(cls)}
    return {"type": name, "fields": values}


def decode(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value that `encode` wrote, or a refusal."""
    if isinstance(tree, float) and not math.isfinite(tree):
        raise RefusedError("A number is not finite.")
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, list):
        return tuple(decode(item, tensors) for item in tree)
    match tree:
        case {"request": dict() as values} if len(tree) == 1:
            return _request(values)
        case {"tensor": str() as name} if len(tree) == 1 and name in tensors:
            return tensors[name]
        case {"type": str() as name, "fields": dict() as values} if len(tree) == 2:
            return _dataclass(name, values, tensors)
    raise RefusedError(f"A value is in no known form: {json.dumps(tree)[:80]}.")


def read_json(text: str) -> dict[str, Any]:
    """A JSON object from the other side: finite numbers only."""

    def refuse(word: str) -> None:
        raise RefusedError(f"A number is {word}, which is not finite.")

    try:
        values = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise RefusedError("The message is no JSON.") from None
    if not isinstance(values, dict):
        raise RefusedError("The message is no JSON object.")
    return values


def _request(values: dict[str, Any]) -> ErasureRequest:
    hints = {"client": int, "kind": str, "label": int | None, "sample_ids": list[int], "feature": list[int]}
    wrong = [name for name, value in values.items() if name not in hints or not fits(value, hints[name])]
    if wrong or "client" not in values or "kind" not in values:
        raise RefusedError(f"An erasure request is malformed{f' in its {wrong[0]!r}' if wrong else ''}.")
    try:
        return ErasureRequest.from_json(values)
    except InputError as error:
        raise RefusedError(str(error)) from None


def _dataclass(name: str, values: dict[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    cls = known_classes().get(name)
    if cls is None:
        raise RefusedError(f"'{name}' is unknown here; both sides must run the same fedforget.")
    expected = {item.name for item in fields(cls)}
    for odd, what in ((set(values) - expected, "does not know the field"), (expected - set(values), "lacks the field")):
        if odd:
            raise RefusedError(f"'{name}' {what} '{min(odd)}'; both sides must run the same fedforget.")
    hints = _hints(cls)
    decoded = {field: decode(value, tensors) for field, value in values.items()}
    for field, value in decoded.items():
        if not fits(value, hints[field]):
            raise RefusedError(f"Field '{field}' of '{name}' is {value!r:.60}, which is of the wrong type.")
        number = isinstance(value, int | float) and issubclass(cls, Task)
        if number and (value < 0 or (field == "threads" and not 1 <= value <= MOST_THREADS)):
            raise RefusedError(f"Field '{field}' of '{name}' is {value}, which is out of bounds.")
    try:
        return cls(**decoded)
    except InputError as error:
        raise RefusedError(str(error)) from None


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says.

    >>> fits(3, float), fits(True, int), fits("x", Literal["x", "y"]), fits((1, 2), tuple[int, ...]), fits(None, int)
    (True, False, True, True, False)
    """
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, option) for option in options)
    if origin is Literal:
        return any(value == option and type(value) is type(option) for option in options)
    if origin in (tuple, list):
        return isinstance(value, origin) and all(fits(item, options[0]) for item in value)
    if hint in (int, float):
        return isinstance(value, int | float if hint is float else int) and not isinstance(value, bool)
    return isinstance(value, hint)
