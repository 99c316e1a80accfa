"""The same digests from Flower's real engines: its simulation on Ray, and a SuperLink with four SuperNodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flower_processes import Processes, free_ports, processes

from fedforget.flower import APP
from fedforget.flower.settings import AppSettings
from fedforget.params import digest
from fedforget.pipeline import forget_run, train_run
from fedforget.runs import load_model, read_sealed

pytestmark = pytest.mark.real

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


def test_the_simulation_gives_the_same_bits_with_every_method(tmp_path: Path):
    config = {**CONFIG, "method": "all", "out": str(tmp_path / "out"), "state-dir": str(tmp_path / "nodes")}
    expected = in_process(tmp_path / "local", config)
    assert len(set(expected.values())) == len(expected)
    with processes(tmp_path / "flower") as flower:
        summary = flwr_run(flower, config, *flower.start_simulation(4))
        assert digests_of(summary) == expected, flower.logs()


def test_a_superlink_with_four_supernodes_gives_the_same_bits(tmp_path: Path):
    config = {**CONFIG, "out": str(tmp_path / "out")}
    expected = in_process(tmp_path / "local", config)
    with processes(tmp_path / "flower") as flower:
        port = flower.start_superlink()
        for number, node_port in enumerate(free_ports(4)):
            settings = f"partition-id={number} num-partitions=4 state-dir='{tmp_path / 'nodes' / str(number)}'"
            flower.start(
                f"supernode-{number}", "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}",
                "--host", "127.0.0.1", "--port", str(node_port), "--node-config", settings,
            )  # fmt: skip
        summary = flwr_run(flower, config)
        assert digests_of(summary) == expected, flower.logs()
        assert summary["forgotten"]["fedaf:recommended"]["notes"] == []
    withdrawn = read_sealed(tmp_path / "nodes" / "0" / "node.json")["withdrawn"]
    assert withdrawn == [{"client": 0, "kind": "class", "label": 3}]
