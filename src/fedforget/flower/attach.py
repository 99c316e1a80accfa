"""Forgetting in a Flower app that is there already, the nodes' side: two lines beside its own @app.train.

    attach(app, Net, lambda context: load_data(context.node_config["partition-id"], ...))

    @app.train()
    def train(message, context):
        trainloader = retained(context, load_data(...)[0])

`attach` serves requests. `retained` keeps what was withdrawn out of the app's own training: without it the next
ordinary round would train on the erased samples again. So `attach` holds back what a node trained without `retained`,
once that node has withdrawn something (`oversight`)."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import Context
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, Subset

from fedforget.data.samples import Normalisation, Samples, labelled_samples
from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.federation.shards import refuse_shards
from fedforget.federation.starts import network_of
from fedforget.flower.client_app import client_number, no_memory, open_store, register
from fedforget.flower.held_out import HOLD_OUT, drop_arrays, parted, set_aside, with_own_ids
from fedforget.flower.oversight import labels_of, mark_retained, note_change, note_order, only_retained
from fedforget.models import check_model
from fedforget.params import is_finite
from fedforget.requests import withdrawn_features, withdrawn_mask

Data = TypeVar("Data", bound="Dataset[Any] | DataLoader[Any]")
Given = Dataset[Any] | DataLoader[Any] | tuple[Any, Any]
"""A node's training data, or with them, as a tuple, data that it never trains on."""
LOADER_SETTINGS = inspect.signature(DataLoader).parameters.keys() - {"dataset", "shuffle", "sampler", "batch_sampler"}


class Retained(Subset[Any]):
    """A data set without what its node has withdrawn; `dataset` is the whole. What lies at `mask` in the entry
    `features` of a sample is blanked: 0, since nothing here is normalised."""

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int], mask: Tensor | None, features: str) -> None:
        super().__init__(dataset, indices)
        self.mask, self.features = mask, features

    def __getitem__(self, idx: Any) -> Any:
        return self._blanked(super().__getitem__(idx))

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self._blanked(item) for item in super().__getitems__(indices)]

    def _blanked(self, item: Any) -> Any:
        if self.mask is None:
            return item
        if isinstance(item, Mapping):
            return {**item, self.features: self._without(item[self.features])}
        blank = (self._without(item[0]), item[1])
        return type(item)(*blank) if hasattr(item, "_fields") else type(item)(blank)

    def _without(self, values: Any) -> Any:
        if isinstance(values, list):  # several samples at once
            return [self._without(row) for row in values]
        row = _row(values)
        blank = torch.where(self.mask.to(row.device), torch.zeros_like(row), row) if self.mask is not None else row
        return blank.numpy() if isinstance(values, np.ndarray) else blank


def attach(
    app: ClientApp,
    model: Callable[[], nn.Module],
    data: Callable[[Context], Given],
    *,
    features: str = "img",
    label: str = "label",
    device: str | torch.device = "cpu",
) -> None:
    """Teach `app` to serve erasure requests, beside whatever else it does.

    `model` makes the network, and an untrained copy begins as it makes it. `data` gives this node's training data:
    pairs (features, label), or dicts with the entries `features` and `label`. The features are floats as the network
    takes them; nothing is normalised again.

    A sample's id is its position. So `data` must give the same samples in the same order in every run, without random
    augmentation: a split needs a fixed seed. A DataLoader may shuffle; its data set is read in order, whole,
    for every message.

    The check before and after a request needs held-out data, which the node never trains on. If the app has some, such
    as a test loader, let `data` give a tuple: (training data, held-out data). Else write `hold-out = 0.2` into the
    node's or the run's config: that part of the samples is set aside, and `retained` leaves it out of the training.

    What the app keeps as arrays in the node's `context.state`, such as a layer of its own, is dropped when a request is
    served: it was trained with the model of before.

    The node's config has a `state-dir`, where the node remembers for ever what it has withdrawn, and best its number,
    `partition-id`, and a `name`; without a number a request names it by its `name` or `node_id`. Mods of the whole app
    also see our messages: clipping belongs into `@app.train(mods=...)`.

    A network with a ridge head is solved from the nodes' sums (`strategy.Forget`), so the app needs no `@app.train`."""
    try:
        load = partial(own_client, model=model, data=data, features=features, label=label, device=device)
        register(app, load, must_remember=True)
        only_retained(app)
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"fedforget cannot be attached to this app, which needs @app.train functions: {reason}"
        ) from None


def own_client(
    context: Context,
    model: Callable[[], nn.Module],
    data: Callable[[Context], Given],
    features: str = "img",
    label: str = "label",
    device: str | torch.device = "cpu",
) -> Client:
    """A node's client of its own network and data, as `attach` takes them."""
    number, network, place = client_number(context), refuse_shards(network_of(model)), torch.device(device)
    drop_arrays(context)
    given, unseen = parted(data(context))
    whole = _whole(given)
    samples, classes = _read(whole, network, features, label, f"The data of client {number}")
    no_ids = note_order(context, samples.labels.tolist())
    notes = note_change(number, samples.features, lambda place: _row(_entries(whole[place], features, label)[0]))
    aside, held_out = set_aside(context, number, len(samples)), None
    if unseen is not None:
        if aside is not None:
            raise InputError(
                f"Client {number} gives held-out data and names a {HOLD_OUT} as well; leave one of them out."
            )
        held_out = with_own_ids(_read(_whole(unseen), network, features, label, f"What client {number} holds out")[0])
    elif aside is not None:
        samples, held_out = samples.select(~aside), samples.select(aside)
    if place.type != "cpu":
        samples = samples.with_features(samples.features.to(place))
    return Client(
        number, samples, network.to(place), Normalisation(), classes, place,
        held_out=held_out, no_ids=no_ids, notes=notes,
    )  # fmt: skip


