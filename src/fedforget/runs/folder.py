"""The run folder: everything a training run leaves behind, and what forgetting and auditing add to it.

    runs/a/
      run.json                       what was asked for: data, clients, network, schedule, seed, backdoor
      state.json                     where training stands: rounds done, requests served, checksum of each model file
      checkpoints/round-003.safetensors
      history/round-002.json         where it is kept: checksums of history/round-002/{sent,client-000}.safetensors
      metrics.jsonl                  one line for each round
      queue/ID.json                  requests that arrived while training was running
      forgotten/METHOD-PRESET-ID/    a model that forgot: model.safetensors and result.json
      audit.json  report.html

Files are written beside their place and renamed, so an interruption leaves the old one or the new one, never half."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedforget.data.files import held_lock, make_folder, write_json, write_text
from fedforget.errors import InputError
from fedforget.params import State
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig
from fedforget.runs.store import FolderHistory, load_model, save_model, unseal, write_sealed

VERSION = 1


@dataclass(frozen=True)
class Trunk:
    """One of a run's own global models: its file in the folder, that file's checksum, and what it has forgotten."""

    model: str
    sha256: str
    served: tuple[ErasureRequest, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"model": self.model, "sha256": self.sha256, "served": [request.to_json() for request in self.served]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Trunk:
        """Early trunks may name a `guard`, which is ignored."""
        served = tuple(ErasureRequest.from_json(v) for v in values["served"])
        return cls(values["model"], values["sha256"], served)


class Run:
    """An opened run folder. Reading checks every file against its checksum."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        header = self._read_json(
            "run.json", "is not a run folder (it has no run.json); make one with `fedforget train`"
        )
        if header.get("version") != VERSION:
            raise InputError(
                f"Run folder {folder} is of version {header.get('version')}, but this fedforget reads {VERSION}; "
                "train again or use the fedforget that made it."
            )
        self.config = RunConfig.from_json(unseal(self.folder / "run.json", header)["config"])

    @classmethod
    def create(cls, folder: Path, config: RunConfig, initial: Mapping[str, Tensor]) -> Run:
        """A new folder with round 0 in it: the untrained model."""
        folder = Path(folder)
        if (folder / "run.json").exists():
            raise InputError(f"Run folder {folder} exists already; resume it with --resume, or choose another --out.")
        if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - {"run.json.part"}):
            raise InputError(f"{folder} exists and is not an empty folder; choose another --out.")
        make_folder(folder)
        write_sealed(folder / "run.json", {"version": VERSION, "config": config.to_json()})
        run = cls(folder)
        run.save_round(0, initial, served=())
        return run

    def _read_json(self, name: str, missing: str) -> dict[str, Any]:
        path = self.folder / name
        if not path.exists():
            raise InputError(f"{self.folder} {missing}.")
        try:
            values = json.loads(path.read_text())
            if not isinstance(values, dict):
                raise ValueError
        except (ValueError, OSError):
            raise InputError(
                f"{path} is damaged and cannot be read; restore it from a backup or train again."
            ) from None
        return values

    @property
    def state(self) -> dict[str, Any]:
        missing = "has no state.json, so its training never began; begin it with `fedforget train --resume`"
        return unseal(self.folder / "state.json", self._read_json("state.json", missing))

    @property
    def started(self) -> bool:
        """False only where an interruption came before the untrained model was written down."""
        return (self.folder / "state.json").exists()

    @property
    def rounds_done(self) -> int:
        return int(self.state["round"])

    @property
    def finished(self) -> bool:
        return self.rounds_done >= self.config.schedule.rounds

    @property
    def served(self) -> tuple[ErasureRequest, ...]:
        """Requests that the run's own model has forgotten."""
        return self.trunk.served

    def save_round(self, round: int, state: Mapping[str, Tensor], served: Sequence[ErasureRequest]) -> None:
        """The model after `round` rounds; state.json is renamed into place last, so it never names a missing file.

        A request served between two rounds makes another model of the same round, so it gets another file."""
        name = f"checkpoints/round-{round:03d}{f'-served-{len(served)}' if served else ''}.safetensors"
        make_folder(self.folder / "checkpoints")
        checksum = save_model(self.folder / name, state)
        trunk = Trunk(name, checksum, tuple(served))
        write_sealed(self.folder / "state.json", {"round": round, **trunk.to_json()})

    @property
    def trunk(self) -> Trunk:
        """The run's own global model, as it is now."""
        return Trunk.from_json(self.state)

    def load_trunk(self, trunk: Trunk) -> State:
        """The global model of now or of earlier."""
        return load_model(self.folder / trunk.model, trunk.sha256)

    def load_model(self) -> State:
        """The newest global model."""
        return self.load_trunk(self.trunk)

    @property
    def history(self) -> FolderHistory | None:
        """What was kept of the rounds done so far, or None where none are kept."""
        interval = self.config.history_interval
        return None if interval is None else FolderHistory(self.folder / "history", interval, self.rounds_done)

    def add_metrics(self, values: Mapping[str, Any]) -> None:
        """One line for a round; a line of the same round from before an interruption is replaced."""
        lines = [line for line in self.metrics() if line["round"] < values["round"]]
        write_text(self.folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in [*lines, dict(values)]))

    def metrics(self) -> list[dict[str, Any]]:
        path = self.folder / "metrics.jsonl"
        try:
            return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        except ValueError:
            raise InputError(f"{path} is damaged and cannot be read; restore it from a backup or delete it.") from None

    def enqueue(self, name: str, values: Mapping[str, Any]) -> None:
        make_folder(self.folder / "queue")
        write_json(self.folder / "queue" / f"{name}.json", values)

    def queued(self) -> list[Path]:
        return sorted((self.folder / "queue").glob("*.json"))

    def training_lock(self) -> AbstractContextManager[bool]:
        """True for the one process that may move this run's training on."""
        return held_lock(self.folder / ".lock")
