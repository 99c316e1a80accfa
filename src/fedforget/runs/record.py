"""What came of forgetting and what an audit found: the only shapes an outcome has, and their JSON.

forgotten/METHOD-PRESET-ID/result.json    a `Result`, sealed, beside model.safetensors and guard-*.safetensors
audit.json                                an `Audit`, of the newest audit"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedforget.errors import InputError
from fedforget.federation.cost import Cost
from fedforget.federation.guard import Guard
from fedforget.params import State
from fedforget.requests import ErasureRequest, describe_requests, requests_id
from fedforget.runs.folder import Trunk
from fedforget.runs.store import load_guard, load_model, read_sealed, write_sealed

RESULT, MODEL = "result.json", "model.safetensors"


@dataclass(frozen=True)
class Result:
    """What forgot: a new model, or the reason why there is none."""

    method: str
    preset: str
    requests: tuple[ErasureRequest, ...]
    before: Trunk
    """The model that it began from."""
    sha256: str = ""
    """Of the new model's file."""
    guard: str | None = None
    """The SHA-256 of what later rounds of the model are held to, if they are."""
    exact: bool = False
    """Whether the model never saw the target, nor what was served before, by the way it was made."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    curves: Mapping[str, list[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a person should know of how it went."""
    diverged: str | None = None
    """Why there is no model, if there is none."""

    @property
    def id(self) -> str:
        return requests_id(self.requests)

    @property
    def name(self) -> str:
        return f"{self.method}:{self.preset}"

    @property
    def target(self) -> str:
        return describe_requests(self.requests)

    def to_json(self) -> dict[str, Any]:
        asked = {
            "method": self.method,
            "preset": self.preset,
            "requests": [request.to_json() for request in self.requests],
            "before": self.before.to_json(),
        }
        if self.diverged is not None:
            return {**asked, "diverged": self.diverged}
        return {
            **asked,
            "target": self.target,
            "sha256": self.sha256,
            "guard": self.guard,
            "exact": self.exact,
            "settings": dict(self.settings),
            "cost": self.cost.to_json(),
            "curves": dict(self.curves),
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Result:
        """Results from before there were guards say nothing of one, nor of `exact`."""
        requests = tuple(ErasureRequest.from_json(asked) for asked in values["requests"])
        asked = (values["method"], values["preset"], requests, Trunk.from_json(values["before"]))
        if "diverged" in values:
            return cls(*asked, diverged=values["diverged"])
        return cls(
            *asked, values["sha256"], values.get("guard"), bool(values.get("exact", False)), values["settings"],
            Cost.from_json(values["cost"]), values["curves"], tuple(values.get("notes", ())),
        )  # fmt: skip

    def write(self, folder: Path) -> None:
        write_sealed(folder / RESULT, self.to_json())

    @classmethod
    def read(cls, folder: Path) -> Result:
        path = folder / RESULT
        try:
            return cls.from_json(read_sealed(path))
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path} is damaged and cannot be read; delete its folder and forget again.") from None

    def load_model(self, folder: Path) -> State:
        return load_model(folder / MODEL, self.sha256)

    def load_guard(self, folder: Path) -> Guard | None:
        return load_guard(folder, self.guard)
