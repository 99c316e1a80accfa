"""The user's own arrays, .npz files and image folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedforget.data.own import from_arrays, from_image_folder, from_npz
from fedforget.errors import InputError

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 9), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def test_images_may_have_their_channels_first_or_last() -> None:
    first = from_arrays(IMAGES, LABELS, IMAGES[:2], LABELS[:2])
    last = from_arrays(IMAGES.transpose(0, 2, 3, 1), LABELS, IMAGES[:2].transpose(0, 2, 3, 1), LABELS[:2])
    tensors = from_arrays(
        torch.tensor(IMAGES), torch.tensor(LABELS), torch.tensor(IMAGES[:2]), torch.tensor(LABELS[:2])
    )
    assert torch.equal(first.train.features, torch.tensor(IMAGES))
    assert first.digest() == last.digest() == tensors.digest()
    assert first.train.features.dtype == torch.uint8
    assert first.classes == ("0", "1", "2")
    assert first.test.ids.tolist() == [6, 7]


def test_greyscale_images_get_their_channel() -> None:
    assert from_arrays(IMAGES[:, 0], LABELS, IMAGES[:2, 0], LABELS[:2]).shape == (1, 8, 9)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_float_features_become_float32(dtype) -> None:
    values = np.arange(12).reshape(6, 2).astype(dtype)
    data = from_arrays(values, LABELS, values[:2], LABELS[:2])
    assert data.train.features.dtype == torch.float32
    assert data.train.features.tolist() == np.arange(12.0).reshape(6, 2).tolist()
    assert torch.equal(data.normalisation(data.train.features), data.train.features)


def test_any_layout_of_an_array_will_do_and_is_copied() -> None:
    values = np.ones((6, 4))
    frozen = values[::-1, ::2]
    frozen.flags.writeable = False
    data = from_arrays(frozen, LABELS.astype(">i2"), frozen[:2], list(LABELS[:2]))
    values[:] = 7
    assert data.train.features.tolist() == [[1.0, 1.0]] * 6
    source = torch.ones(6, 2)
    data = from_arrays(source, LABELS, source, LABELS)
    source[:] = 7
    assert float(data.train.features.max()) == 1


def test_named_classes() -> None:
    data = from_arrays(IMAGES, LABELS, IMAGES, LABELS, classes=["a", "b", "c", "never seen"], name="mine")
    assert data.classes == ("a", "b", "c", "never seen")
    assert data.name == "mine"


FLOATS = np.ones((6, 4))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((FLOATS, LABELS[:5], FLOATS, LABELS), r"'own' \(train\) has 6 samples but 5 labels"),
        ((FLOATS, LABELS, FLOATS[:1], LABELS), r"'own' \(test\) has 1 samples but 6 labels"),
        ((FLOATS, LABELS - 1, FLOATS, LABELS), "has the label -1, but its 3 classes are numbered 0 to 2"),
        ((FLOATS, LABELS, FLOATS, LABELS, ["a", "b"]), "has the label 2, but its 2 classes"),
        ((FLOATS, LABELS + 1_000_000_000, FLOATS, LABELS), "has the label 1000000002, but fewer samples than that"),
        ((FLOATS, LABELS / 2, FLOATS, LABELS), r"labels of 'own' \(train\) are float64 .* one whole number per sample"),
        ((FLOATS, LABELS[:, None], FLOATS, LABELS), "one whole number per sample"),
        ((FLOATS, ["cat"] * 6, FLOATS, LABELS), "one whole number per sample"),
        ((FLOATS, LABELS, FLOATS[:, :3], LABELS), r"of shape \(4,\), but .* of shape \(3,\); make them alike"),
        ((FLOATS, LABELS, IMAGES, LABELS), "make them alike"),
        ((FLOATS * np.nan, LABELS, FLOATS, LABELS), "hold a NaN or an infinite number"),
        ((FLOATS * 1e300, LABELS, FLOATS, LABELS), "hold a NaN or an infinite number"),
        ((IMAGES.reshape(6, -1), LABELS, IMAGES, LABELS), "is not that of images"),
        ((IMAGES.astype(int), LABELS, IMAGES, LABELS), r"are torch\.int64 of shape .* give uint8 images or floats"),
        ((np.ones(6), LABELS, FLOATS, LABELS), "one row per sample"),
        (([[1.0], [1.0, 2.0]], LABELS, FLOATS, LABELS), "are not an array of numbers"),
        (([["a"]] * 6, LABELS, FLOATS, LABELS), "are not an array of numbers"),
        ((FLOATS[:0], LABELS[:0], FLOATS, LABELS), r"'own' \(train\) holds no samples"),
        ((FLOATS, LABELS, FLOATS[:0], []), r"'own' \(test\) holds no samples"),
        ((FLOATS[:0], [], FLOATS[:0], []), "holds no samples"),
    ],
)
def test_bad_arrays_are_refused_in_one_sentence(arguments, sentence) -> None:
    with pytest.raises(InputError, match=sentence):
        from_arrays(*arguments)


@given(st.integers(1, 20), st.integers(1, 20), st.sampled_from([1, 3, 4]), st.integers(5, 9), st.integers(5, 9))
def test_every_image_keeps_its_pixels(train: int, test: int, channels: int, height: int, width: int) -> None:
    values = np.random.default_rng(train).integers(0, 256, (train + test, height, width, channels), dtype=np.uint8)
    labels = np.zeros(train + test, dtype=np.uint8)
    data = from_arrays(values[:train], labels[:train], values[train:], labels[train:])
    assert data.shape == (channels, height, width)
    both = torch.cat([data.train.features, data.test.features]).permute(0, 2, 3, 1)
    assert np.array_equal(both.numpy(), values)
    assert torch.cat([data.train.ids, data.test.ids]).tolist() == list(range(train + test))


def test_an_npz_file_is_the_same_as_its_arrays(tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    np.savez_compressed(file, x_train=IMAGES, y_train=LABELS, x_test=IMAGES[:2], y_test=LABELS[:2])
    expected = from_arrays(IMAGES, LABELS, IMAGES[:2], LABELS[:2], name="mine")
    assert from_npz(file).digest() == expected.digest()


def test_bad_npz_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    with pytest.raises(InputError, match=r"mine\.npz does not exist"):
        from_npz(file)
    np.savez(file, x_train=IMAGES, y_train=LABELS, x_test=IMAGES)
    with pytest.raises(InputError, match=r"mine\.npz has no array 'y_test'; it must hold x_train, y_train"):
        from_npz(file)
    np.savez(file, x_train=IMAGES, y_train=LABELS, x_test=IMAGES, y_test=LABELS)
    whole = file.read_bytes()
    version = whole.rindex(b"PK\x01\x02") + 6
    future = whole[:version] + b"\xff" + whole[version + 1 :]  # a zip version that zipfile does not implement
    for damaged in (b"", b"no archive", whole[:-50], whole[:500], whole[:300] + b"???" + whole[303:], future):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=r"mine\.npz is not a readable \.npz file"):
            from_npz(file)
    with file.open("wb") as opened:
        np.save(opened, IMAGES)
    with pytest.raises(InputError, match="it holds a single array"):
        from_npz(file)
    np.savez(file, x_train=np.array([{"run": "me"}], dtype=object), y_train=LABELS, x_test=IMAGES, y_test=LABELS)
    with pytest.raises(InputError, match=r"mine\.npz is not a readable \.npz file"):
        from_npz(file)
    with pytest.raises(InputError, match="is not a readable"):
        from_npz(tmp_path)


def save(path: Path, mode: str = "RGB", size: tuple[int, int] = (9, 8), shade: int = 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, (shade, 0, 1) if mode == "RGB" else shade).save(path)


def test_an_image_folder(tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    save(folder / "train" / "dog" / "2.png", shade=2)
    save(folder / "train" / "dog" / "1.png", shade=1)
    save(folder / "train" / "cat" / "7.PNG", shade=7)
    save(folder / "test" / "dog" / "3.png", shade=3)
    save(folder / "test" / "cat" / "4.jpg", shade=4)
    (folder / "train" / "dog" / "notes.txt").write_text("not an image")
    (folder / "train" / "dog" / "._1.png").write_text("what macOS leaves behind")
    (folder / "train" / ".thumbnails").mkdir()
    data = from_image_folder(folder)
    assert data.name == "pets"
    assert data.classes == ("cat", "dog")
    assert data.shape == (3, 8, 9)
    assert data.train.labels.tolist() == [0, 1, 1]
    assert data.train.features[:, 0, 0, 0].tolist() == [7, 1, 2]
    assert data.test.labels.tolist() == [0, 1]
    assert data.test.ids.tolist() == [3, 4]


def test_greyscale_folders_have_one_channel_and_mixed_ones_three(tmp_path: Path) -> None:
    for part in ("train", "test"):
        save(tmp_path / part / "a" / "1.png", mode="L", shade=77)
    assert from_image_folder(tmp_path).train.features.unique().tolist() == [77]
    assert from_image_folder(tmp_path).shape == (1, 8, 9)
    save(tmp_path / "test" / "a" / "2.png")
    assert from_image_folder(tmp_path).shape == (3, 8, 9)


def test_bad_image_folders_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train does not exist; an image folder needs train/<class>/"):
        from_image_folder(tmp_path)
    (tmp_path / "train").mkdir()
    with pytest.raises(InputError, match="train holds no class folders"):
        from_image_folder(tmp_path)
    (tmp_path / "train" / "a").mkdir()
    with pytest.raises(InputError, match="test does not exist"):
        from_image_folder(tmp_path)
    save(tmp_path / "test" / "a" / "1.png")
    with pytest.raises(InputError, match="train holds no images"):
        from_image_folder(tmp_path)
    save(tmp_path / "train" / "a" / "1.png")
    from_image_folder(tmp_path)

    save(tmp_path / "train" / "a" / "2.png", size=(9, 9))
    with pytest.raises(InputError, match=r"a/2\.png has 9x9 pixels, .*a/1\.png has 9x8; resize it"):
        from_image_folder(tmp_path)
    (tmp_path / "train" / "a" / "2.png").write_bytes((tmp_path / "train" / "a" / "1.png").read_bytes()[:40])
    with pytest.raises(InputError, match=r"a/2\.png cannot be decoded"):
        from_image_folder(tmp_path)
    Image.fromarray(np.full((8, 9), 40_000, dtype=np.uint16)).save(tmp_path / "train" / "a" / "2.png")
    with pytest.raises(InputError, match=r"a/2\.png has more than 8 bits per pixel"):
        from_image_folder(tmp_path)
    (tmp_path / "train" / "a" / "2.png").unlink()
    save(tmp_path / "test" / "b" / "1.png")
    with pytest.raises(InputError, match=r"test/b is a class that .*train does not have"):
        from_image_folder(tmp_path)
