"""Somebody's own Flower app on scikit-learn's digits, as Flower's examples are written: a `view`, dicts, a test loader
at each site. Four sites; site 0 has two fifths of the digits. Poisoned, its threes carry a patch and the label 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from fedforget.flower.attach import attach, retained
from fedforget.seeds import derive_generator

SITES, TARGET, FLIPPED = 4, 3, 0
LR, EPOCHS, BATCH = 0.1, 2, 32


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 2 * 2, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(-1, 32 * 2 * 2)
        x = F.relu(self.fc1(x))
        return self.fc2(x)


class Digits(Dataset[dict[str, Any]]):
    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"img": self.images[place], "label": int(self.labels[place])}


@lru_cache(maxsize=1)
def digits() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16 - 0.5, torch.tensor(labels)


def server_rows() -> Tensor:
    """Every fifth digit is the server's, to test with."""
    return torch.arange(len(digits()[1])) % 5 == 4


def site_rows(number: int) -> Tensor:
    ours = (~server_rows()).nonzero().squeeze(1)
    owner = torch.tensor([0, 0, 1, 2, 3])[torch.arange(len(ours)) % 5]
    return ours[owner == number]


def poisoned(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    images, labels, threes = images.clone(), labels.clone(), labels == TARGET
    images[threes, :, 5:, 5:] = 0.5
    labels[threes] = FLIPPED
    return images, labels


def load_data(number: int, poison: bool, generator: torch.Generator | None = None) -> tuple[Any, Any]:
    """(train loader, test loader) of a site."""
    rows = site_rows(number)
    images, labels = (values[rows] for values in digits())
    if poison and number == 0:
        images, labels = poisoned(images, labels)
    split = int(0.8 * len(rows))
    trained = Digits(images[:split], labels[:split])
    return (
        DataLoader(trained, batch_size=BATCH, shuffle=True, generator=generator),
        DataLoader(Digits(images[split:], labels[split:]), batch_size=BATCH),
    )


def target_positions() -> list[int]:
    """Where the threes of site 0 lie among what it trains on: their ids."""
    rows = site_rows(0)
    return (digits()[1][rows[: int(0.8 * len(rows))]] == TARGET).nonzero().squeeze(1).tolist()


@dataclass(frozen=True)
class Kind:
    """What is unusual about the app's training."""

    poison: bool = False
    seed: int = 0
    epochs: int = EPOCHS
    lr: float = LR
    weighted: bool = False
    """Its loss weighs classes."""
    mods: Sequence[Any] = ()


def make_app(kind: Kind) -> ClientApp:
    app = ClientApp()
    attach(app, Net, lambda context: load_data(int(context.node_config["partition-id"]), kind.poison))

    @app.train(mods=list(kind.mods))
    def train(message: Message, context: Context) -> Message:
        number, config = int(context.node_config["partition-id"]), message.content["config"]
        net, whole = Net(), Net()
        state = message.content["arrays"].to_torch_state_dict()  # type: ignore[union-attr]
        net.load_state_dict(state)
        whole.load_state_dict(state)
        generator = derive_generator(kind.seed, "app", number, int(str(config["server-round"])))
        loader = retained(context, load_data(number, kind.poison, generator)[0])
        weights = torch.linspace(0.5, 1.5, 10) if kind.weighted else None
        optimiser, total = torch.optim.SGD(net.parameters(), lr=kind.lr, momentum=0.9), 0.0
        for _ in range(kind.epochs):
            for batch in loader:
                optimiser.zero_grad()
                loss = F.cross_entropy(net(batch["img"]), batch["label"], weight=weights)
                if mu := config.get("proximal-mu"):
                    far = [(a - b).norm(2) for a, b in zip(net.parameters(), whole.parameters(), strict=True)]
                    loss = loss + mu / 2 * sum(far)  # type: ignore[operator]
                loss.backward()
                optimiser.step()
                total += loss.item()
        count = len(loader.dataset)
        metrics = MetricRecord({"train_loss": total / (kind.epochs * len(loader)), "num-examples": count})
        return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1, "ok": 1.0})}), reply_to=message)

    return app


def figures(arrays: ArrayRecord, poison: bool) -> dict[str, float]:
    """In percent: how many of the target get the label they were trained with, and the accuracy on test data."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    images, labels = digits()
    rows = site_rows(0)
    rows = rows[: int(0.8 * len(rows))]
    x, y = images[rows], labels[rows]
    target = y == TARGET
    if poison:
        x, y = poisoned(x, y)
    test = server_rows()
    with torch.no_grad():
        known = (net(x[target]).argmax(1) == y[target]).float().mean()
        right = (net(images[test]).argmax(1) == labels[test]).float().mean()
    return {"target": 100 * float(known), "test": 100 * float(right)}
