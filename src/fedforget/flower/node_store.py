"""What a node keeps in files, since Flower keeps nothing of a node across runs or restarts.

    state-dir/
      node.json              which client this is, what it has withdrawn, and when; what waits for its operator
      kept-NAME.json         something kept for a next task, such as a sketch; its tensors are in
      kept-NAME.safetensors

Every file is written beside its place and renamed, and carries a checksum. A damaged node.json stops the node: it must
never train on what it can no longer know to be withdrawn. Something damaged that was kept is made anew."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from fedforget.data.files import held_lock, writing
from fedforget.errors import FedForgetError, InputError, NotYetError
from fedforget.flower.values import decode, encode
from fedforget.params import State, copy_state
from fedforget.requests import ErasureRequest, describe_requests, requests_id
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
        with self._changing():
            pass

    @property
    def withdrawn(self) -> tuple[ErasureRequest, ...]:
        """Every request that this client ever withdrew, oldest first."""
        return tuple(ErasureRequest.from_json(values) for values in self._read()["withdrawn"])

    def withdraw(self, requests: Sequence[ErasureRequest]) -> None:
        """Add what is new; on disk when this returns, whatever another run on this node writes at the same time."""
        with self._changing() as values:
            known = values["withdrawn"]
            for request in requests:
                if request.to_json() not in known:
                    known.append(request.to_json())
                    values.setdefault("when", {})[requests_id([request])] = now_in_words()
                values.get("waiting", {}).pop(requests_id([request]), None)

    def begin(self, requests: Sequence[ErasureRequest]) -> None:
        """Note that a model is being made without these: from now on no undo here can bring them back there."""
        names = {requests_id([request]) for request in requests if request in self.withdrawn}
        if names - self._read().get("begun", {}).keys():
            with self._changing() as values:
                values["begun"] = {**dict.fromkeys(names, now_in_words()), **values.get("begun", {})}

    def check_approved(self, requests: Sequence[ErasureRequest]) -> None:
        """Let requests wait until the node's operator has approved them."""
        approved = self._read().get("approved", [])
        waiting = {
            requests_id([request]): request for request in requests
            if request not in self.withdrawn and requests_id([request]) not in approved
        }  # fmt: skip
        if not waiting:
            return
        with self._changing() as values:
            known = values.setdefault("waiting", {})
            for name, request in waiting.items():
                known.setdefault(name, {"request": request.to_json(), "when": now_in_words()})
        raise NotYetError(
            f"Client {self.client}'s operator has not approved {describe_requests(list(waiting.values()))} yet; "
            f"there: fedforget node approve {self.folder} {' '.join(waiting)}"
        )

    def in_order(self, labels: Sequence[int]) -> bool:
        """Whether the samples come in the order of before, as far as their labels tell; new ones at the end do no harm.
        Another order is noted, and refused where samples were withdrawn by their positions."""
        before = self._read().get("labels")
        if before is not None and before == _digest_of(labels[: before["count"]]):
            return True
        if before is not None and any(request.kind == "samples" for request in self.withdrawn):
            raise InputError(
                f"The data of client {self.client} come in another order than when samples were withdrawn by their "
                "positions, so nobody knows which these are now; give the data in the order of then."
            )
        with self._changing() as values:
            values["labels"] = _digest_of(labels)
        return before is None

    @property
    def entries(self) -> list[Entry]:
        """What was withdrawn, and what waits for the operator, oldest first."""
        values = self._read()
        when, begun = values.get("when", {}), values.get("begun", {})
        found = []
        for told in values["withdrawn"]:
            request = ErasureRequest.from_json(told)
            name = requests_id([request])
            found.append(Entry(name, request, "withdrawn", when.get(name), begun.get(name)))
        approved = values.get("approved", [])
        for name, told in values.get("waiting", {}).items():
            request = ErasureRequest.from_json(told["request"])
            found.append(Entry(name, request, "approved" if name in approved else "waiting", told["when"]))
        return found

    def approve(self, name: str) -> Entry:
        """Let the node serve a request that waits."""
        entry = self._entry(name)
        if entry.state != "waiting":
            raise InputError(f"{entry.request.describe().capitalize()} does not wait for an approval.")
        with self._changing() as values:
            values["approved"] = [*values.get("approved", []), name]
        return entry

    def undo(self, name: str, anyway: bool = False) -> Entry:
        """Take a request back: the data train again from the next round on. What a server has made of it stays."""
        entry = self._entry(name)
        if entry.begun and not anyway:
            raise InputError(
                f"A model without {entry.request.describe()} was made from {entry.begun} on and may be in use; nothing "
                "done here changes that, nor what a ledger says of it; to let the data train again all the same, add "
                "--anyway."
            )
        with self._changing() as values:
            values["withdrawn"] = [told for told in values["withdrawn"] if told != entry.request.to_json()]
            for names in ("when", "begun", "waiting"):
                values.get(names, {}).pop(name, None)
            values["approved"] = [other for other in values.get("approved", []) if other != name]
        return entry

    def _entry(self, name: str) -> Entry:
        found = next((entry for entry in self.entries if entry.name == name), None)
        if found is None:
            names = ", ".join(entry.name for entry in self.entries) or "none"
            raise InputError(f"There is no request '{name}' in {self.folder}; there are: {names}.")
        return found

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """The node.json, to be changed; written when the block ends."""
        with held_lock(self.folder / ".lock", wait=True):
            values = self._read()
            before = json.dumps(values)
            yield values
            if json.dumps(values) != before or not self._path.exists():
                write_sealed(self._path, values)

    @property
    def _path(self) -> Path:
        return self.folder / "node.json"

    def _read(self) -> dict[str, Any]:
        if not self._path.exists():
            return {"version": VERSION, "client": self.client, "withdrawn": []}
        return read_node(self._path)


@dataclass(frozen=True)
class Entry:
    """A request as a node's operator sees it."""

    name: str
    request: ErasureRequest
    state: Literal["waiting", "approved", "withdrawn"]
    when: str | None
    """When it came; None where an older fedforget wrote it down."""
    begun: str | None = None
    """When a model without it was first made, as far as this node saw."""

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "request": self.request.to_json()}


def now_in_words() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _digest_of(labels: Sequence[int]) -> dict[str, Any]:
    text = ",".join(map(str, labels))
    return {"count": len(labels), "sha256": hashlib.sha256(text.encode()).hexdigest()}


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
