"""CelebA: the real subset, small parquet files, and the refusal to download."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from fedforget.data import Dataset, load_dataset
from fedforget.data.celeba import CLASSES
from fedforget.errors import InputError


def write(path: Path, male: list, mouth: list, side: int = 64, shades: range | None = None) -> None:
    """One flat image per row, whose shade tells the row, as PNG so that no pixel changes."""
    rows = []
    for shade in shades or range(len(male)):
        buffer = io.BytesIO()
        Image.new("RGB", (side, side), (shade, shade, 255 - shade)).save(buffer, format="PNG")
        rows.append({"bytes": buffer.getvalue(), "path": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"image": rows, "Male": male, "Mouth_Slightly_Open": mouth}), path)


@pytest.fixture(scope="module")
def folder(real_data: Callable[[str], Path]) -> Path:
    return real_data("celeba")


@pytest.fixture(scope="module")
def real(folder: Path) -> Dataset:
    return load_dataset("celeba")


@pytest.mark.real
def test_real_celeba_is_split_80_10_10(real: Dataset, folder: Path) -> None:
    assert (len(real.train), len(real.test)) == (12578, 1572)
    assert real.shape == (3, 64, 64)
    assert torch.cat([real.train.ids, real.test.ids]).tolist() == list(range(14150))
    table = pq.read_table(next(folder.glob("*.parquet")), columns=["Male", "Mouth_Slightly_Open"])
    every = np.bincount(2 * table["Male"].to_numpy() + table["Mouth_Slightly_Open"].to_numpy())
    assert every.tolist() == [4754, 5109, 3526, 2334]
    for part, share in ((real.train, 0.8), (real.test, 0.1)):
        assert np.allclose(part.labels.bincount().numpy(), every * share, rtol=0.1)


@pytest.mark.real
def test_real_celeba_parts_share_no_image(real: Dataset) -> None:
    train = {image.tobytes() for image in real.train.features.numpy()}
    test = {image.tobytes() for image in real.test.features.numpy()}
    assert len(train) > 0.99 * len(real.train)
    assert not train & test


def test_classes_and_split_of_small_files(own_folder) -> None:
    """Two files of 50: each image's shade leads back to its row, and so to the class it must have."""
    male, mouth = [(i // 2) % 2 for i in range(100)], [i % 2 for i in range(100)]
    folder = own_folder / "celeba"
    write(folder / "a.parquet", male[:50], mouth[:50], shades=range(50))
    write(folder / "b.parquet", male[50:], mouth[50:], shades=range(50, 100))
    data = load_dataset("celeba")
    assert (len(data.train), len(data.test)) == (80, 10)
    rows = [part.features[:, 0, 0, 0].long() for part in (data.train, data.test)]
    assert len(set(torch.cat(rows).tolist())) == 90
    for part, row in zip((data.train, data.test), rows, strict=True):
        assert part.labels.tolist() == [2 * male[i] + mouth[i] for i in row.tolist()]
        assert torch.equal(part.features[:, 2].long().amax((1, 2)), 255 - row)
    assert data.test.ids.tolist() == list(range(80, 90))
    assert data.classes == CLASSES
    assert CLASSES[2 * 1 + 0] == "male, mouth closed"
    assert load_dataset("celeba").digest() == data.digest()


def test_truth_values_are_welcome(own_folder) -> None:
    write(own_folder / "celeba" / "a.parquet", [True, False] * 10, [False] * 20)
    assert set(load_dataset("celeba").train.labels.tolist()) == {0, 2}


def test_missing_celeba_is_not_downloaded_but_asked_for(nowhere) -> None:
    with pytest.raises(InputError, match="never downloaded, because its licence forbids passing it on") as caught:
        load_dataset("celeba")
    assert str(nowhere / "celeba") in str(caught.value)
    assert not nowhere.exists()


def test_a_copy_in_the_named_place_is_found(nowhere) -> None:
    write(nowhere / "celeba" / "mine.parquet", [0, 1] * 10, [0] * 20)
    assert len(load_dataset("celeba").train) == 16


@pytest.mark.parametrize(
    ("male", "mouth", "side", "sentence"),
    [
        ([1, -1] * 10, [0] * 20, 64, r"Column Male of .*a\.parquet must hold only 1 \(yes\) and 0 \(no\)"),
        ([1, 0] * 10, [2] * 20, 64, r"Column Mouth_Slightly_Open of .*a\.parquet must hold only"),
        ([1, 0] * 10, [None] * 20, 64, r"Column 'Mouth_Slightly_Open' of .*a\.parquet must hold one whole number"),
        ([1, 0] * 10, [0] * 20, 32, r"row 0 of .*a\.parquet has 32x32 pixels instead of 64x64"),
        ([1, 0], [0, 0], 64, "holds no samples"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(own_folder, male, mouth, side, sentence) -> None:
    write(own_folder / "celeba" / "a.parquet", male, mouth, side)
    with pytest.raises(InputError, match=sentence):
        load_dataset("celeba")


def test_a_file_that_is_no_parquet_is_refused(own_folder) -> None:
    (own_folder / "celeba").mkdir()
    (own_folder / "celeba" / "a.parquet").write_bytes(b"\xff\xd8 a photo, renamed")
    with pytest.raises(InputError, match=r"a\.parquet is not a readable parquet file"):
        load_dataset("celeba")
