"""Data sets, partitions and backdoor triggers."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from fedforget.data.celeba import load_celeba
from fedforget.data.cifar10 import load_cifar10
from fedforget.data.embedded import load_breast_cancer, load_digits
from fedforget.data.mnist import load_mnist
from fedforget.data.own import from_image_folder, from_npz
from fedforget.data.samples import Dataset, Normalisation, Samples
from fedforget.errors import InputError

__all__ = ["DATASETS", "Dataset", "Normalisation", "Samples", "load_dataset"]

DATASETS: dict[str, Callable[[], Dataset]] = {
    "digits": load_digits,
    "mnist": load_mnist,
    "cifar10": load_cifar10,
    "celeba": load_celeba,
    "breast_cancer": load_breast_cancer,
}


def load_dataset(name_or_path: str | Path) -> Dataset:
    """A data set by its name in `DATASETS`, or the user's own from an .npz file or an image folder."""
    name = str(name_or_path)
    if name in DATASETS:
        return DATASETS[name]()
    path = Path(name_or_path)
    if path.is_dir():
        return from_image_folder(path)
    if path.suffix == ".npz":
        return from_npz(path)
    near = difflib.get_close_matches(name.lower(), DATASETS, n=1)
    hint = f"did you mean '{near[0]}'? Choose" if near else "choose"
    raise InputError(
        f"Data set '{name}' is unknown; {hint} {', '.join(DATASETS)}, or the path of an .npz file or an image folder."
    )
