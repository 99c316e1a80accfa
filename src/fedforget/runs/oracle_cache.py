"""Oracles in a folder, by key: KEY.safetensors beside KEY.json, and the newest round of what is not finished.

oracles/KEY.json                       sealed: what the model was made of, the checksum of its file
oracles/KEY.safetensors
oracles/KEY.unfinished.json            sealed: how many rounds are done, which of the two files has the newest
oracles/KEY.unfinished-0.safetensors
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedforget.errors import InputError
from fedforget.params import State
from fedforget.runs.store import NotedModel


class FolderOracleCache:
    """An `audit.oracles.OracleCache`. What is damaged, or belongs to another key, counts as not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(folder)

    def load(self, key: str) -> State | None:
        kept = _whole(self._model(key))
        return None if kept is None else kept[1]

    def save(self, key: str, state: Mapping[str, Tensor], ingredients: Mapping[str, Any]) -> None:
        self._model(key).save(state, ingredients=dict(ingredients))

    def load_round(self, key: str) -> tuple[int, State] | None:
        kept = _whole(self._rounds(key))
        return None if kept is None else (int(kept[0]["round"]), kept[1])

    def save_round(self, key: str, round: int, state: Mapping[str, Tensor]) -> None:
        self._rounds(key).save(state, round)

    def drop_round(self, key: str) -> None:
        self._rounds(key).drop()

    def _model(self, key: str) -> NotedModel:
        return NotedModel(self._folder / key, key=key)

    def _rounds(self, key: str) -> NotedModel:
        return NotedModel(self._folder / f"{key}.unfinished", key=key)


def _whole(place: NotedModel) -> tuple[dict[str, Any], State] | None:
    try:
        return place.load()
    except (InputError, OSError):
        return None
