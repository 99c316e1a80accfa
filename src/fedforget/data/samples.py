"""Samples with stable ids, and the data sets made of them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedforget.errors import InputError


@dataclass(frozen=True)
class Samples:
    """Features, labels and ids of the same samples, in one order.

    `features` are images as uint8 [n, channels, height, width], or any float tensor [n, ...].
    `labels` are what a model is trained on; `true_labels` differ from them only where a sample was poisoned.
    `ids` are stable: a sample keeps its id in every subset, partition and run."""

    features: Tensor
    labels: Tensor
    true_labels: Tensor
    ids: Tensor

    def __post_init__(self) -> None:
        sizes = {len(self.features), len(self.labels), len(self.true_labels), len(self.ids)}
        if len(sizes) != 1:
            raise InputError(
                f"Features ({len(self.features)}), labels ({len(self.labels)}) and ids ({len(self.ids)}) "
                "must have the same number of samples."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, which: Tensor) -> Samples:
        """The samples named by a boolean mask or by positions, in that order."""
        return Samples(self.features[which], self.labels[which], self.true_labels[which], self.ids[which])

    def with_features(self, features: Tensor) -> Samples:
        return replace(self, features=features)

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, first_id: int = 0) -> Samples:
        """Clean samples with consecutive ids from `first_id`."""
        labels = labels.to(torch.int64)
        ids = torch.arange(first_id, first_id + len(labels), dtype=torch.int64)
        return cls(features, labels, labels.clone(), ids)


def labelled_samples(features: Tensor, labels: Tensor, classes: int, source: object, first_id: int = 0) -> Samples:
    """Samples with consecutive ids; a mistake is reported as one of `source`, the file or array it came from."""
    if len(features) != len(labels):
        raise InputError(f"{source} has {len(features)} samples but {len(labels)} labels; give one label per sample.")
    if len(labels) == 0:
        raise InputError(f"{source} holds no samples; give at least one.")
    labels = labels.to(torch.int64)
    odd = (labels < 0) | (labels >= classes)
    if bool(odd.any()):
        raise InputError(
            f"{source} has the label {int(labels[odd][0])}, but its {classes} classes are numbered 0 to {classes - 1}; "
            "correct the labels."
        )
    return Samples.of(features, labels, first_id)


@dataclass(frozen=True)
class Normalisation:
    """How uint8 images become floats: x / 255, then (x - mean) / std for each channel. Floats pass unchanged."""

    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    def __call__(self, features: Tensor) -> Tensor:
        if features.dtype != torch.uint8:
            return features.float()
        scale, shift = _affine(self.mean, self.std, features.dim() - 2, str(features.device))
        return features.float().mul_(scale).add_(shift)

    def blanked(self, features: Tensor, mask: Tensor) -> Tensor:
        """A copy of the samples' `features` that says nothing of any of them where `mask` is true: it has one value
        there, which becomes 0. That is the mean of an image, to the nearest of 256 greys. Floats are not normalised
        here: a table comes z-scored."""
        neutral = features.new_zeros(())
        if features.dtype == torch.uint8:
            grey = (255.0 * torch.tensor(self.mean, dtype=torch.float64)).round().to(features)
            neutral = grey.reshape(-1, *([1] * (features.dim() - 2)))
        return torch.where(mask.to(features.device), neutral.expand(features.shape[1:]), features)


@functools.cache
def _affine(mean: tuple[float, ...], std: tuple[float, ...], dims: int, device: str) -> tuple[Tensor, Tensor]:
    """(1 / (255 std), - mean / std), shaped for each channel: made once, not once for each batch."""
    shape = (-1, *([1] * dims))
    deviation = torch.tensor(std, dtype=torch.float64)
    scale, shift = 1.0 / (255.0 * deviation), -torch.tensor(mean, dtype=torch.float64) / deviation
    return scale.float().reshape(shape).to(device), shift.float().reshape(shape).to(device)


@dataclass(frozen=True)
class Dataset:
    """A classification task: training samples to spread over clients, and test samples nobody trains on."""

    name: str
    train: Samples
    test: Samples
    classes: tuple[str, ...]
    normalisation: Normalisation = Normalisation()

    @classmethod
    def of(
        cls,
        name: str,
        train: tuple[Tensor, Tensor],
        test: tuple[Tensor, Tensor],
        classes: Sequence[str],
        sources: tuple[object, object],
        normalisation: Normalisation = normalisation,
    ) -> Dataset:
        """From (features, labels), checked; `sources` are the files or arrays that these came from. The ids of the test
        samples go on after those of the training samples."""
        trained = labelled_samples(*train, len(classes), sources[0])
        tested = labelled_samples(*test, len(classes), sources[1], first_id=len(trained))
        return cls(name, trained, tested, tuple(classes), normalisation)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample's features."""
        return tuple(self.train.features.shape[1:])

    def first(self, train: int, test: int | None = None) -> Dataset:
        """A small version: the first `train` training and `test` test samples, ids unchanged."""
        keep = torch.arange(len(self.test) if test is None else min(test, len(self.test)))
        return replace(
            self, train=self.train.select(torch.arange(min(train, len(self.train)))), test=self.test.select(keep)
        )

    def digest(self) -> str:
        """SHA-256 of everything a run depends on: two data sets with one digest train to the same bits."""
        sha = hashlib.sha256(f"{self.name}|{self.shape}|{self.classes}|{self.normalisation}".encode())
        for samples in (self.train, self.test):
            for tensor in (samples.features, samples.labels, samples.ids):
                sha.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return sha.hexdigest()
