"""What a run keeps on the disk: models and guards by their checksums, JSON with its own checksum in it, the clients'
models of training, and the newest round of what is unfinished."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fedforget.data.files import write_bytes, write_json, writing
from fedforget.errors import InputError
from fedforget.federation.guard import Guard
from fedforget.params import State


def model_bytes(state: Mapping[str, Tensor]) -> bytes:
    """A model as safetensors."""
    from safetensors.torch import save

    return save({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()})


def save_model(path: Path, state: Mapping[str, Tensor]) -> str:
    """Write a model as safetensors; its SHA-256."""
    data = model_bytes(state)
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def load_model(path: Path, sha256: str) -> State:
    """Read a model, refusing one whose bytes are not the ones that were written."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    if not path.is_file():
        raise InputError(f"Model file {path} is missing; restore it from a backup or train again.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"Model file {path} cannot be read: {error.strerror}.") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise InputError(
            f"Model file {path} is damaged (its checksum is not the one written down); restore it or train again."
        )
    try:
        return load(data)
    except (SafetensorError, KeyError):
        raise InputError(f"{path} is no model file (safetensors); restore it from a backup or train again.") from None


def save_guard(folder: Path, guard: Guard | None) -> str | None:
    """Write a guard, if there is one, into a file that is named by its SHA-256; the SHA-256."""
    if guard is None:
        return None
    data = model_bytes(guard.to_state())
    checksum = hashlib.sha256(data).hexdigest()
    write_bytes(folder / guard_file(checksum), data)
    return checksum


def load_guard(folder: Path, sha256: str | None) -> Guard | None:
    """The guard that a model has in this folder, if it has one."""
    return None if sha256 is None else Guard.from_state(load_model(folder / guard_file(sha256), sha256))


def guard_file(sha256: str) -> str:
    return f"guard-{sha256[:16]}.safetensors"


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Write JSON with its own checksum in it, so that `read_sealed` can tell whether a byte has changed."""
    write_json(path, {**values, "checksum": _seal(values)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Read what `write_sealed` wrote; ValueError if it is no JSON object, InputError if it is not the one written."""
    values = json.loads(path.read_text())
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return unseal(path, values)


def _seal(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def unseal(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    content = {name: value for name, value in values.items() if name != "checksum"}
    if values.get("checksum") != _seal(content):
        raise InputError(f"{path} is damaged (its checksum is not the one written down); restore it from a backup.")
    return content


class FolderHistory:
    """A history (`federation.history`) in a folder. A round's note is renamed into place last, so a round that was
    interrupted has none; the first `rounds_done` rounds must be whole."""

    def __init__(self, folder: Path, interval: int, rounds_done: int) -> None:
        self.folder, self.interval = Path(folder), interval
        self.rounds: Sequence[int] = range(0, rounds_done, interval)
        self._sums: dict[str, str] = {}

    @property
    def bytes(self) -> int:
        return sum(self._path(round, name).stat().st_size for round in self.rounds for name in self._note(round))

    def check(self) -> None:
        for round in self.rounds:
            for name in self._note(round):
                self._load(round, name)

    def sent(self, round: int) -> State:
        return self._load(round, "sent")

    def returned(self, round: int) -> Iterator[tuple[int, State]]:
        for name in self._note(round):
            if name != "sent":
                yield int(name.removeprefix("client-")), self._load(round, name)

    def begin(self, round: int, state: Mapping[str, Tensor]) -> None:
        with writing():
            self._path(round, "sent").parent.mkdir(parents=True, exist_ok=True)
            self._note_path(round).unlink(missing_ok=True)
        self._sums = {"sent": save_model(self._path(round, "sent"), state)}

    def add(self, round: int, client: int, state: Mapping[str, Tensor]) -> None:
        name = f"client-{client:03d}"
        self._sums[name] = save_model(self._path(round, name), state)

    def finish(self, round: int) -> None:
        write_sealed(self._note_path(round), {"round": round, "sha256": self._sums})

    def _note_path(self, round: int) -> Path:
        return self.folder / f"round-{round:03d}.json"

    def _path(self, round: int, name: str) -> Path:
        return self.folder / f"round-{round:03d}" / f"{name}.safetensors"

    def _load(self, round: int, name: str) -> State:
        return load_model(self._path(round, name), self._note(round)[name])

    def _note(self, round: int) -> dict[str, str]:
        path = self._note_path(round)
        if not path.exists():
            raise InputError(f"The history of round {round} is missing ({path}); restore it from a backup.")
        try:
            return dict(read_sealed(path)["sha256"])
        except (ValueError, KeyError):
            raise InputError(f"{path} is damaged and cannot be read; restore it from a backup.") from None


def make_folder(folder: Path) -> None:
    with writing():
        folder.mkdir(parents=True, exist_ok=True)


class FolderCheckpoints:
    """Keeps an unfinished method's newest round in its folder; one made with other settings does not count."""

    def __init__(self, folder: Path, settings: Any) -> None:
        self._model = folder / "unfinished.safetensors"
        self._note = folder / "unfinished.json"
        self._settings = repr(settings)

    def load(self) -> tuple[int, State, dict[str, Any]] | None:
        if not self._note.exists():
            return None
        try:
            note = read_sealed(self._note)
        except ValueError:
            raise InputError(f"{self._note} is damaged and cannot be read; delete it to begin again.") from None
        if note["settings"] != self._settings:
            return None
        return note["round"], load_model(self._model.with_name(note["model"]), note["sha256"]), note["cost"]

    def save(self, round: int, state: State, cost: dict[str, Any]) -> None:
        make_folder(self._model.parent)
        path = self._model.with_name(f"unfinished-{round % 2}.safetensors")
        checksum = save_model(path, state)
        note = {"round": round, "model": path.name, "sha256": checksum, "cost": cost, "settings": self._settings}
        write_sealed(self._note, note)

    def clear(self) -> None:
        self._note.unlink(missing_ok=True)
        for path in self._model.parent.glob("unfinished-*.safetensors"):
            path.unlink()
