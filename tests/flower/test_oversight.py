"""What goes wrong by oversight in somebody's own app is noticed at the node."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from own_flower_app import QUICK, context_of, load_data, own_app, own_grid, site
from small_worlds import network
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from fedforget.errors import InputError
from fedforget.flower import Forget, attach, retained
from fedforget.flower.attach import own_client
from fedforget.flower.node_store import NodeStore
from fedforget.requests import ErasureRequest

X, Y = site(0)
TWOS = ErasureRequest.of_class(0, 2)


def careless_app(careful: bool, late: bool = False) -> ClientApp:
    """An app of the usual shape that forgot its `retained`, or not; `late`: attach comes after its functions."""
    app = ClientApp()
    if not late:
        attach(app, network, load_data)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if careful:
            retained(context, load_data(context))
        return answered(message)

    @app.train("warmup")
    def warm(message: Message, context: Context) -> Message:
        return answered(message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return answered(message)

    if late:
        attach(app, network, load_data)
    return app


def answered(message: Message) -> Message:
    metrics = MetricRecord({"num-examples": 3})
    return Message(RecordDict({"arrays": ArrayRecord(network().state_dict()), "metrics": metrics}), reply_to=message)


@pytest.mark.parametrize("late", [False, True], ids=["attached first", "attached last"])
def test_training_on_withdrawn_data_by_oversight_is_held_back(tmp_path: Path, late: bool):
    """Before a withdrawal nothing changes. After it the round goes on without that node."""
    held = r"code 2.*Client 0 has withdrawn data, and its app trained without asking retained"

    def ask(kind: str, careful: bool = False) -> list[tuple[int, str]]:
        grid = own_grid(tmp_path, careless_app(careful, late))
        messages = [Message(RecordDict(), node, kind) for node in sorted(grid.numbers)]
        return [
            (grid.numbers[m.metadata.dst_node_id], f"code {r.error.code}: {r.error.reason}" if r.has_error() else "")
            for m, r in zip(messages, grid.send_and_receive(messages), strict=True)
        ]

    assert all(said == "" for _, said in ask("train"))
    NodeStore(tmp_path / "site-0", 0).withdraw([TWOS])
    for kind in ("train", "train.warmup"):
        said = dict(ask(kind))
        assert torch.tensor([not said[number] for number in (1, 2, 3)]).all()
        with pytest.raises(AssertionError, match=held):
            raise AssertionError(said[0])
    assert all(said == "" for _, said in ask("evaluate"))
    assert all(said == "" for _, said in ask("train", careful=True))


def test_a_message_that_asked_retained_does_not_speak_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A simulation hands a node's context from message to message."""
    NodeStore(tmp_path / "site-0", 0).withdraw([TWOS])
    context = context_of(0, tmp_path)

    def train(careful: bool) -> Message:
        grid = own_grid(tmp_path, careless_app(careful))
        monkeypatch.setattr(grid, "context", lambda node: context)
        return next(iter(grid.send_and_receive([Message(RecordDict(), min(grid.numbers), "train")])))

    assert train(careful=True).has_content()
    assert train(careful=False).has_error()


def test_a_round_goes_on_without_the_careless_node(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    forget = Forget(FedAvg(fraction_evaluate=0.0, min_train_nodes=2), network, **QUICK)
    forget.request(partition=0, label=2)
    with caplog.at_level(logging.INFO, "flwr"):
        forget.start(own_grid(tmp_path, careless_app(False)), ArrayRecord(network().state_dict()), num_rounds=1)
    forget.check_served()
    assert "Received 3 results and 1 failures" in caplog.text


class Shuffled(Dataset[Any]):
    """Another order in each process, as of a split without a seed."""

    def __init__(self, seed: int) -> None:
        self.order = torch.randperm(len(Y), generator=torch.Generator().manual_seed(seed)).tolist()

    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, position: int) -> Any:
        return X[self.order[position]], int(Y[self.order[position]])


def test_samples_are_not_named_where_the_order_changes(tmp_path: Path):
    """A class can be withdrawn there, samples cannot."""
    seeds = iter(range(1000))

    def load(context: Context) -> Any:
        return Shuffled(next(seeds)) if context.node_config["partition-id"] == 0 else load_data(context)

    sentence = (
        r"^The data of client 0 come in another order than before, so its sample ids name other samples each time;"
    )
    with pytest.raises(InputError, match=sentence):
        serve(own_grid(tmp_path, own_app(load)), sample_ids=[0, 4])
    assert NodeStore(tmp_path / "site-0", 0).withdrawn == ()
    serve(own_grid(tmp_path, own_app(load)), label=2)


