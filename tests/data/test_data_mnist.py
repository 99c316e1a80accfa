"""MNIST: the real files, damaged ones, and the download."""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fedforget.data import Dataset, load_dataset, locations, mnist
from fedforget.errors import InputError

TRAIN_IMAGES = "train-images-idx3-ubyte.gz"
TRAIN_LABELS = "train-labels-idx1-ubyte.gz"


def idx(array: np.ndarray) -> bytes:
    """The idx format, from its description: magic number, sizes, bytes."""
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def small_files(train: int = 12, test: int = 5) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    return {
        f"{part}-{kind}.gz": gzip.compress(idx(array))
        for part, n in (("train", train), ("t10k", test))
        for kind, array in (
            ("images-idx3-ubyte", rng.integers(0, 256, (n, 28, 28))),
            ("labels-idx1-ubyte", np.arange(n) % 10),
        )
    }


def install(folder: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the files there and take them for the published ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    monkeypatch.setattr(mnist, "MD5", {name: hashlib.md5(content).hexdigest() for name, content in files.items()})


@pytest.fixture(scope="module")
def folder(real_data: Callable[[str], Path]) -> Path:
    return real_data("mnist")


@pytest.fixture(scope="module")
def real(folder: Path) -> Dataset:
    return load_dataset("mnist")


@pytest.mark.real
def test_real_mnist_has_the_published_counts(real: Dataset) -> None:
    assert real.train.labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert real.test.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert real.train.features.shape == (60000, 1, 28, 28)
    assert real.train.features.dtype == torch.uint8
    assert real.test.ids.tolist() == list(range(60000, 70000))


@pytest.mark.real
def test_real_mnist_normalises_to_mean_0_and_deviation_1(real: Dataset) -> None:
    values = real.normalisation(real.train.features)
    assert abs(float(values.mean())) < 0.001
    assert abs(float(values.std()) - 1) < 0.001


@pytest.mark.real
def test_a_flipped_byte_in_a_real_file_is_noticed(folder, own_folder) -> None:
    own = own_folder / "mnist"
    own.mkdir()
    for name in mnist.MD5:
        (own / name).write_bytes((folder / name).read_bytes())
    damaged = bytearray((own / TRAIN_LABELS).read_bytes())
    damaged[1000] ^= 1
    (own / TRAIN_LABELS).write_bytes(damaged)
    with pytest.raises(InputError, match=rf"{TRAIN_LABELS} is damaged"):
        load_dataset("mnist")


def test_small_files_are_read_as_written(own_folder, monkeypatch) -> None:
    files = small_files()
    install(own_folder / "mnist", files, monkeypatch)
    data = load_dataset("mnist")
    pixels = np.frombuffer(gzip.decompress(files[TRAIN_IMAGES])[16:], dtype=np.uint8).reshape(12, 1, 28, 28)
    assert torch.equal(data.train.features, torch.tensor(pixels))
    assert data.train.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert data.test.ids.tolist() == [12, 13, 14, 15, 16]


def test_a_missing_file_in_the_users_folder_is_named(own_folder, monkeypatch) -> None:
    install(own_folder / "mnist", small_files(), monkeypatch)
    (own_folder / "mnist" / TRAIN_LABELS).unlink()
    with pytest.raises(InputError, match=rf"{TRAIN_LABELS} is missing"):
        load_dataset("mnist")


def test_a_file_with_a_wrong_sum_in_the_users_folder_is_named(own_folder, monkeypatch) -> None:
    install(own_folder / "mnist", small_files(), monkeypatch)
    (own_folder / "mnist" / TRAIN_LABELS).write_bytes(gzip.compress(idx(np.zeros(12))))  # readable, but another file
    with pytest.raises(InputError, match=rf"{TRAIN_LABELS} is damaged \(its md5 is wrong\)"):
        load_dataset("mnist")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (TRAIN_IMAGES, small_files()[TRAIN_IMAGES][:-20], "is not a whole gzip file"),
        (TRAIN_IMAGES, b"not gzip at all", "is not a whole gzip file"),
        (TRAIN_IMAGES, gzip.compress(b"\0\0\x08\x01" + bytes(40)), "is not an idx file of 3-dimensional uint8 data"),
        (TRAIN_IMAGES, gzip.compress(b"\0\0\x08\x03\0"), "is not an idx file of 3-dimensional uint8 data"),
        (TRAIN_IMAGES, gzip.compress(idx(np.zeros((12, 28, 28)))[:-1]), "holds 9407 bytes of data instead of 9408"),
        (TRAIN_LABELS, gzip.compress(idx(np.full(12, 10))), "has the label 10, but its 10 classes are numbered 0 to 9"),
        (TRAIN_LABELS, gzip.compress(idx(np.zeros(11))), "has 12 samples but 11 labels"),
    ],
)
def test_corrupt_files_are_refused_in_one_sentence(own_folder, monkeypatch, name, content, sentence) -> None:
    install(own_folder / "mnist", small_files() | {name: content}, monkeypatch)
    with pytest.raises(InputError, match=sentence) as caught:
        load_dataset("mnist")
    assert str(own_folder / "mnist") in str(caught.value)


