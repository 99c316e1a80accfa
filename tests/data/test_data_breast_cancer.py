"""The embedded table: its sizes, and that it is z-scored on the training part alone."""

from __future__ import annotations

import sys

import pytest
import torch

from fedforget.data import embedded, load_dataset
from fedforget.errors import InputError


def test_the_table():
    data = load_dataset("breast_cancer")
    assert (len(data.train), len(data.test), data.shape) == (456, 113, (30,))
    assert data.classes == ("malignant", "benign")
    assert sorted(torch.cat([data.train.ids, data.test.ids]).tolist()) == list(range(569))
    assert torch.bincount(data.train.labels).tolist() == [170, 286]
    assert data.train.features.dtype == torch.float32
    assert data.train.features.mean(0).abs().max() < 1e-6
    assert torch.allclose(data.train.features.std(0, correction=0), torch.ones(30), atol=1e-5)
    assert data.test.features.mean(0).abs().max() > 0.01, "the test part is measured with the training part's scale"


def test_it_is_always_the_same():
    assert load_dataset("breast_cancer").digest() == load_dataset("breast_cancer").digest()


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch):
    embedded._from_sklearn.cache_clear()
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match="comes with scikit-learn"):
        load_dataset("breast_cancer")
