"""The user's own data: arrays, an .npz file, or a folder of images."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fedforget.data.samples import Dataset
from fedforget.errors import InputError

KEYS = ("x_train", "y_train", "x_test", "y_test")
SUFFIXES = (".png", ".jpg", ".jpeg")
CHANNELS = (1, 3, 4)


def from_arrays(
    features: Any,
    labels: Any,
    test_features: Any,
    test_labels: Any,
    classes: Sequence[str] | None = None,
    name: str = "own",
) -> Dataset:
    """A data set from numpy arrays or tensors: uint8 images (NCHW, NHWC or greyscale NHW) or float features.

    >>> import numpy as np
    >>> images = np.zeros((6, 28, 28, 3), dtype=np.uint8)
    >>> from_arrays(images, np.array([0, 1, 2] * 2), images[:3], np.array([0, 1, 2])).shape
    (3, 28, 28)
    """
    train_source, test_source = f"'{name}' (train)", f"'{name}' (test)"
    x_train, x_test = _features(features, train_source), _features(test_features, test_source)
    y_train, y_test = _labels(labels, train_source), _labels(test_labels, test_source)
    if x_train.shape[1:] != x_test.shape[1:] or x_train.dtype != x_test.dtype:
        raise InputError(
            f"{train_source} has {x_train.dtype} features of shape {tuple(x_train.shape[1:])}, but {test_source} has "
            f"{x_test.dtype} features of shape {tuple(x_test.shape[1:])}; make them alike."
        )
    if classes is None:
        every = torch.cat([y_train, y_test])
        largest = int(every.max()) if len(every) else 0
        if largest >= max(len(every), 1):  # an id or a pixel value, not a class: do not make a million classes of it
            raise InputError(f"'{name}' has the label {largest}, but fewer samples than that; count classes from 0.")
        classes = [str(label) for label in range(largest + 1)]
    return Dataset.of(name, (x_train, y_train), (x_test, y_test), classes, (train_source, test_source))


def from_npz(path: str | Path) -> Dataset:
    """A data set from an .npz file with the arrays x_train, y_train, x_test and y_test (see `from_arrays`)."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)  # a pickle could run any code
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            missing = [key for key in KEYS if key not in archive.files]
            if missing:
                raise InputError(f"The data file {path} has no array '{missing[0]}'; it must hold {', '.join(KEYS)}.")
            x_train, y_train, x_test, y_test = (archive[key] for key in KEYS)
    except FileNotFoundError:
        raise InputError(f"The data file {path} does not exist.") from None
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"The data file {path} is not a readable .npz file ({error}); save it again.") from None
    return from_arrays(x_train, y_train, x_test, y_test, name=path.stem)


def from_image_folder(path: str | Path) -> Dataset:
    """A data set from train/<class>/*.png|jpg and test/<class>/*.png|jpg; all images must have one size.

    The classes are the folders of train, by name; files are taken by name too, so ids do not depend on the disk."""
    path = Path(path)
    classes = _class_folders(path / "train")
    unknown = [name for name in _class_folders(path / "test") if name not in classes]
    if unknown:
        raise InputError(f"{path / 'test' / unknown[0]} is a class that {path / 'train'} does not have; add it there.")
    train, test = _image_files(path / "train", classes), _image_files(path / "test", classes)
    images = _read_images([file for file, _ in train + test])
    labels = torch.tensor([label for _, label in train + test])
    n = len(train)
    return from_arrays(images[:n], labels[:n], images[n:], labels[n:], classes, path.resolve().name)


def _features(values: Any, source: str) -> Tensor:
    """A copy, so that later changes to the user's array do not reach it: uint8 images as NCHW, floats as float32.

    Images are told by their channel axis, which is 1, 3 or 4 long."""
    features = values.detach().cpu().clone() if isinstance(values, Tensor) else _as_tensor(values, source)
    if features.dtype == torch.uint8 and features.dim() == 3:
        features = features.unsqueeze(1)
    if features.dim() == 4 and features.shape[1] not in CHANNELS and features.shape[3] in CHANNELS:
        features = features.permute(0, 3, 1, 2).contiguous()
    if features.dtype == torch.uint8:
        if features.dim() != 4 or features.shape[1] not in CHANNELS:
            raise InputError(
                f"The uint8 features of {source} have the shape {tuple(features.shape)}, which is not that of images "
                "[n, channels, height, width]; give anything but images as floats."
            )
        return features
    if not features.dtype.is_floating_point or features.dim() < 2:
        raise InputError(
            f"The features of {source} are {features.dtype} of shape {tuple(features.shape)}; "
            "give uint8 images or floats with one row per sample."
        )
    features = features.to(torch.float32)
    if not bool(torch.isfinite(features).all()):
        raise InputError(f"The features of {source} hold a NaN or an infinite number; remove or replace it.")
    return features


def _as_tensor(values: Any, source: str) -> Tensor:
    try:
        array = np.array(values, order="C")
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    except (TypeError, ValueError):
        raise InputError(f"The features of {source} are not an array of numbers; convert them.") from None


def _labels(values: Any, source: str) -> Tensor:
    labels = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    if labels.ndim != 1 or (labels.dtype.kind not in "iu" and labels.size):
        raise InputError(
            f"The labels of {source} are {labels.dtype} of shape {labels.shape}; give one whole number per sample."
        )
    return torch.from_numpy(labels.astype(np.int64))


def _class_folders(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise InputError(f"{folder} does not exist; an image folder needs train/<class>/ and test/<class>/.")
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise InputError(f"{folder} holds no class folders; an image folder needs train/<class>/ and test/<class>/.")
    return names


def _image_files(folder: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    found = [
        (file, label)
        for label, name in enumerate(classes)
        for file in sorted((folder / name).glob("*"))
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
    ]
    if not found:
        raise InputError(f"{folder} holds no images; put .png or .jpg files into its class folders.")
    return found


def _read_images(files: Sequence[Path]) -> Tensor:
    """uint8 [n, 3, height, width], or one channel where every image is greyscale."""
    pixels: list[np.ndarray] = []
    grey = True
    for file in files:
        try:
            with Image.open(file) as image:
                mode, colours = image.mode, np.asarray(image.convert("RGB"))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            raise InputError(f"The image {file} cannot be decoded; replace or remove it.") from None
        if mode.startswith(("I", "F")):
            raise InputError(f"The image {file} has more than 8 bits per pixel; save it with 8.")
        if pixels and colours.shape != pixels[0].shape:
            (height, width), (high, wide) = colours.shape[:2], pixels[0].shape[:2]
            raise InputError(f"The image {file} has {width}x{height} pixels, {files[0]} has {wide}x{high}; resize it.")
        grey = grey and mode in ("1", "L")
        pixels.append(colours)
    images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
    return (images[:, :1] if grey else images).contiguous()
