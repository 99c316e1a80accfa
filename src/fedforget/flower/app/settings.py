"""The run config of our own Flower app: what `flwr run --run-config` may set."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedforget.audit.case import Level
from fedforget.audit.examine import check_level
from fedforget.data.backdoor import Backdoor
from fedforget.errors import InputError
from fedforget.federation.rounds import Schedule
from fedforget.flower.values import fits
from fedforget.methods import LADDER, METHODS, check_prepared, check_servable, method_settings
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig, default_trigger

_APP = tomllib.loads((Path(__file__).parent / "bundle" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
DEFAULTS: dict[str, Any] = _APP["config"]
"""The defaults stand where Flower wants them, and nowhere else."""
OF_THE_RUN = (
    "dataset", "clients", "partition", "model", "train-limit", "hold-out", "history-interval", "shards", "rounds",
    "epochs", "lr", "momentum", "participation", "batch-size", "seed", "threads", "backdoor",
)  # fmt: skip
"""The entries that together say what `run` says alone."""


@dataclass(frozen=True)
class AppSettings:
    """A checked run config."""

    run: RunConfig
    classes: int
    """How many, for nodes with data of their own, which may not hold every class; 0: those of the data set."""
    request: ErasureRequest | None
    methods: tuple[tuple[str, str], ...]
    """(method, preset), each of which serves the request, all from the same trained model."""
    audit: bool
    audit_level: Level | None
    out: Path
    device: str
    timeout_s: float
    join_timeout_s: float
    climbing: dict[str, Any] = field(default_factory=dict)
    """Where the ladder is climbed, how far."""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> AppSettings:
        """The settings of a run config, or a refusal that names the entry."""
        for name, value in given.items():
            if name not in DEFAULTS:
                raise InputError(f"The run config has the unknown entry '{name}'; it may have {', '.join(DEFAULTS)}.")
            if not fits(value, type(DEFAULTS[name])):
                kind = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
                raise InputError(f"Run config '{name}' is {value!r}, but it must be {kind[type(DEFAULTS[name])]}.")
        values = {**DEFAULTS, **given}
        run = _run_of_json(values) if values["run"] else _run_of_entries(values)
        request = _request(values)
        methods = _methods(values["method"], values["preset"])
        climbing = _climbing(values, methods)
        for method, preset in methods:
            chosen = method_settings(method, preset, **(climbing if method == LADDER else {}))[1]
            check_servable(method, chosen, [] if request is None else [request])
            check_prepared(run.serving, method, chosen)
        if values["backdoor"]:
            run = replace(run, backdoor=_backdoor(run, request))
        return cls(
            run, values["classes"], request, methods, values["audit"],
            check_level(values["audit-level"]) if values["audit-level"] else None,
            Path(values["out"]), values["device"], float(values["timeout-s"]), float(values["join-timeout-s"]),
            climbing,
        )  # fmt: skip


def _run_of_json(values: Mapping[str, Any]) -> RunConfig:
    """The run that `run` describes, and nothing else may. Flower fills in the default of what nobody gave, so what
    differs from its default was given."""
    other = next((name for name in OF_THE_RUN if values[name] != DEFAULTS[name]), None)
    if other is not None:
        raise InputError(f"The run config gives a whole run, and '{other}' beside it; leave one of the two out.")
    try:
        return RunConfig.from_json(json.loads(values["run"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError("Run config 'run' must be the configuration in a run's run.json, as JSON.") from None


def _run_of_entries(values: Mapping[str, Any]) -> RunConfig:
    """The run that somebody wrote down entry by entry."""
    schedule = Schedule(
        values["rounds"], values["epochs"], float(values["lr"]), float(values["momentum"]), values["batch-size"],
        values["seed"], values["threads"] or os.cpu_count() or 1, participation=float(values["participation"]),
    )  # fmt: skip
    return RunConfig(
        values["dataset"], values["clients"], values["partition"], values["model"], schedule,
        train_limit=values["train-limit"] or None, history_interval=values["history-interval"] or None,
        hold_out=float(values["hold-out"]), shards=values["shards"],
    )  # fmt: skip


def _request(values: Mapping[str, Any]) -> ErasureRequest | None:
    client, label = (None if values[name] < 0 else values[name] for name in ("request-client", "request-class"))
    samples, feature = values["request-samples"] or None, values["request-feature"] or None
    nothing = label is None and samples is None and feature is None
    if client is None and nothing:
        return None
    return ErasureRequest.parse(
        client, label=label, samples=samples, feature=feature, whole=nothing,
        names="request-client, with request-class, request-samples, request-feature or, for everything, none of them",
    )  # fmt: skip


def _methods(names: str, preset: str) -> tuple[tuple[str, str], ...]:
    chosen = list(METHODS) if names == "all" else [name.strip() for name in names.split(",")]
    if preset and len(chosen) > 1:
        raise InputError(f"The run config names the preset '{preset}' for {len(chosen)} methods; leave it out.")
    return tuple((name, method_settings(name, preset or None)[0]) for name in chosen)


def _climbing(values: Mapping[str, Any], methods: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """As `fedforget forget` takes --effort and --at-most."""
    effort, at_most = values["effort"], values["at-most"]
    if (effort or at_most) and all(method != LADDER for method, _ in methods):
        raise InputError(
            "Run config 'effort' and 'at-most' are about the ladder; leave them out, or leave out 'method'."
        )
    climbing = {"lowest": effort, "at_most": at_most or effort}
    return {name: rung for name, rung in climbing.items() if rung}


def _backdoor(run: RunConfig, request: ErasureRequest | None) -> Backdoor:
    if request is None:
        raise InputError("The run config asks for a backdoor, but names no request whose target would carry it.")
    dataset = run.load_dataset()
    return Backdoor.draw(request, default_trigger(dataset), len(dataset.classes), run.schedule.seed)