def retained(context: Context, data: Data, *, features: str = "img", label: str = "label") -> Data:
    """`data` without what this node has withdrawn, or set aside by its `hold-out`; `data` itself where that is nothing.
    For the app's own @app.train.

    Give it the same data as `attach` gets, a data set or a DataLoader, and the same names of entries. A feature that
    was withdrawn is 0 in every sample that comes out. A node that has withdrawn everything, or that
    has no state-dir to remember in, is refused: Flower reports it, and the round goes on without that node.

    Once a node has withdrawn something, a train reply of a message that did not call this is held back: Flower reports
    it as that node's error, and the round goes on without it."""
    number = client_number(context)
    store = open_store(context, number)
    if store is None:
        raise InputError(no_memory(number))
    mark_retained(context)
    withdrawn, whole = store.withdrawn, _whole(data)
    aside = set_aside(context, number, len(_indexed(whole)))
    if not withdrawn and aside is None:
        return data
    known = labels_of(whole, label, lambda place: _number(_entries(whole[place], None, label)[1]))
    store.in_order(known)
    labels = torch.tensor(known)
    samples = Samples.of(torch.empty(len(labels), 0), labels)
    gone = withdrawn_mask(withdrawn, number, samples)
    left = (~(gone if aside is None else gone | aside)).nonzero().squeeze(1).tolist()
    if not left:
        raise InputError(f"Client {number} has withdrawn all of its data, so it has nothing to train on.")
    store.begin(withdrawn)
    mask = None
    if any(request.kind == "feature" for request in withdrawn):
        mask = withdrawn_features(withdrawn, number, _row(_entries(whole[0], features, label)[0]).shape)
    rest = Retained(whole, left, mask, features)
    return _loader(data, rest) if isinstance(data, DataLoader) else rest  # type: ignore[return-value]


def _whole(data: Dataset[Any] | DataLoader[Any]) -> Dataset[Any]:
    """The data set in its own order, also where a loader shuffles it or `retained` took something out."""
    dataset = data.dataset if isinstance(data, DataLoader) else data
    return dataset.dataset if isinstance(dataset, Retained) else dataset


def _indexed(dataset: Any) -> Any:
    if isinstance(dataset, IterableDataset) or not all(hasattr(dataset, name) for name in ("__len__", "__getitem__")):
        raise InputError(
            f"A {type(dataset).__name__} has no positions, so its samples have no stable ids; "
            "give a data set with len() and an index."
        )
    return dataset


def _entries(item: Any, features: str | None, label: str) -> tuple[Any, Any]:
    """(features, label) of a pair or of a dict; without a name for the features, the label alone counts."""
    if isinstance(item, Mapping):
        missing = next((name for name in (features, label) if name is not None and name not in item), None)
        if missing is not None:
            raise InputError(f"A sample has no entry '{missing}'; it has {', '.join(map(str, item))}.")
        return None if features is None else item[features], item[label]
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    raise InputError(f"A sample is a {type(item).__name__}, but it must be a pair (features, label) or a dict.")


def _number(label: Any) -> int:
    try:
        return operator.index(label)
    except (TypeError, ValueError, RuntimeError):
        shape = tuple(getattr(label, "shape", ()))
        if shape:
            raise InputError(
                f"A sample has a label of shape {shape}; give one whole number for each, its class: not a row of zeros "
                "and a one, and not a picture, as an autoencoder has it."
            ) from None
        raise InputError(f"A sample has the label {label!r:.40}; give one whole number for each.") from None


def _read(dataset: Any, model: nn.Module, features: str, label: str, source: str) -> tuple[Samples, int]:
    """(all samples, how many classes the network tells apart)."""
    dataset = _indexed(dataset)
    pairs = [_entries(dataset[position], features, label) for position in range(len(dataset))]
    if not pairs:
        raise InputError(f"{source} holds no samples; give at least one.")
    rows = [_row(row) for row, _ in pairs]
    odd = next((row for row in rows if row.shape != rows[0].shape), None)
    if odd is not None:
        raise InputError(
            f"{source} has samples of shape {tuple(rows[0].shape)} and {tuple(odd.shape)}; make them alike."
        )
    stacked = torch.stack(rows)
    if not is_finite([stacked]):
        raise InputError(f"{source} holds a NaN or an infinite number; remove or replace it.")
    classes = check_model(model, rows[0].shape)
    return labelled_samples(stacked, torch.tensor([_number(y) for _, y in pairs]), classes, source), classes


def _row(features: Any) -> Tensor:
    if isinstance(features, Tensor | np.ndarray):
        row = torch.as_tensor(features)
        if row.is_floating_point():
            return row.float()
        kind = f"whole numbers ({row.dtype})"
        if not row.is_complex() and row.dtype != torch.bool:
            raise InputError(
                f"A sample's features are {kind}, such as token ids, of which no method can take a gradient or blank a "
                "part; give a tensor of floats, as the network takes it."
            )
    kind = getattr(features, "dtype", type(features).__name__)
    raise InputError(f"A sample's features are {kind}; give a tensor of floats, as the network takes it.")


def _loader(loader: DataLoader[Any], dataset: Dataset[Any]) -> DataLoader[Any]:
    """The same loader over another data set."""
    if loader.batch_size is None or type(loader.sampler) not in (SequentialSampler, RandomSampler):
        raise InputError(
            "The DataLoader has a sampler of its own; give retained the data set, and make the loader of what returns."
        )
    settings = {name: getattr(loader, name) for name in LOADER_SETTINGS if hasattr(loader, name)}
    return DataLoader(dataset, shuffle=isinstance(loader.sampler, RandomSampler), **settings)
