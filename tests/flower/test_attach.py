"""The nodes' side of somebody's own Flower app: what `attach` reads, and what `retained` leaves out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from flwr.app import Context
from flwr.clientapp import ClientApp
from own_flower_app import client_of, context_of, load_data, own_app, own_grid, same_in_one_process, site
from small_worlds import SCHEDULE, network
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate
from torch.utils.data import WeightedRandomSampler as Weighted

from fedforget.data.samples import Normalisation
from fedforget.errors import InputError
from fedforget.federation.shards import Ensemble
from fedforget.flower import FlowerFederation
from fedforget.flower.attach import attach, retained
from fedforget.flower.node_store import NodeStore
from fedforget.models import fresh_copy
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest

X, Y = site(0)
PAIRS = TensorDataset(X, Y)


class Dicts(Dataset[dict[str, Any]]):
    """Samples as Flower's quickstart gets them."""

    def __init__(self, features: str = "img", label: str = "label") -> None:
        self.names = (features, label)

    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, position: int) -> dict[str, Any]:
        return dict(zip(self.names, (X[position], int(Y[position])), strict=True))


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(PAIRS)


def withdraw(folder: Path, *requests: ErasureRequest) -> Path:
    NodeStore(folder / "site-0", 0).withdraw(requests)
    return folder


# What attach reads


@pytest.mark.parametrize(
    "data",
    [
        PAIRS,
        Dicts(),
        DataLoader(PAIRS, batch_size=7, shuffle=True),
        DataLoader(Dicts(), batch_size=4),
        Subset(ConcatDataset([PAIRS, PAIRS]), range(len(Y))),
        [(x.double().numpy(), np.int64(y)) for x, y in PAIRS],
    ],
    ids=["pairs", "dicts", "shuffled loader", "loader of dicts", "subset", "arrays"],
)
def test_every_shape_of_data_gives_the_same_samples(data: Any):
    client = client_of(lambda _: data)
    assert torch.equal(client.samples.features, X)
    assert torch.equal(client.samples.labels, Y)
    assert client.samples.ids.tolist() == list(range(len(Y)))
    assert torch.equal(client.inputs(client.samples.features), X), "nothing is normalised again"
    assert client.classes == 3


def test_entries_may_have_other_names():
    client = client_of(lambda _: Dicts("image", "digit"), features="image", label="digit")
    assert torch.equal(client.samples.labels, Y)


def test_what_was_taken_out_is_still_there_to_be_forgotten(tmp_path: Path):
    """An app may well call `retained` inside its load_data: positions, hence ids, must not move."""
    context = context_of(0, withdraw(tmp_path, ErasureRequest.of_samples(0, [0, 1])))
    client = client_of(lambda _: retained(context, load_data(context)))
    assert torch.equal(client.samples.features, X)


def test_a_round_over_attach_has_the_bits_of_one_in_process(tmp_path: Path):
    before = state_of(network())
    federation = FlowerFederation(own_grid(tmp_path), network(), 3, Normalisation(), clients=4, poll_s=0.001)
    task = SCHEDULE.train_task(0)
    ours = [digest(reply.tensors) for reply in federation.ask(task, before)]
    assert ours == [digest(reply.tensors) for reply in same_in_one_process().ask(task, before)]


def test_untrained_copies_at_a_node_begin_as_the_apps_network_does():
    def wide() -> nn.Module:
        model = nn.Linear(6, 3)
        nn.init.normal_(model.weight, std=50.0)
        return model

    client = client_of(load_data, wide)
    first, second = (fresh_copy(client.model, seed) for seed in (1, 2))
    assert digest(first.state_dict()) != digest(second.state_dict())
    assert all(float(model.weight.detach().std()) == pytest.approx(50, rel=0.6) for model in (first, second))


def outside(*_: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(5, 3))


