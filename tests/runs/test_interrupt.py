"""Kills at any moment: training, forgetting and auditing go on afterwards and end with the same bits."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import InputError
from fedforget.federation.rounds import Schedule
from fedforget.params import digest
from fedforget.requests import ErasureRequest
from fedforget.runs import audit as auditing
from fedforget.runs.audit import audit_run
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run
from fedforget.runs.forget import branch_folder, forget_run
from fedforget.runs.store import load_model
from fedforget.runs.train import train_run

CLASS = ErasureRequest.of_class(0, 3)
TARGET = ("--client", "0", "--class", "3")
CONFIG = RunConfig(
    clients=3,
    schedule=Schedule(rounds=12, lr=0.05, batch_size=16, threads=1),
    backdoor=Backdoor(CLASS, Trigger(2, margin=0), 7),
    train_limit=300,
)
LONG = RunConfig(clients=3, schedule=Schedule(rounds=150, lr=0.02, batch_size=16, threads=1), train_limit=300)
"""Some seconds of training, so that a kill meets it at work."""
COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the test was started in the background
from fedforget.cli import main
main()
"""


class Stop(Exception):
    """An interruption of the test's own."""


def start(*words: str | Path) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-c", COMMAND, *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def begin(folder: Path, config: RunConfig) -> subprocess.Popen[str]:
    schedule = config.schedule
    return start(
        "train", "--out", folder, "--json", "--clients", str(config.clients), "--rounds", str(schedule.rounds),
        "--lr", str(schedule.lr), "--batch-size", str(schedule.batch_size), "--threads", str(schedule.threads),
        "--train-limit", str(config.train_limit),
    )  # fmt: skip


def wait_for(process: subprocess.Popen[str], condition: Callable[[], bool], seconds: float = 60) -> None:
    """Until `condition` holds; the process must be at work all the while."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"the process ended before: {process.communicate()}"
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.005)


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL, "it was killed at work"


def rounds_done(folder: Path) -> int:
    return Run(folder).rounds_done if (folder / "state.json").exists() else -1


def results(folder: Path) -> list[Path]:
    return sorted((folder / "forgotten").glob("*/result.json"))


@pytest.fixture(scope="module")
def long_digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What an uninterrupted run of LONG ends with."""
    return digest(train_run(tmp_path_factory.mktemp("long") / "run", LONG).load_model())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_five_kills_at_random_moments_change_no_bit(tmp_path: Path, long_digest: str, seed: int):
    folder, chance = tmp_path / "run", random.Random(seed)
    for number in range(5):
        process = begin(folder, LONG) if number == 0 else start("train", "--resume", "--out", folder, "--json")
        reached = rounds_done(folder)
        wait_for(process, lambda reached=reached: rounds_done(folder) > reached)  # type: ignore[misc]
        time.sleep(chance.uniform(0.0, 0.25))
        kill(process)
        assert 0 <= rounds_done(folder) < LONG.schedule.rounds
        Run(folder).load_model()
    process = start("train", "--resume", "--out", folder, "--json")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["rounds"] == LONG.schedule.rounds
    assert digest(Run(folder).load_model()) == long_digest
    assert [line["round"] for line in Run(folder).metrics()] == list(range(1, LONG.schedule.rounds + 1))


@pytest.mark.slow
def test_kills_from_the_very_start(tmp_path: Path, long_digest: str):
    """Also before the first checkpoint: whatever is there can be resumed, or begun afresh in the same place."""
    folder, chance = tmp_path / "run", random.Random(7)
    for _ in range(6):
        fresh = not (folder / "run.json").exists()
        process = begin(folder, LONG) if fresh else start("train", "--resume", "--out", folder, "--json")
        wait_for(process, lambda: folder.exists())
        time.sleep(chance.uniform(0.0, 0.02) if fresh else chance.uniform(0.5, 3.0))
        kill(process)
    assert digest(train_run(folder, None if (folder / "run.json").exists() else LONG).load_model()) == long_digest


