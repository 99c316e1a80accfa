"""The embedded table: 569 breast tumours, 30 columns, malignant or benign (Wolberg, Street and Mangasarian 1993).

It comes with scikit-learn. Nothing to download."""

from __future__ import annotations

import numpy as np
import torch

from fedforget.data.labelled import labelled_samples
from fedforget.data.samples import Dataset
from fedforget.errors import InputError
from fedforget.seeds import derive_generator

TEST_PART = 0.2
"""Of each class; 113 samples of 569."""


def load_breast_cancer() -> Dataset:
    """456 training and 113 test samples, always the same ones in the same order; columns z-scored on the former."""
    try:
        from sklearn.datasets import load_breast_cancer as load_from_sklearn
    except ImportError:
        raise InputError(
            "The data set 'breast_cancer' comes with scikit-learn, which is not installed; pip install scikit-learn."
        ) from None
    bunch = load_from_sklearn()
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    order = torch.randperm(len(labels), generator=derive_generator(0, "breast_cancer", "split"))
    is_test = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(2):
        own = order[labels[order] == label]
        is_test[own[: round(TEST_PART * len(own))]] = True
    train, test = order[~is_test[order]], order[is_test[order]]
    values = torch.from_numpy(bunch.data)
    table = ((values - values[train].mean(0)) / values[train].std(0, correction=0)).float()
    return Dataset(
        "breast_cancer",
        labelled_samples(table[train], labels[train], 2, "The table"),
        labelled_samples(table[test], labels[test], 2, "The table", first_id=len(train)),
        tuple(str(name) for name in bunch.target_names),
    )
