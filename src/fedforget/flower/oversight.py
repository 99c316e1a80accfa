"""What goes wrong by oversight in somebody's own app, noticed at the node: training without `retained`, data that come
in another order each time, samples that differ each time they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from fedforget.errors import InputError
from fedforget.flower.client_app import client_number, open_store
from fedforget.flower.messages import TASK_TYPE
from fedforget.flower.renewal import drop_old_arrays

MARK = "_fedforget_retained"
PROBES = 8
"""How many samples are read once more to see whether they are what they seem."""


def only_retained(app: ClientApp) -> None:
    """Hold back every train reply of a node that has withdrawn something, if its data did not come through `retained`.

    Flower has no public way to see the replies of functions that are registered later: a mod of the whole app sees
    them. `app` is one without a client_fn."""

    def watch(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        vars(context).pop(MARK, None)  # a simulation hands the same context from message to message
        drop_old_arrays(message, context)
        reply = call_next(message, context)
        _check(message, context)
        return reply

    app._mods.insert(0, watch)
    for name, registered in list(app._registered_funcs.items()):
        app._registered_funcs[name] = partial(watch, call_next=registered)


def mark_retained(context: Context) -> None:
    """Note that this message's data came through `retained`."""
    setattr(context, MARK, True)


def _check(message: Message, context: Context) -> None:
    kind = message.metadata.message_type
    if kind.partition(".")[0] != "train" or kind == TASK_TYPE or getattr(context, MARK, False):
        return
    number = client_number(context)
    store = open_store(context, number)
    if store is not None and store.withdrawn:
        raise InputError(
            f"Client {number} has withdrawn data, and its app trained without asking retained which to leave out, so "
            "the result is held back; pass the training data through fedforget.flower.retained(context, data)."
        )


def note_order(context: Context, labels: Sequence[int]) -> str:
    """Why positions cannot name samples here; empty where they can. Refused where some were withdrawn by them."""
    number = client_number(context)
    store = open_store(context, number)
    if store is None or store.in_order(labels):
        return ""
    return (
        f"The data of client {number} come in another order than before, so its sample ids name other samples each "
        "time; give the split a fixed seed, and ask again."
    )


def note_change(number: int, features: Tensor, read: Callable[[int], Tensor]) -> tuple[str, ...]:
    """A note if samples differ when they are read again."""
    for position in _probes(len(features)):
        again = read(position)
        if again.shape != features[position].shape or not torch.equal(again, features[position]):
            return (
                f"The samples of client {number} differ each time they are read, as with random augmentation, so what "
                "is measured on them does too; best give attach the data without it.",
            )
    return ()


def labels_of(dataset: Any, label: str, read: Callable[[int], int]) -> list[int]:
    """The labels of all samples, from where the data set keeps them if that is so, since to read a whole sample may
    mean to decode an image. `read` reads one sample's label; some are compared."""
    kept = _kept_labels(dataset, label)
    if kept is not None:
        try:
            labels = [int(value) for value in kept]
            if all(labels[place] == read(place) == kept[place] for place in _probes(len(labels))):
                return labels
        except (TypeError, ValueError, RuntimeError):
            pass
    return [read(position) for position in range(len(dataset))]


def _kept_labels(dataset: Any, label: str) -> Any:
    """One for each sample, or None."""
    kept = _looked_up(dataset, label)
    return kept if kept is not None and len(kept) == len(dataset) else None


def _looked_up(dataset: Any, label: str) -> Any:
    """Torch's own wrappers, a column of Hugging Face's, the `targets` or `labels` of torchvision's."""
    if isinstance(dataset, Subset):
        inner = _kept_labels(dataset.dataset, label)
        return None if inner is None else [inner[int(position)] for position in dataset.indices]
    if isinstance(dataset, ConcatDataset):
        parts = [_kept_labels(part, label) for part in dataset.datasets]
        return None if any(part is None for part in parts) else [y for part in parts for y in part]
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return dataset.tensors[1].tolist()
    if label in (getattr(dataset, "column_names", None) or ()):
        return list(dataset.with_format(None)[label])
    found = next((getattr(dataset, name) for name in ("targets", "labels") if hasattr(dataset, name)), None)
    return (
        found.tolist() if isinstance(found, Tensor | np.ndarray) else found if isinstance(found, list | tuple) else None
    )


def _probes(count: int) -> list[int]:
    """Positions spread over so many samples."""
    return sorted({count * probe // PROBES for probe in range(PROBES)}) if count else []
