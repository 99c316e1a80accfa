"""MNIST from its four original idx .gz files: 60,000 training and 10,000 test digits, 28x28."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedforget.data.download import fetch, verify
from fedforget.data.locations import cache_folder, find_folder
from fedforget.data.samples import Dataset, Normalisation
from fedforget.errors import InputError

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


def load_mnist() -> Dataset:
    """MNIST from a folder of the user's, or downloaded once into the cache."""
    folder = find_folder("mnist", *MD5) or cache_folder("mnist")
    for name, md5 in MD5.items():
        if folder == cache_folder("mnist"):
            fetch([mirror + name for mirror in MIRRORS], folder / name, md5)
        else:
            verify(folder / name, md5)
    images, labels = ([folder / name for name in MD5 if what in name] for what in ("images", "labels"))
    train, test = (
        (read_idx(image, dimensions=3).unsqueeze(1), read_idx(label, dimensions=1))
        for image, label in zip(images, labels, strict=True)
    )
    return Dataset.of(
        "mnist", train, test, [str(digit) for digit in range(10)], (images[0], images[1]),
        Normalisation(mean=(0.1307,), std=(0.3081,)),
    )  # fmt: skip


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The uint8 array of an idx file: a magic number, the sizes as big-endian uint32, then the bytes."""
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"The data file {path} is missing; put it there or have it downloaded.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"The data file {path} is not a whole gzip file ({error}); copy it again.") from None
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < header:
        raise InputError(
            f"The data file {path} is not an idx file of {dimensions}-dimensional uint8 data; copy it again."
        )
    shape = [int(size) for size in np.frombuffer(content, dtype=">u4", count=dimensions, offset=4)]
    if len(content) != header + math.prod(shape):
        raise InputError(
            f"The data file {path} holds {len(content) - header} bytes of data instead of {math.prod(shape)}; "
            "copy it again."
        )
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy())
