"""Runs of our app on Flower's real engines, and the same runs in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flower_processes import Processes

from fedforget.flower import APP
from fedforget.flower.settings import AppSettings
from fedforget.params import digest
from fedforget.pipeline import forget_run, train_run
from fedforget.runs import load_model, read_sealed

CONFIG: dict[str, Any] = {
    "rounds": 3, "lr": 0.05, "batch-size": 16, "threads": 1, "train-limit": 240,
    "request-client": 0, "request-class": 3, "history-interval": 1,
}  # fmt: skip


def in_process(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """The digests of the same run in this process."""
    settings = AppSettings.read(config)
    assert settings.request is not None
    run = train_run(folder, settings.run)
    digests = {"trained": digest(run.load_model())}
    for method, preset in settings.methods:
        branch = forget_run(folder, [settings.request], method, preset)
        assert branch is not None
        checksum = read_sealed(branch / "result.json")["sha256"]
        digests[f"{method}:{preset}"] = digest(load_model(branch / "model.safetensors", checksum))
    return digests


def flwr_run(flower: Processes, config: dict[str, Any], *more: str, timeout_s: float = 600.0) -> dict[str, Any]:
    """`flwr run` of our app until it ends; its summary."""
    words = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
    process = flower.start("run", "flwr", "run", APP, "there", "--run-config", words, "--stream", *more)
    process.wait(timeout=timeout_s)
    path = Path(config["out"]) / "summary.json"
    assert path.exists(), flower.logs()
    return json.loads(path.read_text())


def digests_of(summary: dict[str, Any]) -> dict[str, str]:
    forgotten = {name: told["digest"] for name, told in summary["forgotten"].items()}
    return {"trained": summary["trained"], **forgotten}
