"""Somebody's own Flower app in the shape of Flower's PyTorch quickstart: points of three classes at four sites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from in_process_grid import Change, InProcessGrid
from small_worlds import SIZES, network
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fedforget.data.own import from_arrays
from fedforget.federation.client import Client
from fedforget.federation.local import LocalFederation
from fedforget.flower.attach import attach, own_client, retained
from fedforget.models import xavier_initialise

Load = Callable[[Context], "Dataset[Any] | DataLoader[Any]"]
TRAINING: dict[str, Any] = {"rounds": 5, "lr": 0.05, "batch_size": 8, "threads": 1}
QUICK: dict[str, Any] = {"timeout_s": 0.05, "join_timeout_s": 0.05, **TRAINING}


def site(number: int) -> tuple[Tensor, Tensor]:
    """The features and labels of one site; only site 0 has class 2."""
    generator = torch.Generator().manual_seed(number)
    labels = torch.arange(SIZES[number]) % (3 if number == 0 else 2)
    return torch.randn(len(labels), 6, generator=generator) + 2 * F.one_hot(labels, 6), labels


def convolutional() -> nn.Module:
    layers = (nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    return xavier_initialise(nn.Sequential(*layers), 0)


def load_data(context: Context) -> DataLoader[Any]:
    features, labels = site(int(context.node_config["partition-id"]))
    return DataLoader(TensorDataset(features, labels), batch_size=8, shuffle=True)


def own_app(load: Load = load_data, model: Callable[[], nn.Module] = network, attached: bool = True) -> ClientApp:
    """The app; its reply tells which samples it trained on."""
    app = ClientApp()
    if attached:
        attach(app, model, load)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        loader = retained(context, load_data(context)) if attached else load_data(context)
        net = model()
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
        seen = []
        for features, labels in DataLoader(loader.dataset, batch_size=8):
            optimiser.zero_grad()
            F.cross_entropy(net(features), labels).backward()
            optimiser.step()
            seen += labels.tolist()
        metrics: dict[str, Any] = {"num-examples": len(seen), "twos": seen.count(2)}
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1, "accuracy": 1.0})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def own_grid(
    folder: Path | None, app: ClientApp | None = None, change: Change = lambda _, reply: [reply]
) -> InProcessGrid:
    return InProcessGrid(app or own_app(), len(SIZES), folder, change=change)


def same_in_one_process(model: Callable[[], nn.Module] = network, **more: Any) -> LocalFederation:
    """The same sites as a LocalFederation; every sample's id is its position at its site, as for `attach`; and
    nothing is held out."""
    sites = [site(number) for number in range(len(SIZES))]
    features, labels = torch.cat([x for x, _ in sites]), torch.cat([y for _, y in sites])
    data = from_arrays(features, labels, features[:6], labels[:6], classes=["0", "1", "2"])
    nothing = data.test.select(torch.arange(0))
    federation = LocalFederation(
        data, list(torch.arange(sum(SIZES)).split(list(SIZES))), model, held_out=nothing, **more
    )
    for client in map(federation.client, federation.clients):
        client.samples = replace(client.samples, ids=torch.arange(len(client.samples)))
    return federation


def client_of(load: Load, model: Callable[[], nn.Module] = network, **more: Any) -> Client:
    """What `attach` makes of the data of site 0."""
    return own_client(context_of(0), model, load, **more)


def context_of(number: int, folder: Path | None = None, **more: Any) -> Context:
    config: dict[str, Any] = {"partition-id": number, "num-partitions": len(SIZES), **more}
    if folder is not None:
        config["state-dir"] = str(folder / f"site-{number}")
    return Context(7, 1, config, RecordDict(), {})
