"""Same seed and threads, same bits: in another process, on another day, whatever else ran before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.federation.rounds import Schedule
from fedforget.params import digest
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run
from fedforget.runs.forget import forget_run
from fedforget.runs.train import train_run

CLASS = ErasureRequest.of_class(0, 3)
CONFIG = RunConfig(
    clients=3,
    schedule=Schedule(rounds=2, lr=0.05, batch_size=16, threads=1),
    backdoor=Backdoor(CLASS, Trigger(2, margin=0), 7),
    train_limit=200,
)
STORY = """
import hashlib, json, sys
from pathlib import Path
from fedforget.params import digest
from fedforget.runs.forget import forget_run
from fedforget.runs.train import train_run
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig
folder, config = Path(sys.argv[1]), RunConfig.from_json(json.loads(sys.argv[2]))
run = train_run(folder, config)
digests = [digest(run.load_model())]
for method in sys.argv[3:]:
    branch = forget_run(folder, [ErasureRequest.of_class(0, 3)], method)
    digests.append(json.loads((branch / "result.json").read_text())["sha256"])
print(json.dumps(digests))
"""


def story(folder: Path, config: RunConfig, methods: Sequence[str], environment: dict[str, str]) -> list[str]:
    command = [sys.executable, "-c", STORY, str(folder), json.dumps(config.to_json()), *methods]
    said = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=os.environ | environment
    )
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


@pytest.mark.real
@pytest.mark.parametrize(
    ("threads", "methods"),
    [(1, ("fedaf", "fedaf-c", "retrain")), pytest.param(2, ("fedaf-c",), marks=pytest.mark.slow)],
)
def test_two_processes_same_bits(tmp_path: Path, threads: int, methods: tuple[str, ...]):
    """The second has another hash seed and another thread count of its own: the task's count is what counts."""
    schedule = replace(CONFIG.schedule, threads=threads, rounds=2 if threads == 1 else 1)
    config = replace(CONFIG, schedule=schedule, train_limit=CONFIG.train_limit if threads == 1 else 90)
    first = story(tmp_path / "a", config, methods, {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "2"})
    second = story(tmp_path / "b", config, methods, {"PYTHONHASHSEED": "2", "OMP_NUM_THREADS": "1"})
    assert first == second
    assert len(set(first)) == 1 + len(methods)
    assert (tmp_path / "a" / "run.json").read_bytes() == (tmp_path / "b" / "run.json").read_bytes()
    assert (tmp_path / "a" / "state.json").read_bytes() == (tmp_path / "b" / "state.json").read_bytes()


def test_two_runs_in_one_process_same_bits(tmp_path: Path):
    digests = []
    for name in ("a", "b"):
        run = train_run(tmp_path / name, CONFIG)
        branch = forget_run(tmp_path / name, [CLASS])
        assert branch is not None
        digests.append((digest(run.load_model()), json.loads((branch / "result.json").read_text())["sha256"]))
    assert digests[0] == digests[1]


def test_another_seed_other_bits(tmp_path: Path):
    other = replace(CONFIG, schedule=replace(CONFIG.schedule, seed=1))
    assert digest(train_run(tmp_path / "a", CONFIG).load_model()) != digest(
        train_run(tmp_path / "b", other).load_model()
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_the_thread_count_is_part_of_the_run(tmp_path: Path, threads: int):
    schedule = replace(CONFIG.schedule, threads=threads, rounds=1)
    config = replace(CONFIG, schedule=schedule, train_limit=60, backdoor=None)
    train_run(tmp_path / "run", config)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"]["schedule"]["threads"] == threads
    assert Run(tmp_path / "run").config.schedule.threads == threads
