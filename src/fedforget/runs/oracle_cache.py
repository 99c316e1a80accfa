"""Oracles in a folder, by key: KEY.safetensors beside KEY.json, and the newest round of what is not finished.

    oracles/KEY.json                       sealed: what the model was made of, the checksum of its file
    oracles/KEY.safetensors
    oracles/KEY.unfinished.json            sealed: how many rounds are done, which of the two files has the newest
    oracles/KEY.unfinished-0.safetensors

A note is written last, so it never names a file that is not whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedforget.data.files import writing
from fedforget.errors import InputError
from fedforget.params import State
from fedforget.runs.store import load_model, read_sealed, save_model, write_sealed


class FolderOracleCache:
    """An `audit.oracles.OracleCache`. What is damaged, or belongs to another key, counts as not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(folder)

    def load(self, key: str) -> State | None:
        kept = self._read(key, f"{key}.json")
        return None if kept is None else kept[1]

    def save(self, key: str, state: Mapping[str, Tensor], ingredients: Mapping[str, Any]) -> None:
        self._write(key, f"{key}.json", f"{key}.safetensors", state, {"ingredients": dict(ingredients)})

    def load_round(self, key: str) -> tuple[int, State] | None:
        kept = self._read(key, f"{key}.unfinished.json")
        return None if kept is None else (int(kept[0]["round"]), kept[1])

    def save_round(self, key: str, round: int, state: Mapping[str, Tensor]) -> None:
        model = f"{key}.unfinished-{round % 2}.safetensors"  # not the one that the note still names
        self._write(key, f"{key}.unfinished.json", model, state, {"round": round})

    def drop_round(self, key: str) -> None:
        with writing():
            (self._folder / f"{key}.unfinished.json").unlink(missing_ok=True)
            for path in self._folder.glob(f"{key}.unfinished-*"):
                path.unlink(missing_ok=True)

    def _write(self, key: str, note: str, model: str, state: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        with writing():
            self._folder.mkdir(parents=True, exist_ok=True)
        checksum = save_model(self._folder / model, state)
        write_sealed(self._folder / note, {"key": key, "model": model, "sha256": checksum, **values})

    def _read(self, key: str, note: str) -> tuple[dict[str, Any], State] | None:
        """(the note, the model), both whole and both of this key."""
        try:
            values = read_sealed(self._folder / note)
            if values["key"] != key:
                return None
            return values, load_model(self._folder / values["model"], values["sha256"])
        except (InputError, ValueError, KeyError, TypeError, OSError):
            return None
