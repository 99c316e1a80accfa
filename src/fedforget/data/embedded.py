"""The embedded data sets: 1,797 handwritten digits of 8x8 pixels, and a table of 569 breast tumours with 30 columns,
malignant or benign (Wolberg, Street and Mangasarian 1993). They come with scikit-learn. Nothing to download."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedforget.data.samples import Dataset, Normalisation
from fedforget.errors import InputError
from fedforget.seeds import derive_generator

TEST_DIGITS = 36
"""Of each digit: 360 test samples of 1,797, a fifth."""
TEST_TUMOURS = 0.2
"""The part of each class: 113 samples of 569."""


def load_digits() -> Dataset:
    """1,437 training and 360 test digits, always the same ones in the same order."""
    bunch = _from_sklearn("digits")
    images = torch.from_numpy(np.round(bunch.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    train, test = _split("digits", labels, lambda count: TEST_DIGITS)
    return Dataset.of(
        "digits", (images[train], labels[train]), (images[test], labels[test]), [str(digit) for digit in range(10)],
        ("The digits", "The digits"), Normalisation(mean=(0.3053,), std=(0.3760,)),
    )  # fmt: skip


def load_breast_cancer() -> Dataset:
    """456 training and 113 test samples, always the same ones in the same order; columns z-scored on the former."""
    bunch = _from_sklearn("breast_cancer")
    values, labels = torch.from_numpy(bunch.data), torch.from_numpy(bunch.target.astype(np.int64))
    train, test = _split("breast_cancer", labels, lambda count: round(TEST_TUMOURS * count))
    table = ((values - values[train].mean(0)) / values[train].std(0, correction=0)).float()
    return Dataset.of(
        "breast_cancer", (table[train], labels[train]), (table[test], labels[test]),
        [str(name) for name in bunch.target_names], ("The table", "The table"),
    )  # fmt: skip


@cache
def _from_sklearn(name: str) -> Any:
    """A data set as scikit-learn has it: a text file, parsed once in a process."""
    try:
        import sklearn.datasets as datasets
    except ImportError:
        raise InputError(
            f"The data set '{name}' comes with scikit-learn, which is not installed; pip install scikit-learn."
        ) from None
    return getattr(datasets, f"load_{name}")()


def _split(name: str, labels: Tensor, tested: Callable[[int], int]) -> tuple[Tensor, Tensor]:
    """Positions of the training and of the test samples, in the order of one shuffle (scikit-learn lists the digits
    writer by writer); `tested` says how many of a class of so many samples are for the test."""
    order = torch.randperm(len(labels), generator=derive_generator(0, name, "split"))
    is_test = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        own = order[labels[order] == label]
        is_test[own[: tested(len(own))]] = True
    return order[~is_test[order]], order[is_test[order]]
