"""How a model does on some samples: counts and sums of losses, nothing that could carry a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Normalisation, Samples
from fedforget.federation.client import Client
from fedforget.federation.tasks import Measure, Reply

FORWARD_COST = 0.4
"""A forward pass alone, in gradient evaluations (one sample's forward and backward pass = 1)."""


@dataclass(frozen=True)
class Evaluation:
    """Counts over a set of samples.

    `as_trained`: predicted as the label the model was trained on. `as_true`: predicted as the class they really are.
    `evidence`: how many carry a flipped label, and `flipped_hits`: how many of those the model gives the flipped label.
    `loss`: summed cross entropy against the trained label."""

    count: int = 0
    as_trained: int = 0
    as_true: int = 0
    evidence: int = 0
    flipped_hits: int = 0
    flipped_as_true: int = 0
    loss: float = 0.0

    @property
    def accuracy(self) -> float | None:
        """Share predicted as their true class, in percent."""
        return 100.0 * self.as_true / self.count if self.count else None

    @property
    def mean_loss(self) -> float | None:
        return self.loss / self.count if self.count else None

    def __add__(self, other: Evaluation) -> Evaluation:
        return Evaluation(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def to_numbers(self, prefix: str) -> dict[str, float]:
        return {f"{prefix}/{name}": float(value) for name, value in asdict(self).items()}

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, float], prefix: str) -> Evaluation:
        counts = {item.name: int(numbers[f"{prefix}/{item.name}"]) for item in fields(cls) if item.name != "loss"}
        return cls(**counts, loss=numbers[f"{prefix}/loss"])


@torch.no_grad()
def predict(
    model: nn.Module, features: Tensor, normalisation: Normalisation, device: torch.device, batch_size: int = 250
) -> Tensor:
    """Logits for all samples, in evaluation mode. (Batches twice as large take a CPU half as long again, since the
    system then hands out their memory anew each time.)"""
    model.eval()
    if len(features) == 0:
        return torch.zeros((0, 0), device=device)
    return torch.cat([model(normalisation(part.to(device))).float() for part in features.split(batch_size)])


def evaluate(model: nn.Module, samples: Samples, normalisation: Normalisation, device: torch.device) -> Evaluation:
    """Run the samples through the model and count."""
    return counted(predict(model, samples.features, normalisation, device), samples)


def counted(logits: Tensor, samples: Samples) -> Evaluation:
    """The counts of predictions that are there already."""
    if len(samples) == 0:
        return Evaluation()
    logits, labels, true = logits.cpu(), samples.labels.cpu(), samples.true_labels.cpu()
    guess = logits.argmax(1)
    flipped = labels != true
    correct = guess == true
    return Evaluation(
        count=len(samples),
        as_trained=int((guess == labels).sum()),
        as_true=int(correct.sum()),
        evidence=int(flipped.sum()),
        flipped_hits=int((guess == labels)[flipped].sum()),
        flipped_as_true=int(correct[flipped].sum()),
        loss=float(F.cross_entropy(logits, labels, reduction="sum")),
    )


def measure_at_client(task: Measure, state: Mapping[str, Tensor], client: Client) -> Reply:
    """The client's own target and retained data, as counts."""
    model = client.load(state)
    target = client.target(task.requests, task.served)
    retained = client.retained((*task.served, *task.requests))
    numbers: dict[str, float] = {}
    for name, samples in (("target", target), ("retained", retained)):
        numbers |= evaluate(model, samples, client.normalisation, client.device).to_numbers(name)
    return Reply(client.index, numbers=numbers, gradient_evaluations=FORWARD_COST * len(client.samples))
