"""What a run keeps on the disk: models by their checksums, JSON with its own checksum in it, the clients'
models of training, oracles, and the newest round of what is unfinished."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fedforget.data.files import make_folder, write_bytes, write_json, writing
from fedforget.errors import InputError
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
        make_folder(self._path(round, "sent").parent)
        with writing():
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


class NotedModel:
    """A model with a note on it, at a `place`: PLACE.safetensors beside PLACE.json. Rounds of what is unfinished take
    PLACE-0 and PLACE-1 by turns, and the note is written last: it never names a file that is not whole.

    A note that lacks one of `belongs` is about something else, and counts as not there."""

    def __init__(self, place: Path, **belongs: Any) -> None:
        self._place, self._belongs = place, belongs
        self._note = place.with_name(f"{place.name}.json")

    def load(self) -> tuple[dict[str, Any], State] | None:
        """The note and the model; what is damaged is refused."""
        if not self._note.exists():
            return None
        try:
            note = read_sealed(self._note)
            if any(note[name] != value for name, value in self._belongs.items()):
                return None
            path, sha256 = self._note.with_name(note["model"]), note["sha256"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self._note} is damaged and cannot be read; delete it to begin again.") from None
        return note, load_model(path, sha256)

    def load_whole(self) -> tuple[dict[str, Any], State] | None:
        """The same; what is damaged counts as not there."""
        try:
            return self.load()
        except (InputError, OSError):
            return None

    def save(self, state: Mapping[str, Tensor], round: int | None = None, **values: Any) -> None:
        make_folder(self._place.parent)
        turn, done = ("", {}) if round is None else (f"-{round % 2}", {"round": round})
        path = self._place.with_name(f"{self._place.name}{turn}.safetensors")
        checksum = save_model(path, state)
        write_sealed(self._note, {"model": path.name, "sha256": checksum, **done, **values, **self._belongs})

    def drop(self) -> None:
        """Forget it, with every round; the note goes first."""
        with writing():
            self._note.unlink(missing_ok=True)
            name, folder = self._place.name, self._place.parent
            for path in (folder / f"{name}.safetensors", *folder.glob(f"{name}-*")):
                path.unlink(missing_ok=True)


class FolderRungs:
    """Keeps the models of an unfinished climb in its folder; those made with other settings do not count."""

    def __init__(self, folder: Path, settings: Any) -> None:
        self._folder, self._settings = folder / "rungs", repr(settings)

    def load(self, name: str) -> tuple[dict[str, Any], State] | None:
        return NotedModel(self._folder / name, settings=self._settings).load()

    def save(self, name: str, state: State, note: Mapping[str, Any]) -> None:
        NotedModel(self._folder / name, settings=self._settings).save(state, **note)

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class FolderOracleCache:
    """An `audit.oracles.OracleCache`: KEY.safetensors beside KEY.json, and KEY.unfinished.json with the newest round of
    what is not finished. What is damaged, or belongs to another key, counts as not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(folder)

    def model(self, key: str) -> NotedModel:
        return NotedModel(self._folder / key, key=key)

    def rounds(self, key: str) -> NotedModel:
        return NotedModel(self._folder / f"{key}.unfinished", key=key)
