"""The embedded data set: 1,797 handwritten digits of 8x8 pixels that come with scikit-learn. Nothing to download."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from fedforget.data.labelled import labelled_samples
from fedforget.data.samples import Dataset, Normalisation
from fedforget.errors import InputError
from fedforget.seeds import derive_generator

TEST_PER_CLASS = 36
"""360 test samples of 1,797: a fifth, and the same number for each digit."""


def load_digits() -> Dataset:
    """1,437 training and 360 test digits, always the same ones in the same order."""
    pixels, digits = _read()
    images = torch.from_numpy(np.round(pixels * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(digits.astype(np.int64))

    # scikit-learn lists the digits writer by writer, so both parts are drawn from one shuffle.
    order = torch.randperm(len(labels), generator=derive_generator(0, "digits", "split"))
    is_test = torch.zeros(len(labels), dtype=torch.bool)
    for digit in range(10):
        is_test[order[labels[order] == digit][:TEST_PER_CLASS]] = True
    train, test = order[~is_test[order]], order[is_test[order]]
    return Dataset(
        "digits",
        labelled_samples(images[train], labels[train], 10, "The digits"),
        labelled_samples(images[test], labels[test], 10, "The digits", first_id=len(train)),
        tuple(str(digit) for digit in range(10)),
        Normalisation(mean=(0.3053,), std=(0.3760,)),
    )


@cache
def _read() -> tuple[np.ndarray, np.ndarray]:
    """Images and labels as scikit-learn has them: a text file, parsed once in a process."""
    try:
        from sklearn.datasets import load_digits as load_from_sklearn
    except ImportError:
        raise InputError(
            "The data set 'digits' comes with scikit-learn, which is not installed; pip install scikit-learn."
        ) from None
    bunch = load_from_sklearn()
    return bunch.images, bunch.target