def serve(grid: Any, **target: Any) -> Forget:
    forget = Forget(FedAvg(), network, **QUICK)
    forget.request(partition=0, **target)
    forget.serve(grid, ArrayRecord(network().state_dict()))
    return forget


def test_an_order_that_changes_after_samples_were_withdrawn_stops_the_node(tmp_path: Path):
    serve(own_grid(tmp_path), sample_ids=[0, 4])
    context = context_of(0, tmp_path)
    rest = retained(context, TensorDataset(X, Y))
    assert list(rest.indices) == [place for place in range(len(Y)) if place not in (0, 4)]
    more = TensorDataset(torch.cat([X, X]), torch.cat([Y, Y]))
    assert len(retained(context, more)) == 2 * len(Y) - 2, "new samples at the end do no harm"
    other = TensorDataset(X.flip(0), Y.flip(0))
    sentence = r"^The data of client 0 come in another order than when samples were withdrawn by their positions"
    with pytest.raises(InputError, match=sentence):
        retained(context, other)
    with pytest.raises(InputError, match=sentence):
        own_client(context, network, lambda _: other)


class Augmented(TensorDataset):
    def __getitem__(self, position: int) -> Any:
        row, label = super().__getitem__(position)
        return row + torch.randn(row.shape), label


def augmented(context: Context) -> Augmented:
    return Augmented(*site(int(str(context.node_config["partition-id"]))))


def test_random_augmentation_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    note = "The samples of client 0 differ each time they are read, as with random augmentation, so what is measured on"
    with caplog.at_level(logging.INFO, "flwr"):
        forget = serve(
            own_grid(tmp_path, own_app(lambda context: Augmented(*site(context.node_config["partition-id"])))), label=2
        )
    (result,) = forget.served
    assert sum(told.startswith(note) for told in result.notes) == 1
    assert note in caplog.text
    assert not any("differ" in told for told in serve(own_grid(tmp_path / "steady"), label=2).served[0].notes)


# Labels without images


class Counting(Dataset[Any]):
    """Counts how many of its samples are read."""

    def __init__(self, **kept: Any) -> None:
        self.read = 0
        vars(self).update(kept)

    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, position: int) -> Any:
        self.read += 1
        return X[position], int(Y[position])


class Columns(Counting):
    """As Hugging Face's data sets are read."""

    column_names = ("img", "label")

    def with_format(self, kind: None) -> Any:
        return {"label": Y.tolist()}

    def __getitem__(self, position: int) -> Any:
        self.read += 1
        return {"img": X[position], "label": int(Y[position])}


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda: Counting(targets=Y.tolist()), 8),
        (lambda: Counting(labels=Y.numpy()), 8),
        (lambda: Counting(targets=Y), 8),
        (Columns, 8),
        (lambda: Counting(targets=(1 - Y).tolist()), 8 + len(Y)),
        (lambda: Counting(targets=["cat"] * len(Y)), 8 + len(Y)),
        (lambda: Counting(targets=Y[:5]), len(Y)),
        (Counting, len(Y)),
    ],
    ids=["list", "array", "tensor", "columns", "other labels", "words", "too few", "none"],
)
def test_labels_are_read_without_the_samples_where_they_are_kept(tmp_path: Path, make: Any, most: int):
    NodeStore(tmp_path / "site-0", 0).withdraw([TWOS])
    for data in (make(), Subset(make(), range(len(Y))), ConcatDataset([make()])):
        rest = retained(context_of(0, tmp_path), data)
        assert list(rest.indices) == (Y != 2).nonzero().squeeze(1).tolist()
        counted: Any = data if isinstance(data, Counting) else getattr(data, "dataset", None) or data.datasets[0]
        assert counted.read <= most


def test_a_tensor_of_labels_is_not_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    NodeStore(tmp_path / "site-0", 0).withdraw([TWOS])
    read: list[int] = []
    item = TensorDataset.__getitem__

    def counted(self: TensorDataset, index: Any) -> tuple[Tensor, ...]:
        read.append(index)
        return item(self, index)

    monkeypatch.setattr(TensorDataset, "__getitem__", counted)
    retained(context_of(0, tmp_path), TensorDataset(X, Y))
    assert len(read) <= 8