@pytest.mark.parametrize(
    ("data", "model", "sentence"),
    [
        ([], network, "The data of client 0 holds no samples; give at least one."),
        ([(X[0], 1, 2)], network, "A sample is a tuple, but it must be a pair (features, label) or a dict."),
        ([{"image": X[0], "label": 1}], network, "A sample has no entry 'img'; it has image, label."),
        ([(X[0], 0.5)], network, "A sample has the label 0.5; give one whole number for each."),
        ([(X[0], Y[:2])], network, "A sample has a label of shape (2,); give one whole number for each, its class:"),
        ([(X[0], X[0])], network, "A sample has a label of shape (6,); give one whole number for each, its class: not"),
        ([(X[0], Y[:1].float())], network, "A sample has a label of shape (1,); give one whole number for each"),
        ([(X[0].byte(), 1)], network, "A sample's features are whole numbers (torch.uint8), such as token ids, of"),
        (PAIRS, lambda: nn.Linear(6, 1), "The model has a single output for a sample; forgetting needs one for each"),
        (PAIRS, lambda: nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)), "The model has a single output for a sample;"),
        ([("cat", 1)], network, "A sample's features are str; give a tensor of floats, as the network takes it."),
        ([(X[0], 1), (X[0][:4], 1)], network, "The data of client 0 has samples of shape (6,) and (4,); make them"),
        ([(X[0] / 0, 1)], network, "The data of client 0 holds a NaN or an infinite number; remove or replace it."),
        ([(X[0], 3)], network, "The data of client 0 has the label 3, but its 3 classes are numbered 0 to 2;"),
        (Stream(), network, "A Stream has no positions, so its samples have no stable ids; give a data set with"),
        (PAIRS, outside, "The model cannot take samples of shape (6,): mat1 and mat2 shapes cannot be multiplied"),
        (PAIRS, lambda: nn.Unflatten(1, (2, 3)), "The model has no trainable parameter; set requires_grad"),
        (PAIRS, lambda: Ensemble(network, 2, seed=0), "This app's own rounds train one model at all clients, so an En"),
    ],
)
def test_what_cannot_be_attached_is_refused_in_one_sentence(data: Any, model: Callable[[], nn.Module], sentence: str):
    with pytest.raises(InputError) as refusal:
        client_of(lambda _: data, model)
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)


def test_a_model_without_one_output_per_class_is_refused():
    with pytest.raises(InputError, match=r"^The model's output is \(3, 2\) for a sample"):
        client_of(lambda _: PAIRS, lambda: nn.Sequential(nn.Linear(6, 6), nn.Unflatten(1, (3, 2))))


def test_an_app_of_the_old_kind_is_refused():
    def client_fn(context: Context) -> Any: ...

    with pytest.raises(InputError, match=r"^fedforget cannot be attached to this app, which needs @app\.train"):
        attach(ClientApp(client_fn), network, load_data)
    with pytest.raises(InputError, match=r"'forget' is already registered\.$"):
        attach(own_app(), network, load_data)


# What retained leaves out


def test_without_a_withdrawal_everything_stays_as_it_is(tmp_path: Path):
    loader = load_data(context_of(0))
    assert retained(context_of(0, tmp_path), loader) is loader
    assert retained(context_of(0, tmp_path), PAIRS) is PAIRS


@pytest.mark.parametrize("data", [PAIRS, Dicts()], ids=["pairs", "dicts"])
def test_what_was_withdrawn_is_left_out_for_ever(tmp_path: Path, data: Any):
    folder = withdraw(tmp_path, ErasureRequest.of_class(0, 2), ErasureRequest.of_samples(0, [0, 4]))
    rest = retained(context_of(0, folder), data)
    expected = [k for k in range(len(Y)) if int(Y[k]) != 2 and k not in (0, 4)]
    assert list(rest.indices) == expected
    assert list(retained(context_of(0, folder), rest).indices) == expected, "twice is once"
    assert retained(context_of(1, folder), data) is data, "another node's withdrawal is not ours"


class Pair(NamedTuple):
    img: torch.Tensor
    label: int


