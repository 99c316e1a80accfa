"""Cells: an experiment is a list of them, each stored when it is done, so that none is lost and none computed twice.

A cell is one JSON line with a `key`. A file of cells can be carried to another machine, gone on with there, and merged
with another by reading both."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from fedforget.errors import InputError

Cell = dict[str, Any]


def provenance(device: str) -> dict[str, str]:
    """When, from which commit and on what hardware a cell is computed."""
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
        commit = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent).stdout
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    gpu = device.startswith("cuda")
    hardware = torch.cuda.get_device_name() if gpu else f"{platform.machine()} CPU, {os.cpu_count()} cores"
    return {"date": time.strftime("%Y-%m-%d"), "commit": commit.strip(), "hardware": hardware}


class CellFile:
    """The cells that are done, by key. Appending is one flushed line; a line that a kill cut off is dropped."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.cells: dict[str, Cell] = {}
        if self.path.exists():
            for cell in read_cells(self.path):
                self.cells[cell["key"]] = cell

    def __contains__(self, key: str) -> bool:
        return key in self.cells

    def add(self, cell: Mapping[str, Any]) -> None:
        if cell["key"] in self.cells:
            raise InputError(f"Cell {cell['key']} is in {self.path} already.")
        self.cells[cell["key"]] = dict(cell)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n") and self.path.stat().st_size > 0
        with open(self.path, "a") as handle:
            handle.write(("\n" if torn else "") + json.dumps(cell) + "\n")
            handle.flush()
            os.fsync(handle.fileno())


def read_cells(path: Path) -> list[Cell]:
    """All whole lines of a cell file."""
    cells = []
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            cells.append(json.loads(line))
        except ValueError:
            torn = number == len(lines) or not lines[number:] or (number < len(lines) and lines[number].startswith("{"))
            if not torn:
                raise InputError(f"Line {number} of {path} is not a cell; delete it.") from None
    return cells


def mean_and_deviation(values: Iterable[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (0 for one value)."""
    numbers = list(values)
    mean = sum(numbers) / len(numbers)
    spread = sum((v - mean) ** 2 for v in numbers) / (len(numbers) - 1) if len(numbers) > 1 else 0.0
    return mean, spread**0.5
