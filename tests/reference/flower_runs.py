"""Runs of our app on Flower's real engines, and the same runs in this process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from flower_processes import Processes

from fedforget.flower import APP
from fedforget.flower.app.settings import AppSettings
from fedforget.ledger.executor_flower import run_words
from fedforget.methods import LADDER
from fedforget.params import digest
from fedforget.runs.config import RunConfig
from fedforget.runs.forget import forget_run
from fedforget.runs.store import load_model, read_sealed
from fedforget.runs.train import train_run

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
        climbing = settings.climbing if method == LADDER else {}
        branch = forget_run(folder, [settings.request], method, preset, **climbing)
        assert branch is not None
        checksum = read_sealed(branch / "result.json")["sha256"]
        digests[f"{method}:{preset}"] = digest(load_model(branch / "model.safetensors", checksum))
    return digests


def flwr_run(
    flower: Processes, config: dict[str, Any], *more: str, timeout_s: float = 600.0, app: Path = APP
) -> dict[str, Any]:
    """`flwr run` of an app, ours unless another is named, until it ends; its summary."""
    entries = {name: value for name, value in config.items() if name != "run"}
    words = " ".join(f"{name}={json.dumps(value)}" for name, value in entries.items())
    if "run" in config:
        words = run_words(RunConfig.from_json(json.loads(config["run"])), entries)
    process = flower.start("run", "flwr", "run", app, "there", "--run-config", words, "--stream", *more)
    process.wait(timeout=timeout_s)
    path = Path(config["out"]) / "summary.json"
    assert path.exists(), flower.logs()
    return json.loads(path.read_text())


def make_app(folder: Path, module: str, *sides: str) -> Path:
    """An app folder: ours, with one side or both, `client_app` and `server_app`, of a module beside this file."""
    shutil.copytree(APP, folder)
    text = (APP / "pyproject.toml").read_text()
    for side in sides:
        text = text.replace(f"fedforget.flower.app.apps:{side}", f"{module}:{side}")
    (folder / "pyproject.toml").write_text(text)
    shutil.copy(Path(__file__).with_name(f"{module}.py"), folder)
    return folder


def digests_of(summary: dict[str, Any]) -> dict[str, str]:
    forgotten = {name: told["digest"] for name, told in summary["forgotten"].items()}
    return {"trained": summary["trained"], **forgotten}
