"""Images inside parquet files, decoded once: tens of thousands of PNGs take seconds, the decoded array a moment."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from fedforget.data.files import sha256_of_file
from fedforget.data.locations import cache_folder
from fedforget.errors import InputError

Arrays = dict[str, np.ndarray]

DECODER = 1
"""Goes up when the decoding below changes, so that arrays of an older one are not taken from the cache."""


def read_parquet_images(name: str, file: Path, image_column: str, label_columns: Sequence[str], side: int) -> Arrays:
    """`images` as uint8 [n, 3, side, side] and each label column as int64, from the cache where the file's decoded
    twin is there. The twin is named by the file's SHA-256, so a changed file is never mistaken for the old one."""
    try:
        twin = cache_folder(name) / f"decoded-{DECODER}-{sha256_of_file(file)[:32]}.npz"
    except OSError as error:
        raise InputError(f"The data file {file} cannot be read ({error.strerror}).") from None
    arrays = _read_twin(twin)
    if arrays is None or set(arrays) != {"images", *label_columns}:
        arrays = _decode(file, image_column, label_columns, side)
        _write_twin(twin, arrays)
    return arrays


def _decode(file: Path, image_column: str, label_columns: Sequence[str], side: int) -> Arrays:
    try:
        schema = pq.read_schema(file)
        needed = (image_column, *label_columns)
        if missing := [column for column in needed if column not in schema.names]:
            raise InputError(f"The data file {file} has no column '{missing[0]}'; it must have {', '.join(needed)}.")
        kind = schema.field(image_column).type
        if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
            raise InputError(f"Column '{image_column}' of {file} must be a struct with the field 'bytes'.")
        table = pq.read_table(file, columns=list(needed))
        encoded = [row["bytes"] if row else None for row in table[image_column].to_pylist()]
        arrays = {column: _whole_numbers(table[column], column, file) for column in label_columns}
    except (pa.ArrowException, OSError, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"The data file {file} is not a readable parquet file ({first}); copy it again.") from None
    images = np.empty((len(encoded), 3, side, side), dtype=np.uint8)
    for row, data in enumerate(encoded):
        try:
            pixels = np.asarray(Image.open(io.BytesIO(data or b"")).convert("RGB"))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            raise InputError(f"The image in row {row} of {file} cannot be decoded; copy the file again.") from None
        if pixels.shape != (side, side, 3):
            raise InputError(
                f"The image in row {row} of {file} has {pixels.shape[1]}x{pixels.shape[0]} pixels instead of "
                f"{side}x{side}; resize the images."
            )
        images[row] = pixels.transpose(2, 0, 1)
    return {"images": images, **arrays}


def _whole_numbers(values: pa.ChunkedArray, column: str, file: Path) -> np.ndarray:
    if values.null_count or not (pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)):
        raise InputError(f"Column '{column}' of {file} must hold one whole number per image; convert it.")
    return values.to_numpy().astype(np.int64)


def _read_twin(twin: Path) -> Arrays | None:
    """The cached arrays, or None where there are none or they are damaged (zip checks its own sums)."""
    try:
        with twin.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile):
        return None


def _write_twin(twin: Path, arrays: Arrays) -> None:
    """Write whole or not at all. A cache that cannot be written costs time, never the run."""
    draft = twin.with_name(f"draft-{secrets.token_hex(8)}.npz")
    with contextlib.suppress(OSError):
        try:
            twin.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
            os.replace(draft, twin)
        finally:
            draft.unlink(missing_ok=True)