@pytest.mark.parametrize("kind", [tuple, list, Pair])
def test_a_withdrawn_feature_is_blank_in_pairs_of_every_kind(tmp_path: Path, kind: Any):
    data: Any = [Pair(x, y) if kind is Pair else kind((x, y)) for x, y in PAIRS]
    item = retained(context_of(0, withdraw(tmp_path, ErasureRequest.of_feature(0, 2))), data)[1]
    assert type(item) is kind
    assert float(item[0][2]) == 0.0
    assert torch.equal(item[0][3:], X[1][3:])


def test_a_loader_keeps_its_settings(tmp_path: Path):
    context = context_of(0, withdraw(tmp_path, ErasureRequest.of_class(0, 2)))
    loader = DataLoader(
        PAIRS, batch_size=3, shuffle=True, drop_last=True, in_order=False,
        collate_fn=lambda rows: default_collate(rows),
    )  # fmt: skip
    rest = retained(context, loader)
    assert (rest.batch_size, rest.drop_last, rest.collate_fn) == (3, True, loader.collate_fn)
    assert not rest.in_order
    assert type(rest.sampler) is type(loader.sampler)
    assert len(rest.dataset) == 20
    assert all(2 not in labels for _, labels in rest)
    plain = retained(context, DataLoader(PAIRS, batch_size=30))
    assert torch.equal(next(iter(plain))[0], X[Y != 2])


def test_retained_refuses_what_it_cannot_do(tmp_path: Path):
    with pytest.raises(InputError, match=r"^Client 0 has no state-dir, so it cannot know what it has withdrawn; name"):
        retained(context_of(0), PAIRS)
    context = context_of(0, withdraw(tmp_path, ErasureRequest.of_class(0, 2)))
    with pytest.raises(InputError, match=r"^The DataLoader has a sampler of its own; give retained the data set"):
        retained(context, DataLoader(PAIRS, sampler=Weighted([1.0] * len(Y), 5)))
    withdraw(tmp_path, ErasureRequest.of_client(0))
    with pytest.raises(InputError, match=r"^Client 0 has withdrawn all of its data, so it has nothing to train on\.$"):
        retained(context, PAIRS)


@pytest.mark.parametrize("data", [PAIRS, Dicts(), [[x.numpy(), y] for x, y in PAIRS]], ids=["pairs", "dicts", "arrays"])
def test_a_withdrawn_feature_is_blank_in_the_apps_own_training(tmp_path: Path, data: Any):
    """By one index, by several, and in a loader; beside a class that went, and as a client of our own sees it."""
    context = context_of(0, withdraw(tmp_path, ErasureRequest.of_feature(0, 3), ErasureRequest.of_class(0, 2)))
    without = X[Y != 2].clone()
    without[:, 3] = 0.0
    rest = retained(context, data)
    items = [rest[place] for place in range(len(rest))]
    read = [item["img"] if isinstance(item, dict) else item[0] for item in items]
    assert type(items[0]) is type(data[0])
    assert type(read[0]) is type(data[0]["img"] if isinstance(data[0], dict) else data[0][0])
    assert torch.equal(torch.stack([torch.as_tensor(row) for row in read]), without)
    batch = next(iter(retained(context, DataLoader(data, batch_size=len(Y)))))
    assert torch.equal(batch["img"] if isinstance(batch, dict) else batch[0], without)
    client = client_of(lambda _: data)
    ours = client.retained([ErasureRequest.of_feature(0, 3), ErasureRequest.of_class(0, 2)])
    assert torch.equal(ours.features, without)
    assert torch.equal(client_of(lambda _: rest).samples.features, X), "what was blanked is still there to be forgotten"


def test_a_feature_needs_the_name_of_its_entry(tmp_path: Path):
    context = context_of(0, withdraw(tmp_path, ErasureRequest.of_feature(0, 3)))
    with pytest.raises(InputError, match=r"^A sample has no entry 'img'; it has image, digit\.$"):
        retained(context, Dicts("image", "digit"), label="digit")
    rest = retained(context, Dicts("image", "digit"), features="image", label="digit")
    assert (rest[0]["image"][3], rest[0]["image"][2]) == (0.0, X[0][2])