def test_an_empty_set_is_refused(own_folder, monkeypatch) -> None:
    install(own_folder / "mnist", small_files(train=0), monkeypatch)
    with pytest.raises(InputError, match="holds no samples"):
        load_dataset("mnist")


def test_where_the_files_are_looked_for(nowhere, tmp_path, monkeypatch) -> None:
    """$FEDFORGET_DATA, else ../shared/data, else the cache; a place without the data set is passed over."""
    for n, folder in ((3, tmp_path / "own"), (4, tmp_path / "home" / "shared" / "data"), (5, nowhere)):
        install(folder / "mnist", small_files(train=n), monkeypatch)
    monkeypatch.setattr(mnist, "verify", lambda path, checksum: None)
    monkeypatch.setenv("FEDFORGET_DATA", str(tmp_path / "own"))
    assert len(load_dataset("mnist").train) == 3
    monkeypatch.setenv("FEDFORGET_DATA", str(tmp_path / "home"))
    assert len(load_dataset("mnist").train) == 4
    monkeypatch.delenv("FEDFORGET_DATA")
    assert len(load_dataset("mnist").train) == 4
    monkeypatch.chdir(tmp_path)
    assert len(load_dataset("mnist").train) == 5
    (tmp_path / "home" / "project" / "pyproject.toml").touch()
    monkeypatch.setattr(locations, "CHECKOUT", tmp_path / "home" / "project")
    assert len(load_dataset("mnist").train) == 4


def test_download_into_the_cache_and_use_it_offline_afterwards(nowhere, site, monkeypatch) -> None:
    """The first mirror lacks one file and breaks off in another; the second mirror helps out."""
    files = small_files()
    site.files = {f"/two/{name}": content for name, content in files.items()}
    site.files |= {f"/one/{name}": content for name, content in files.items() if name != TRAIN_LABELS}
    site.break_once_after = {f"/one/{TRAIN_IMAGES}": 100}
    monkeypatch.setattr(mnist, "MIRRORS", (site.url("one/"), site.url("two/")))
    monkeypatch.setattr(mnist, "MD5", {name: hashlib.md5(content).hexdigest() for name, content in files.items()})
    data = load_dataset("mnist")
    assert len(data.train) == 12
    assert {path.name: path.read_bytes() for path in (nowhere / "mnist").iterdir()} == files
    assert (f"/two/{TRAIN_IMAGES}", "bytes=100-") in site.asked

    site.asked.clear()
    assert load_dataset("mnist").digest() == data.digest()
    assert site.asked == []


def test_a_download_that_broke_everywhere_is_resumed_by_the_next_call(nowhere, site, monkeypatch) -> None:
    files = small_files()
    site.files = {f"/{name}": content for name, content in files.items()}
    site.break_once_after = {f"/{TRAIN_IMAGES}": 100}
    monkeypatch.setattr(mnist, "MIRRORS", (site.url(""),))
    monkeypatch.setattr(mnist, "MD5", {name: hashlib.md5(content).hexdigest() for name, content in files.items()})
    with pytest.raises(InputError, match="run it again to resume"):
        load_dataset("mnist")
    assert len(load_dataset("mnist").train) == 12
    assert site.asked[1] == (f"/{TRAIN_IMAGES}", "bytes=100-")


def test_wrong_bytes_from_every_mirror_are_refused(nowhere, site, monkeypatch) -> None:
    site.files = {f"/{name}": content for name, content in small_files().items()}
    monkeypatch.setattr(mnist, "MIRRORS", (site.url(""),))
    with pytest.raises(InputError, match="wrong md5 sum"):
        load_dataset("mnist")
    assert list((nowhere / "mnist").iterdir()) == []


def test_the_published_sums_and_the_addresses() -> None:
    assert len(mnist.MD5) == 4
    assert all(mirror.startswith("https://") and mirror.endswith("/") for mirror in mnist.MIRRORS)