@pytest.mark.slow
def test_ctrl_c_is_130_one_sentence_and_resumable(tmp_path: Path, long_digest: str):
    folder = tmp_path / "run"
    process = begin(folder, LONG)
    wait_for(process, lambda: rounds_done(folder) >= 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err == "Interrupted; what is done is kept, and the same command goes on (train with --resume).\n"
    assert 3 <= rounds_done(folder) < LONG.schedule.rounds
    assert digest(train_run(folder).load_model()) == long_digest


@pytest.mark.slow
def test_a_second_trainer_in_another_process_is_refused(tmp_path: Path):
    folder = tmp_path / "run"
    process = begin(folder, LONG)
    try:
        wait_for(process, lambda: rounds_done(folder) >= 1)
        with pytest.raises(InputError, match=r"^Another process is training"):
            train_run(folder)
    finally:
        kill(process)
    train_run(folder, progress=lambda *_: None)
    assert Run(folder).finished, "the lock died with its process"


@pytest.mark.slow
def test_a_request_to_another_process_at_work(tmp_path: Path):
    folder = tmp_path / "run"
    process = begin(folder, LONG)
    try:
        wait_for(process, lambda: rounds_done(folder) >= 1)
        assert forget_run(folder, [CLASS], "fedaf-c") is None
        wait_for(process, lambda: Run(folder).served == (CLASS,))
        assert branch_folder(Run(folder), [CLASS], "fedaf-c", "default").joinpath("result.json").exists()
    finally:
        kill(process)


@pytest.mark.slow
def test_a_kill_while_forgetting_leaves_no_half_result(tmp_path: Path):
    folder = tmp_path / "run"
    before = digest(train_run(folder, CONFIG).load_model())
    words = (
        "forget",
        folder,
        *TARGET,
        "--json",
        "--method",
        "overwrite",
        "--set",
        "epochs=150",
        "--set",
        "stop_below=none",
    )
    process = start(*words)
    began = time.monotonic()
    out, err = process.communicate(timeout=120)
    whole = time.monotonic() - began
    assert (process.returncode, err) == (0, "")
    expected = json.loads(out)["sha256"]

    branch = branch_folder(Run(folder), [CLASS], "overwrite", "default")
    for file in branch.iterdir():
        file.unlink()
    branch.rmdir()
    chance = random.Random(3)
    for _ in range(4):
        process = start(*words)
        time.sleep(chance.uniform(0.5, 0.97) * whole)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        assert digest(Run(folder).load_model()) == before
        for path in results(folder):  # a kill that came too late: then the result is whole
            load_model(path.parent / "model.safetensors", json.loads(path.read_text())["sha256"])
    process = start(*words)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["sha256"] == expected


@pytest.mark.slow
def test_a_kill_while_the_audit_retrains(tmp_path: Path):
    folder, reference = tmp_path / "run", tmp_path / "reference"
    for place in (folder, reference):
        train_run(place, LONG)
        forget_run(place, [CLASS], "fedaf-c")
    expected = audit_run(reference).to_json()
    branch = branch_folder(Run(folder), [CLASS], "retrain", "default")

    def retrained() -> int:
        note = branch / "unfinished.json"
        return json.loads(note.read_text())["round"] if note.exists() else 0

    for more in (2, 20):
        process, reached = start("audit", folder, "--json"), retrained()
        wait_for(process, lambda reached=reached, more=more: retrained() >= reached + more)  # type: ignore[misc]
        kill(process)
        assert not (branch / "result.json").exists()
        assert not (folder / "audit.json").exists()
    process = start("audit", folder, "--json")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    rows = json.loads(out)["rows"]
    assert [row["model"] for row in rows] == [row["model"] for row in expected["rows"]]
    assert [row["test_acc"] for row in rows] == [row["test_acc"] for row in expected["rows"]]
    assert rows[1]["gradient_evaluations"] >= expected["rows"][1]["gradient_evaluations"]
    assert (folder / "report.html").exists()


def test_an_exception_at_every_moment_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The same without a process: one run, interrupted after every single reply, then a forgetting and an audit that
    are interrupted too."""

    def once_at(what: str, done: int) -> Callable[[str, int, int], None]:
        def progress(now: str, so_far: int, total: int) -> None:
            if now == what and so_far == done:
                raise Stop

        return progress

    monkeypatch.setattr(auditing, "write_report", lambda *_: None)  # drawing takes longer than all the rest
    config = RunConfig(clients=2, schedule=Schedule(rounds=3, lr=0.05, batch_size=16, threads=1), train_limit=60)
    reference, folder = tmp_path / "reference", tmp_path / "run"
    train_run(reference, config)
    forget_run(reference, [CLASS])
    expected = audit_run(reference).to_json()
    with pytest.raises(Stop):
        train_run(folder, config, progress=once_at("training", 0))
    for done in range(1, 7):
        with pytest.raises(Stop):
            train_run(folder, progress=once_at("training", done))
    train_run(folder)
    moments = 0  # replies since it was taken up again; what a rung has done it does not do again
    while True:
        try:
            forget_run(folder, [CLASS], progress=once_at("ladder", moments))
            break
        except Stop:
            assert results(folder) == []
            moments += 1
    assert moments > 3, "it was interrupted"
    for done in (1, 2, 3, 3):  # replies since it was taken up again: the last two are each a round further
        with pytest.raises(Stop):
            audit_run(folder, progress=once_at("retrain", done))
        assert not (folder / "audit.json").exists()
    got = audit_run(folder).to_json()
    assert [row["model"] for row in got["rows"]] == [row["model"] for row in expected["rows"]]
    assert [row["bd_acc"] for row in got["rows"]] == [row["bd_acc"] for row in expected["rows"]]
