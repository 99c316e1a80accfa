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

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedforget.data import Dataset, load_dataset
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.partition import partition
from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.federation.guard import Guard
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule
from fedforget.files import held_lock, write_bytes, write_json, write_text, writing
from fedforget.models import build_model
from fedforget.params import State
from fedforget.requests import ErasureRequest

VERSION = 1


@dataclass(frozen=True)
class RunConfig:
    """What a training run is made of. `schedule.seed` is the run's one seed."""

    dataset: str = "digits"
    clients: int = 4
    partition: str = "iid"
    model: str = "cnn"
    schedule: Schedule = field(default_factory=Schedule)
    backdoor: Backdoor | None = None
    train_limit: int | None = None
    """Use only the first so many training samples."""
    history_interval: int | None = None
    """Keep the clients' models of every so-many-th round, for methods that need them. None: keep none."""

    def __post_init__(self) -> None:
        for name in ("dataset", "partition", "model"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"Run setting '{name}' is {getattr(self, name)!r}, but it must be a name.")
        for name, optional in (("clients", False), ("train_limit", True), ("history_interval", True)):
            value = getattr(self, name)
            if not (optional and value is None) and (not isinstance(value, int) or value < 1):
                raise InputError(f"Run setting '{name}' is {value!r}, but it must be a whole number, 1 or larger.")

    def to_json(self) -> dict[str, Any]:
        return {
            "dataset": self.dataset,
            "clients": self.clients,
            "partition": self.partition,
            "model": self.model,
            "schedule": asdict(self.schedule),
            "backdoor": None if self.backdoor is None else self.backdoor.to_json(),
            "train_limit": self.train_limit,
            "history_interval": self.history_interval,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunConfig:
        known = {item.name for item in fields(cls)}
        unknown = set(values) - known
        if unknown:
            raise InputError(
                f"The configuration has the unknown entry '{min(unknown)}'; it may have {', '.join(sorted(known))}."
            )
        backdoor = values.get("backdoor")
        return cls(
            **{
                name: values[name]
                for name in ("dataset", "clients", "partition", "model", "train_limit", "history_interval")
                if name in values
            },
            schedule=Schedule(**values.get("schedule", {})),
            backdoor=None if backdoor is None else Backdoor.from_json(backdoor),
        )

    def load_dataset(self) -> Dataset:
        dataset = load_dataset(self.dataset)
        return dataset if self.train_limit is None else dataset.first(self.train_limit)

    def held_out(self, dataset: Dataset) -> Samples:
        """What nobody trains on, for the audit: training samples that `train_limit` leaves out, as many as there are
        test samples, since they are most like what is trained on; else the test data itself."""
        if self.train_limit is None:
            return dataset.test
        whole = load_dataset(self.dataset).train
        left = torch.arange(self.train_limit, min(len(whole), self.train_limit + len(dataset.test)))
        return whole.select(left) if len(left) == len(dataset.test) else dataset.test

    def build_model(self, dataset: Dataset) -> nn.Module:
        """The network with its initial weights, both from the seed."""
        return build_model(self.model, dataset.shape, len(dataset.classes), self.schedule.seed)

    def build_federation(self, dataset: Dataset, device: str = "cpu") -> LocalFederation:
        """The federation this configuration describes, in this process."""
        parts = partition(self.partition, dataset.train.labels, self.clients, self.schedule.seed)
        backdoors = () if self.backdoor is None else (self.backdoor,)
        federation = LocalFederation(
            dataset, parts, self.build_model(dataset), backdoors=backdoors, device=device,
            held_out=self.held_out(dataset),
        )  # fmt: skip
        for backdoor in backdoors:
            federation.client(backdoor.request.client).check(backdoor.request)
        return federation


def default_trigger(dataset: Dataset) -> Trigger:
    """The size that leaves a memory: 5x5 on 28x28 images, 4x4 on 32x32 colour images, 2x2 on 8x8 digits."""
    side = min(dataset.shape[-2:]) if len(dataset.shape) == 3 else 0
    return Trigger(
        size=2 if side <= 12 else 5 if dataset.shape[0] == 1 else max(4, side // 8), margin=0 if side <= 12 else 1
    )


@dataclass(frozen=True)
class Trunk:
    """One of a run's own global models: its file in the folder, that file's checksum, what it has forgotten, and the
    checksum of the guard (in a file named by it) that its next rounds are held to."""

    model: str
    sha256: str
    served: tuple[ErasureRequest, ...] = ()
    guard: str | None = None

    def to_json(self) -> dict[str, Any]:
        held = {} if self.guard is None else {"guard": self.guard}
        served = [request.to_json() for request in self.served]
        return {"model": self.model, "sha256": self.sha256, "served": served, **held}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Trunk:
        served = tuple(ErasureRequest.from_json(v) for v in values["served"])
        return cls(values["model"], values["sha256"], served, values.get("guard"))


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
        self.config = RunConfig.from_json(_unseal(self.folder / "run.json", header)["config"])

    @classmethod
    def create(cls, folder: Path, config: RunConfig, initial: Mapping[str, Tensor]) -> Run:
        """A new folder with round 0 in it: the untrained model."""
        folder = Path(folder)
        if (folder / "run.json").exists():
            raise InputError(f"Run folder {folder} exists already; resume it with --resume, or choose another --out.")
        if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - {"run.json.part"}):
            raise InputError(f"{folder} exists and is not an empty folder; choose another --out.")
        with writing():
            folder.mkdir(parents=True, exist_ok=True)
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
        return _unseal(self.folder / "state.json", self._read_json("state.json", missing))

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

    def save_round(
        self, round: int, state: Mapping[str, Tensor], served: Sequence[ErasureRequest], guard: str | None = None
    ) -> None:
        """The model after `round` rounds; state.json is renamed into place last, so it never names a missing file.

        A request served between two rounds makes another model of the same round, so it gets another file. `guard`: the
        checksum of the one in force (`keep_guard`)."""
        name = f"checkpoints/round-{round:03d}{f'-served-{len(served)}' if served else ''}.safetensors"
        with writing():
            (self.folder / "checkpoints").mkdir(exist_ok=True)
        checksum = save_model(self.folder / name, state)
        trunk = Trunk(name, checksum, tuple(served), guard)
        write_sealed(self.folder / "state.json", {"round": round, **trunk.to_json()})

    @property
    def trunk(self) -> Trunk:
        """The run's own global model, as it is now."""
        return Trunk.from_json(self.state)

    def load_trunk(self, trunk: Trunk) -> State:
        """The global model of now or of earlier."""
        return load_model(self.folder / trunk.model, trunk.sha256)

    def keep_guard(self, guard: Guard | None) -> str | None:
        """Write down what later rounds are held to; its checksum."""
        return save_guard(self.folder / "checkpoints", guard)

    def load_guard(self, trunk: Trunk) -> Guard | None:
        """What the rounds after that model are held to."""
        return load_guard(self.folder / "checkpoints", trunk.guard)

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
        with writing():
            (self.folder / "queue").mkdir(exist_ok=True)
        write_json(self.folder / "queue" / f"{name}.json", values)

    def queued(self) -> list[Path]:
        return sorted((self.folder / "queue").glob("*.json"))

    def training_lock(self) -> AbstractContextManager[bool]:
        """True for the one process that may move this run's training on."""
        return held_lock(self.folder / ".lock")


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
    return _unseal(path, values)


def _seal(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _unseal(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    content = {name: value for name, value in values.items() if name != "checksum"}
    if values.get("checksum") != _seal(content):
        raise InputError(f"{path} is damaged (its checksum is not the one written down); restore it from a backup.")
    return content
