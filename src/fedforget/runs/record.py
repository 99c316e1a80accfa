"""What came of forgetting and what an audit found: the only shapes an outcome has, and their JSON.

forgotten/METHOD-PRESET-ID/result.json    a `Result`, sealed, beside model.safetensors
audit.json                                an `Audit`, of the newest audit"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fedforget.audit.measures import Measures
from fedforget.data.backdoor import Backdoor
from fedforget.data.files import write_json
from fedforget.errors import InputError
from fedforget.federation.cost import Cost
from fedforget.params import State
from fedforget.requests import ErasureRequest, describe_requests, requests_id
from fedforget.runs.climb import Rung
from fedforget.runs.folder import Trunk
from fedforget.runs.store import load_model, read_sealed, write_sealed

RESULT, MODEL, AUDIT, REPORT = "result.json", "model.safetensors", "audit.json", "report.html"
BEFORE = "before"
"""The name of the model before forgetting, among those that are audited."""


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
    exact: bool = False
    """Whether the model never saw the target, nor what was served before, by the way it was made."""
    assumed: tuple[str, ...] = ()
    """What its being exact rests on, where the federation prepared for it."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    curves: Mapping[str, list[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a person should know of how it went."""
    diverged: str | None = None
    """Why there is no model, if there is none."""
    rungs: tuple[Rung, ...] = ()
    """What was tried, where the ladder was climbed."""
    retrain: Mapping[str, float] = field(default_factory=dict)
    """What Retrain was forecast to cost then: `gradient_evaluations`, and `seconds` where that was measured."""

    @property
    def id(self) -> str:
        return requests_id(self.requests)

    @property
    def name(self) -> str:
        return f"{self.method}:{self.preset}"

    @property
    def target(self) -> str:
        return describe_requests(self.requests)

    @property
    def retrain_forecast(self) -> float | None:
        """In gradient evaluations."""
        return self.retrain.get("gradient_evaluations")

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
            "exact": self.exact,
            **({"assumed": list(self.assumed)} if self.assumed else {}),
            "settings": dict(self.settings),
            "cost": self.cost.to_json(),
            "curves": dict(self.curves),
            "notes": list(self.notes),
            **({"rungs": [rung.to_json() for rung in self.rungs]} if self.rungs else {}),
            **({"retrain": dict(self.retrain)} if self.retrain else {}),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Result:
        """Early results do not say whether they are `exact`; some name a `guard`, which is ignored."""
        requests = tuple(ErasureRequest.from_json(asked) for asked in values["requests"])
        asked = (values["method"], values["preset"], requests, Trunk.from_json(values["before"]))
        if "diverged" in values:
            return cls(*asked, diverged=values["diverged"])
        return cls(
            *asked, values["sha256"], bool(values.get("exact", False)), tuple(values.get("assumed", ())),
            values["settings"],
            Cost.from_json(values["cost"]), values["curves"], tuple(values.get("notes", ())),
            rungs=tuple(Rung.from_json(rung) for rung in values.get("rungs", ())),
            retrain=values.get("retrain", {}),
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


FOUND = (
    "model", "sensitivity", "distance_to_retrain", "verdict", "evidence", "rungs", "retrain_forecast"
)  # fmt: skip
"""What a row of audit.json leaves out where it was not found."""


@dataclass(frozen=True)
class Figures:
    """What was found of one model. None where nothing was measured, as where the method diverged."""

    method: str
    preset: str | None
    note: str | None = None
    """Why there is no model, if there is none."""
    notes: tuple[str, ...] = ()
    cost: Cost | None = None
    curves: Mapping[str, list[float]] | None = None
    model: str | None = None
    """The digest of its weights."""
    now: Measures | None = None
    later: Measures | None = None
    """After one further ordinary round."""
    sensitivity: Mapping[str, float | None] | None = None
    distance_to_retrain: Mapping[str, float] | None = None
    verdict: Mapping[str, Any] | None = None
    """As `Verdict.to_json` gives it."""
    evidence: Mapping[str, str] | None = None
    """The `file` with the readings, named from the run folder, and its `sha256`."""
    rungs: Sequence[Mapping[str, Any]] | None = None
    """What was tried, as `Rung.to_json` gives it, where the ladder was climbed."""
    retrain_forecast: float | None = None
    """Of Retrain, in gradient evaluations, where the ladder was climbed."""

    @classmethod
    def of(cls, result: Result) -> Figures:
        """What its result tells of a model, before anything is measured."""
        if result.diverged is not None:
            return cls(result.method, result.preset, result.diverged)
        rungs = [rung.to_json() for rung in result.rungs] or None
        return cls(
            result.method, result.preset, None, result.notes, result.cost, result.curves,
            rungs=rungs, retrain_forecast=result.retrain_forecast,
        )  # fmt: skip

    @property
    def name(self) -> str:
        return BEFORE if self.method == BEFORE else f"{self.method}:{self.preset}"

    @property
    def retained_acc(self) -> float | None:
        """On all clients' retained data, in percent."""
        return None if self.now is None else self.now.retained_acc

    def to_json(self) -> dict[str, Any]:
        values = {
            "method": self.method,
            "preset": self.preset,
            **{item.name: getattr(self.now, item.name, None) for item in fields(Measures)},
            **(dict.fromkeys(Cost().to_json()) if self.cost is None else self.cost.to_json()),
            "note": self.note,
            "notes": list(self.notes),
            "curves": None if self.curves is None else dict(self.curves),
        }
        later = {} if self.later is None else {"after_one_round": self.later.to_json()}
        found = {name: getattr(self, name) for name in FOUND}
        return values | later | {name: value for name, value in found.items() if value is not None}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Figures:
        def measures(figures: Mapping[str, Any] | None) -> Measures | None:
            if figures is None or values["note"] is not None:
                return None
            numbers: dict[str, Any] = {item.name: figures.get(item.name) for item in fields(Measures)}
            return Measures(**numbers)

        cost = None if values["seconds"] is None else Cost.from_json(values)
        found = {name: values.get(name) for name in FOUND}
        return cls(
            values["method"], values["preset"], values["note"], tuple(values.get("notes", ())), cost, values["curves"],
            now=measures(values), later=measures(values.get("after_one_round")), **found,
        )  # fmt: skip


@dataclass(frozen=True)
class Audit:
    """What was found: the model before, Retrain and every method that served the requests, side by side."""

    requests: tuple[ErasureRequest, ...]
    target_samples: int
    classes: tuple[str, ...]
    rows: tuple[Figures, ...]
    level: str | None = None
    """How closely it was looked; None where nothing was judged."""
    backdoor: Backdoor | None = None
    """The one in the target, if one was planted there."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """The run's configuration, as run.json has it."""

    @property
    def target(self) -> str:
        return describe_requests(self.requests)

    def row(self, name: str) -> Figures:
        return next(row for row in self.rows if row.name == name)

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "requests": [request.to_json() for request in self.requests],
            "target_samples": self.target_samples,
            "backdoor": None if self.backdoor is None else self.backdoor.to_json(),
            "classes": list(self.classes),
            "rows": [row.to_json() for row in self.rows],
            "run": dict(self.run),
            "level": self.level,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Audit:
        """Audits from before there were records do not say their level."""
        return cls(
            tuple(ErasureRequest.from_json(asked) for asked in values["requests"]),
            values["target_samples"],
            tuple(values["classes"]),
            tuple(Figures.from_json(row) for row in values["rows"]),
            values.get("level"),
            None if values["backdoor"] is None else Backdoor.from_json(values["backdoor"]),
            values.get("run") or {},
        )

    def write(self, folder: Path) -> None:
        write_json(folder / AUDIT, self.to_json())
