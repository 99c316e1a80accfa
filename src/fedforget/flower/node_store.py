"""What a node keeps in files, since Flower keeps nothing of a node across runs or restarts.

    state-dir/
      node.json              which client this is, and what it has withdrawn, for ever
      kept-NAME.json         something kept for a next task, such as a sketch; its tensors are in
      kept-NAME.safetensors

Every file is written beside its place and renamed, and carries a checksum. A damaged node.json stops the node: it must
never train on what it can no longer know to be withdrawn. Something damaged that was kept is made anew."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from fedforget.data.files import held_lock, writing
from fedforget.errors import FedForgetError, InputError
from fedforget.flower.values import decode, encode
from fedforget.params import State, copy_state
from fedforget.requests import ErasureRequest
from fedforget.runs.store import NotedModel, read_sealed, write_sealed

log = logging.getLogger(__name__)
VERSION = 1


class NodeStore:
    """The folder of one client on its own node."""

    def __init__(self, folder: Path, client: int) -> None:
        self.folder, self.client = Path(folder), client
        with writing():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.kept = KeptInFiles(self.folder)
        if self._read()["client"] != client:
            raise InputError(
                f"{self.folder} holds the state of client {self._read()['client']}, but this node is client {client}; "
                "give every node its own state-dir."
            )

    def claim(self) -> None:
        """Note whose folder this is, though nothing is withdrawn yet."""
        with held_lock(self.folder / ".lock", wait=True):
            if not self._path.exists():
                write_sealed(self._path, self._read())

    @property
    def withdrawn(self) -> tuple[ErasureRequest, ...]:
        """Every request that this client ever withdrew, oldest first."""
        return tuple(ErasureRequest.from_json(values) for values in self._read()["withdrawn"])

    def withdraw(self, requests: Sequence[ErasureRequest]) -> None:
        """Add what is new; on disk when this returns, whatever another run on this node writes at the same time."""
        with held_lock(self.folder / ".lock", wait=True):
            known = self.withdrawn
            fresh = tuple(request for request in requests if request not in known)
            if fresh:
                everything = [request.to_json() for request in (*known, *fresh)]
                write_sealed(self._path, {"version": VERSION, "client": self.client, "withdrawn": everything})

    @property
    def _path(self) -> Path:
        return self.folder / "node.json"

    def _read(self) -> dict[str, Any]:
        if not self._path.exists():
            return {"version": VERSION, "client": self.client, "withdrawn": []}
        return read_node(self._path)


def read_node(path: Path) -> dict[str, Any]:
    """A node.json, or a refusal: what it says must be known."""
    try:
        values = read_sealed(path)
        if values["version"] != VERSION:
            raise InputError(f"{path} is of version {values['version']}, but this fedforget reads {VERSION}.")
        return values
    except (ValueError, KeyError, OSError):
        raise InputError(f"{path} is damaged and cannot be read; restore it from a backup.") from None


def owner_of(folder: Path) -> int | None:
    """The client whose state lies in a folder; None if nothing does yet."""
    if not (folder / "node.json").exists():
        return None
    return int(read_node(folder / "node.json")["client"])


class KeptInFiles(MutableMapping[str, Any]):
    """`Client.kept` on disk: read when it is looked at, written when it is set."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _place(self, key: str) -> NotedModel:
        return NotedModel(self._folder / f"kept-{hashlib.sha256(key.encode()).hexdigest()[:12]}", key=key)

    def __getitem__(self, key: str) -> Any:
        try:
            kept = self._place(key).load()
            if kept is not None:
                note, tensors = kept
                # Copied into memory that torch aligned: the bits of a product can depend on where its factors lie.
                return decode(note["value"], copy_state(tensors))
        except (KeyError, OSError, FedForgetError) as error:
            log.warning("What was kept as '%s' is damaged and is made anew: %s", key, error)
            del self[key]
        raise KeyError(key)

    def __setitem__(self, key: str, value: Any) -> None:
        tensors: State = {}
        tree = encode(value, tensors)
        self._place(key).save(tensors, value=tree)

    def __delitem__(self, key: str) -> None:
        self._place(key).drop()

    def __iter__(self) -> Iterator[str]:
        for path in sorted(self._folder.glob("kept-*.json")):
            try:
                yield str(read_sealed(path)["key"])
            except (ValueError, KeyError, FedForgetError):
                log.warning("%s is damaged; what it kept is made anew.", path)

    def __len__(self) -> int:
        return sum(1 for _ in self)
