"""Where data files are looked for: the user's own folders first, then the cache that downloads go to."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
"""The source checkout, where the package runs from one; an installed package has none, and no folder beside it."""


def cache_folder(name: str) -> Path:
    """The user's cache for one data set: the only place fedforget writes data to. It may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fedforget" / name


def search_folders(name: str) -> list[Path]:
    """Every folder a data set may lie in, best first; the cache is always the last."""
    folders = []
    if own := os.environ.get("FEDFORGET_DATA"):
        folders.append(Path(own).expanduser() / name)
    beside = [Path.cwd().parent]
    if (CHECKOUT / "pyproject.toml").is_file():
        beside.append(CHECKOUT.parent)
    folders += [parent / "shared" / "data" / name for parent in beside]
    return [*dict.fromkeys(folders), cache_folder(name)]


def find_folder(name: str, *patterns: str) -> Path | None:
    """The first folder that holds a file of one of the `patterns`; a folder without any of them is passed over."""
    for folder in search_folders(name):
        if any(path.is_file() for pattern in patterns for path in folder.glob(pattern)):
            return folder
    return None
