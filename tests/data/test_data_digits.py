"""The embedded digits, and the choice of a data set by name or path."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits as sklearn_digits

from fedforget.data import DATASETS, load_dataset
from fedforget.errors import InputError


def test_digits_are_split_once_for_all() -> None:
    first, second = load_dataset("digits"), load_dataset("digits")
    assert first.digest() == second.digest()
    assert first.shape == (1, 8, 8)
    assert first.classes == tuple("0123456789")
    assert (len(first.train), len(first.test)) == (1437, 360)
    assert first.test.labels.bincount().tolist() == [36] * 10
    ids = torch.cat([first.train.ids, first.test.ids])
    assert ids.tolist() == list(range(1797))


def test_digits_hold_every_image_of_scikit_learn_once_with_its_label() -> None:
    data, bunch = load_dataset("digits"), sklearn_digits()
    ours = [
        (label, *image)
        for part in (data.train, data.test)
        for label, image in zip(part.labels.tolist(), part.features.flatten(1).tolist(), strict=True)
    ]
    scaled = np.round(bunch.data * 255 / 16).astype(int)
    theirs = [(label, *image) for label, image in zip(bunch.target.tolist(), scaled.tolist(), strict=True)]
    assert sorted(ours) == sorted(theirs)
    assert data.train.features.dtype == torch.uint8
    assert int(data.train.features.max()) == 255


def test_digits_are_normalised_to_mean_0_and_deviation_1() -> None:
    data = load_dataset("digits")
    values = data.normalisation(torch.cat([data.train.features, data.test.features]))
    assert abs(float(values.mean())) < 0.002
    assert abs(float(values.std()) - 1) < 0.002


def test_the_table_and_unknown_names() -> None:
    assert list(DATASETS) == ["digits", "mnist", "cifar10", "celeba", "breast_cancer"]
    with pytest.raises(InputError, match=r"'cifar' is unknown; did you mean 'cifar10'\? Choose digits, mnist, cifar10"):
        load_dataset("cifar")
    with pytest.raises(InputError, match="did you mean 'mnist'"):
        load_dataset("MNIST")
    with pytest.raises(InputError, match="'imagenet-21k-zzz' is unknown; choose digits"):
        load_dataset("imagenet-21k-zzz")


def test_a_path_chooses_the_users_own_data(tmp_path) -> None:
    x, y = np.ones((4, 5), dtype=np.float32), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert load_dataset(str(tmp_path / "mine.npz")).name == "mine"
    for part in ("train", "test"):
        (tmp_path / "faces" / part / "a").mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "faces" / part / "a" / "1.png")
    assert load_dataset(tmp_path / "faces").name == "faces"
    with pytest.raises(InputError, match=r"gone\.npz does not exist"):
        load_dataset(tmp_path / "gone.npz")
