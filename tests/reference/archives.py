"""Archives of a ledger that somebody changed."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path


def edited(archive: Path, change: Callable[[dict[str, bytes]], None], *, honest: bool = True) -> Path:
    """The archive with other content; `honest`: its checksums say so."""
    with tarfile.open(archive) as tar:
        files = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]
    change(files)
    if honest:
        manifest = json.loads(files["manifest.json"])
        manifest["files"] = {n: hashlib.sha256(d).hexdigest() for n, d in files.items() if n != "manifest.json"}
        manifest["sizes"] = {n: len(files[n]) for n in manifest["files"]}
        manifest["rows"] = {
            n[7:-6]: len(d.splitlines()) for n, d in files.items() if n.startswith("tables/") and n.endswith(".jsonl")
        }
        files["manifest.json"] = json.dumps(manifest).encode()
    new = archive.with_name("edited")
    with tarfile.open(new, "w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return new


def replacing(name: str, old: bytes, new: bytes) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        assert old in files[name]
        files[name] = files[name].replace(old, new)

    return change


def without(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda files: files.pop(name) and None


def without_last_line(name: str) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        files[name] = b"".join(files[name].splitlines(keepends=True)[:-1])

    return change
