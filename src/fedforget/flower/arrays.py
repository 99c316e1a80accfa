"""Flower's arrays as the tensors of a model, and back: in the app's own names, order and types."""

from __future__ import annotations

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import nn

from fedforget.errors import InputError
from fedforget.params import State


def names_in(model: nn.Module, arrays: ArrayRecord) -> dict[str, str]:
    """The array of each of the model's tensors: by name, or by order where the app has names of its own."""
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    names = {name: name for name in shapes}
    if set(shapes) != set(arrays):
        names = dict(zip(shapes, arrays, strict=False))
    odd = next((n for n in shapes if n not in names or tuple(arrays[names[n]].shape) != shapes[n]), None)
    if odd is not None or len(arrays) != len(shapes):
        where = f"its '{odd}' has no array of that shape" if odd is not None else "there are more arrays than that"
        raise InputError(f"The arrays are not those of the {type(model).__name__} that Forget was given: {where}.")
    return names


def state_of_arrays(model: nn.Module, arrays: ArrayRecord, names: dict[str, str]) -> State:
    """The arrays in the model's own types: an average makes floats of counters."""
    read = {name: torch.from_numpy(np.array(arrays[key].numpy())) for name, key in names.items()}
    own = model.state_dict()
    return {n: (t if own[n].is_floating_point() else t.round()).to(own[n].dtype) for n, t in read.items()}


def arrays_of_state(state: State, arrays: ArrayRecord, names: dict[str, str]) -> ArrayRecord:
    """The state as arrays like the ones given."""
    keys = {key: state[name].cpu().numpy() for name, key in names.items()}
    return ArrayRecord({key: Array(np.asarray(keys[key], dtype=array.numpy().dtype)) for key, array in arrays.items()})
