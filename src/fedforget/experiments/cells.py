"""Cells: an experiment is a list of them, each stored when it is done, so that none is lost and none computed twice.

A cell is one JSON line with a `key`. A file of cells can be carried to another machine, gone on with there, and merged
with another: the union by key. Two cells of one key must agree on everything but `PROVENANCE`, when and where they were
computed and how long that took; then the first one stays. If they differ in a result, the merge is refused: both were
measured, and no rule knows which one to throw away."""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fedforget.data.files import held_lock, make_folder, writing
from fedforget.data.locations import CHECKOUT
from fedforget.errors import InputError

Cell = dict[str, Any]
PROVENANCE = (
    "date", "commit", "hardware", "device", "threads", "trial", "seconds", "seconds_by_stage", "peak_bytes", "wall_s",
)  # fmt: skip
"""What may differ between two computations of one cell."""


@functools.cache
def commit() -> str:
    """The source's commit: FEDFORGET_COMMIT for a copy whose history is not its own, else what git says."""
    if os.environ.get("FEDFORGET_COMMIT"):
        return os.environ["FEDFORGET_COMMIT"]
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        if (CHECKOUT / ".git").exists():
            return subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    return "unknown"


def provenance(device: str) -> dict[str, str]:
    """When, from which commit and on what hardware a cell is computed."""
    gpu = device.startswith("cuda")
    hardware = torch.cuda.get_device_name(device) if gpu else f"{platform.machine()} CPU, {os.cpu_count()} cores"
    return {"date": time.strftime("%Y-%m-%d"), "commit": commit(), "hardware": hardware}


class CellFile:
    """The cells that are done, by key, in the file's order. Adding one appends a line and waits for the disk.

    A last line that a kill cut off does not count; it is cut away when the next cell is added."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        data = self.path.read_bytes() if self.path.exists() else b""
        self.cells, self._whole = parse_cells(data, self.path)
        self._ended = self._whole == 0 or data[: self._whole].endswith(b"\n")

    def add(self, cell: Mapping[str, Any]) -> None:
        if cell["key"] in self.cells:
            raise InputError(f"Cell {cell['key']} is in {self.path} already.")
        line = json.dumps(cell, allow_nan=False).encode() + b"\n"
        make_folder(self.path.parent)
        with writing(), open(self.path, "ab") as handle:
            handle.truncate(self._whole)
            handle.write(line if self._ended else b"\n" + line)
            handle.flush()
            os.fsync(handle.fileno())
        self._whole += len(line) + (not self._ended)
        self._ended = True
        self.cells[cell["key"]] = dict(cell)

    def merge(self, others: Iterable[Path]) -> int:
        """Take over what `others` have and this file has not, all of it or nothing; how many cells came."""
        united = dict(self.cells)
        for path in others:
            _unite(united, read_cells(path), f"{self.path} or an earlier file", str(path))
        came = [cell for key, cell in united.items() if key not in self.cells]
        for cell in came:
            self.add(cell)
        return len(came)


@contextmanager
def alone(path: Path) -> Iterator[CellFile]:
    """The file at `path`, with other processes kept from adding to it."""
    make_folder(path.parent)
    with held_lock(path) as ours:
        if not ours:
            raise InputError(
                f"Another process is computing cells of {path}; wait for it, or use another --out and --merge it later."
            )
        yield CellFile(path)


def read_cells(path: Path) -> list[Cell]:
    """All whole cells of a file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"The cells {path} cannot be read: {error.strerror}.") from None
    return list(parse_cells(data, path)[0].values())


def parse_cells(data: bytes, path: Path) -> tuple[dict[str, Cell], int]:
    """(cells by key, how many bytes they take). A last line without its end is a cell only if it is a whole one."""
    cells: dict[str, Cell] = {}
    whole = 0
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        last = number == len(lines)
        if line.strip():
            try:
                cell = json.loads(line)
                if not isinstance(cell, dict) or not isinstance(cell.get("key"), str):
                    raise ValueError
            except ValueError:
                if last:
                    return cells, whole
                raise InputError(f"Line {number} of {path} is not a cell; delete it.") from None
            _unite(cells, [cell], f"an earlier line of {path}", f"line {number}")
        whole += len(line) + (not last)
    return cells, whole


def _unite(cells: dict[str, Cell], more: Iterable[Cell], here: str, there: str) -> None:
    for cell in more:
        known = cells.setdefault(cell["key"], cell)
        for name in sorted({*known, *cell} - set(PROVENANCE)):
            if known.get(name) != cell.get(name):
                raise InputError(
                    f"Cell {cell['key']} has {name} {known.get(name)} in {here}, but {cell.get(name)} in {there}; "
                    "delete the one that is wrong."
                )


def mean_and_deviation(values: Iterable[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (0 for one value)."""
    numbers = list(values)
    mean = sum(numbers) / len(numbers)
    spread = sum((v - mean) ** 2 for v in numbers) / (len(numbers) - 1) if len(numbers) > 1 else 0.0
    return mean, spread**0.5
