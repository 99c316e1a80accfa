"""CIFAR-10: 50,000 training and 10,000 test images, 32x32, from parquet files or from the authors' binary archive."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedforget.data.download import fetch, verify
from fedforget.data.locations import cache_folder, find_folder
from fedforget.data.parquet_images import read_parquet_images
from fedforget.data.samples import Dataset, Normalisation
from fedforget.errors import InputError

ARCHIVE = "cifar-10-binary.tar.gz"
URLS = ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",)
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST_BATCHES = ("test_batch.bin",)
RECORD = 1 + 3 * 32 * 32
"""One byte of label, then the red, the green and the blue pixels, row by row."""


def load_cifar10() -> Dataset:
    """CIFAR-10 from the user's parquet files, else from the archive, which is downloaded once into the cache."""
    normalisation = Normalisation(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
    if folder := find_folder("cifar10", "train-*.parquet", "test-*.parquet"):
        parts = _read_parquets(folder, "train"), _read_parquets(folder, "test")
        return Dataset.of("cifar10", *parts, CLASSES, (folder, folder), normalisation)
    folder = find_folder("cifar10", ARCHIVE) or cache_folder("cifar10")
    archive = folder / ARCHIVE
    if folder == cache_folder("cifar10"):
        fetch(URLS, archive, MD5)
    else:
        verify(archive, MD5)
    batches = read_archive(archive)
    train, test = (_join([batches[name] for name in names]) for names in (TRAIN_BATCHES, TEST_BATCHES))
    return Dataset.of("cifar10", train, test, CLASSES, (archive, archive), normalisation)


def _join(batches: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return torch.cat([images for images, _ in batches]), torch.cat([labels for _, labels in batches])


def _read_parquets(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    files = sorted(folder.glob(f"{part}-*.parquet"))
    if not files:
        raise InputError(f"CIFAR-10 in {folder} is incomplete: {part}-*.parquet is missing; copy it there too.")
    shards = [read_parquet_images("cifar10", file, "img", ["label"], side=32) for file in files]
    return _join([(torch.from_numpy(shard["images"]), torch.from_numpy(shard["label"])) for shard in shards])


def read_archive(archive: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Images and labels of every batch, read in one pass without unpacking the archive to the disk."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = Path(member.name).name
                if name in TRAIN_BATCHES + TEST_BATCHES and (file := tar.extractfile(member)):
                    contents[name] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise InputError(f"The data file {archive} is not a whole tar.gz archive ({error}); copy it again.") from None
    batches = {}
    for name in TRAIN_BATCHES + TEST_BATCHES:
        if name not in contents:
            raise InputError(f"The data file {archive} lacks {name}; it must be the authors' {ARCHIVE}.")
        if not contents[name] or len(contents[name]) % RECORD:
            raise InputError(f"{name} in {archive} is not made of {RECORD}-byte records; copy the archive again.")
        records = torch.from_numpy(np.frombuffer(contents[name], dtype=np.uint8).reshape(-1, RECORD).copy())
        batches[name] = records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()
    return batches
