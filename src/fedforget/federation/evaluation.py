"""How a model does on some samples: counts and sums of losses, nothing that could carry a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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

    count: int
    as_trained: int
    as_true: int
    evidence: int
    flipped_hits: int
    flipped_as_true: int
    loss: float
    class_count: tuple[int, ...]
    class_correct: tuple[int, ...]

    @classmethod
    def of_nothing(cls, classes: int) -> Evaluation:
        """That of no sample at all."""
        return cls(0, 0, 0, 0, 0, 0, 0.0, (0,) * classes, (0,) * classes)

    @property
    def accuracy(self) -> float | None:
        """Share predicted as their true class, in percent."""
        return 100.0 * self.as_true / self.count if self.count else None

    @property
    def mean_loss(self) -> float | None:
        return self.loss / self.count if self.count else None

    @property
    def per_class(self) -> list[float | None]:
        """Accuracy for each true class, in percent; None where there is no sample."""
        return [100.0 * c / n if n else None for c, n in zip(self.class_correct, self.class_count, strict=True)]

    def __add__(self, other: Evaluation) -> Evaluation:
        return Evaluation(
            **{field: getattr(self, field) + getattr(other, field) for field in _COUNTS},
            class_count=tuple(a + b for a, b in zip(self.class_count, other.class_count, strict=True)),
            class_correct=tuple(a + b for a, b in zip(self.class_correct, other.class_correct, strict=True)),
        )

    def to_numbers(self, prefix: str) -> dict[str, float]:
        numbers = {f"{prefix}/{field}": float(getattr(self, field)) for field in _COUNTS}
        for c, (count, correct) in enumerate(zip(self.class_count, self.class_correct, strict=True)):
            numbers[f"{prefix}/class_count/{c}"] = float(count)
            numbers[f"{prefix}/class_correct/{c}"] = float(correct)
        return numbers

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, float], prefix: str, classes: int) -> Evaluation:
        counts = {field: int(numbers[f"{prefix}/{field}"]) for field in _COUNTS if field != "loss"}
        return cls(
            **counts,
            loss=numbers[f"{prefix}/loss"],
            class_count=tuple(int(numbers[f"{prefix}/class_count/{c}"]) for c in range(classes)),
            class_correct=tuple(int(numbers[f"{prefix}/class_correct/{c}"]) for c in range(classes)),
        )


_COUNTS = ("count", "as_trained", "as_true", "evidence", "flipped_hits", "flipped_as_true", "loss")


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


def evaluate(
    model: nn.Module, samples: Samples, normalisation: Normalisation, classes: int, device: torch.device
) -> Evaluation:
    """Run the samples through the model and count."""
    if len(samples) == 0:
        return Evaluation.of_nothing(classes)
    logits = predict(model, samples.features, normalisation, device).cpu()
    labels, true = samples.labels.cpu(), samples.true_labels.cpu()
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
        class_count=tuple(torch.bincount(true, minlength=classes).tolist()),
        class_correct=tuple(torch.bincount(true[correct], minlength=classes).tolist()),
    )


def measure_at_client(task: Measure, state: Mapping[str, Tensor], client: Client) -> Reply:
    """The client's own target and retained data, as counts."""
    model = client.load(state)
    target = client.target(task.requests, task.served)
    retained = client.retained((*task.served, *task.requests))
    numbers: dict[str, float] = {}
    for name, samples in (("target", target), ("retained", retained)):
        result = evaluate(model, samples, client.normalisation, client.classes, client.device)
        numbers |= result.to_numbers(name)
    return Reply(client.index, numbers=numbers, gradient_evaluations=FORWARD_COST * len(client.samples))
