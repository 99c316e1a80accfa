"""CelebA with the paper's four classes, Male x Mouth_Slightly_Open, at 64x64. Always the user's own copy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedforget.data.locations import cache_folder, find_folder
from fedforget.data.parquet_images import Arrays, read_parquet_images
from fedforget.data.samples import Dataset, Normalisation
from fedforget.errors import InputError
from fedforget.seeds import derive_generator

CLASSES = ("female, mouth closed", "female, mouth open", "male, mouth closed", "male, mouth open")
ATTRIBUTES = ("Male", "Mouth_Slightly_Open")


def load_celeba() -> Dataset:
    """80 % training and 10 % test images, drawn once for all; the 10 % between them are kept for validation."""
    folder = find_folder("celeba", "*.parquet")
    if folder is None:
        raise InputError(
            "CelebA is never downloaded, because its licence forbids passing it on; put your own copy, parquet files "
            f"with 64x64 images and the columns image, {' and '.join(ATTRIBUTES)}, into {cache_folder('celeba')} or"
            " $FEDFORGET_DATA/celeba."
        )
    files = sorted(folder.glob("*.parquet"))
    shards = [read_parquet_images("celeba", file, "image", ATTRIBUTES, side=64) for file in files]
    images = torch.from_numpy(np.concatenate([shard["images"] for shard in shards]))
    labels = torch.from_numpy(np.concatenate([_labels(*pair) for pair in zip(shards, files, strict=True)]))
    n = len(labels)
    order = torch.randperm(n, generator=derive_generator(0, "celeba", "split"))
    train, test = order[: n * 8 // 10], order[n - n // 10 :]
    return Dataset.of(
        "celeba", (images[train], labels[train]), (images[test], labels[test]), CLASSES, (folder, folder),
        Normalisation(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
    )  # fmt: skip


def _labels(shard: Arrays, file: Path) -> np.ndarray:
    for attribute in ATTRIBUTES:
        if not np.isin(shard[attribute], (0, 1)).all():
            raise InputError(f"Column {attribute} of {file} must hold only 1 (yes) and 0 (no); convert it.")
    male, mouth_open = (shard[attribute] for attribute in ATTRIBUTES)
    return 2 * male + mouth_open
