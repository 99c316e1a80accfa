"""The history of training: what is kept, in memory and in a folder; whole after a kill; refused when damaged."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_worlds import SCHEDULE, federation

from fedforget.cli import main
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import InputError
from fedforget.federation.history import History, MemoryHistory, recorded
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.tasks import Reply
from fedforget.methods import forget
from fedforget.params import State, digest, state_bytes, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run
from fedforget.runs.forget import forget_run
from fedforget.runs.store import FolderHistory, load_model
from fedforget.runs.train import train_run

CLASS = ErasureRequest.of_class(0, 3)
CONFIG = RunConfig(
    clients=3,
    schedule=Schedule(rounds=4, lr=0.05, batch_size=16, threads=1),
    backdoor=Backdoor(CLASS, Trigger(2, margin=0), 7),
    train_limit=150,
    history_interval=2,
)


@pytest.fixture(params=["memory", "folder"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int, int], History]:
    """A history of either form for so many rounds."""

    def history(interval: int, rounds: int) -> History:
        return MemoryHistory(interval) if request.param == "memory" else FolderHistory(tmp_path, interval, rounds)

    return history


def content(history: History) -> dict[tuple[int, int | str], str]:
    kept: dict[tuple[int, int | str], str] = {}
    for round in history.rounds:
        kept[round, "sent"] = digest(history.sent(round))
        kept |= {(round, client): digest(model) for client, model in history.returned(round)}
    return kept


@pytest.mark.parametrize(("interval", "rounds"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (3, [0, 3]), (9, [0])])
def test_it_keeps_what_was_sent_and_what_came_back(
    make: Callable[[int, int], History], interval: int, rounds: list[int]
):
    world, history = federation(), make(interval, SCHEDULE.rounds)
    start = state_of(world.model)
    passed: dict[int, State] = {0: start}
    after = train(world, start, SCHEDULE, history=history, on_round=lambda done, state: passed.__setitem__(done, state))
    assert digest(after) == digest(train(federation(), start, SCHEDULE)), "not one bit depends on it"
    assert list(history.rounds) == rounds
    expected: dict[tuple[int, int | str], str] = {}
    for task, state, reply in world.log:
        if task.round in rounds:  # type: ignore[attr-defined]
            expected[task.round, "sent"] = digest(state)  # type: ignore[attr-defined]
            expected[task.round, reply.client] = digest(reply.tensors)  # type: ignore[attr-defined]
    assert content(history) == expected
    assert all(expected[round, "sent"] == digest(passed[round]) for round in rounds)
    models = len(rounds) * 5 * state_bytes(start)
    assert models <= history.bytes <= models + len(rounds) * 5 * 1000
    history.check()


def test_replies_are_passed_on_one_at_a_time_and_a_broken_round_does_not_count():
    history = MemoryHistory(1)
    model = {"w": torch.ones(2)}
    made = []

    def replies():
        for client in range(3):
            made.append(client)
            yield Reply(client, tensors=model, numbers={"samples": 2.0 * (client != 1)})

    stream = recorded(replies(), history, 0, model)
    assert next(stream).client == 0
    assert made == [0]
    stream.close()
    assert list(history.rounds) == []
    assert history.bytes == 0
    assert [reply.client for reply in recorded(replies(), history, 0, model)] == [0, 1, 2]
    assert [client for client, _ in history.returned(0)] == [0, 2], "client 1 had no data behind its model"


def test_what_is_kept_cannot_be_changed_from_outside():
    history, model = MemoryHistory(1), {"w": torch.ones(2)}
    list(recorded([Reply(0, tensors=model, numbers={"samples": 1.0})], history, 0, model))
    model["w"].zero_()
    history.sent(0)["w"].zero_()
    dict(history.returned(0))[0]["w"].zero_()
    assert history.sent(0)["w"].tolist() == dict(history.returned(0))[0]["w"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("interval", [0, -1, 1.5, True])
def test_an_interval_that_makes_no_sense(interval: int):
    with pytest.raises(
        InputError, match=r"^The history's interval is .*, but it must be a whole number, 1 or larger\.$"
    ):
        MemoryHistory(interval)


# In a run folder.


class Stop(Exception):
    """An interruption of the test's own."""


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run; no test may change it."""
    return train_run(tmp_path_factory.mktemp("history") / "run", CONFIG).folder


@pytest.fixture
def own_copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_run_keeps_its_history(finished: Path, tmp_path: Path):
    history = Run(finished).history
    assert history is not None
    assert list(history.rounds) == [0, 2]
    models = ("sent", "client-000", "client-001", "client-002")
    expected = [f"round-00{r}/{name}.safetensors" for r in (0, 2) for name in models]
    assert sorted(files(finished / "history")) == sorted([*expected, "round-000.json", "round-002.json"])
    without = train_run(tmp_path / "without", replace(CONFIG, history_interval=None))
    assert without.history is None
    assert not (tmp_path / "without" / "history").exists()
    assert digest(without.load_model()) == digest(Run(finished).load_model())


@pytest.mark.real
@pytest.mark.parametrize("after", [0, 1, 3, 4, 7, 8, 9, 12])
def test_interrupted_and_resumed_the_history_is_whole(finished: Path, tmp_path: Path, after: int):
    def progress(what: str, done: int, total: int) -> None:
        if done == after:
            raise Stop

    with pytest.raises(Stop):
        train_run(tmp_path / "run", CONFIG, progress=progress)
    history = Run(tmp_path / "run").history
    assert history is not None
    history.check()
    train_run(tmp_path / "run")
    assert files(tmp_path / "run" / "history") == files(finished / "history")
    assert digest(Run(tmp_path / "run").load_model()) == digest(Run(finished).load_model())


def test_a_round_that_is_kept_but_not_done_does_not_count(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Killed after the history was written and before the round was: the round is made again."""
    save = Run.save_round

    def stop(self: Run, round: int, *rest: Any, **named: Any) -> None:
        if round == 3:
            raise Stop
        save(self, round, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save_round", stop)
        with pytest.raises(Stop):
            train_run(tmp_path / "run", CONFIG)
    assert (tmp_path / "run" / "history" / "round-002.json").exists()
    history = Run(tmp_path / "run").history
    assert history is not None
    assert list(history.rounds) == [0]
    train_run(tmp_path / "run")
    assert files(tmp_path / "run" / "history") == files(finished / "history")


def test_forgetting_from_the_folder_is_forgetting_from_memory(own_copy: Path):
    branch = forget_run(own_copy, [CLASS], "federaser")
    assert branch is not None
    result = json.loads((branch / "result.json").read_text())
    world, history = CONFIG.build_federation(CONFIG.load_dataset()), MemoryHistory(2)
    before = train(world, state_of(world.model), CONFIG.schedule, history=history)
    there = forget(world, before, CLASS, CONFIG.schedule, "federaser", history=history)
    assert digest(load_model(branch / "model.safetensors", result["sha256"])) == digest(there.state)
    kept = sum(path.stat().st_size for path in (own_copy / "history").rglob("*.safetensors"))
    assert result["cost"]["stored_bytes"] == kept


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a changed byte": (
        lambda h: flip(h / "round-002" / "client-001.safetensors"),
        r"client-001\.safetensors is damaged",
    ),
    "a changed start": (lambda h: flip(h / "round-000" / "sent.safetensors"), r"sent\.safetensors is damaged"),
    "a missing model": (lambda h: (h / "round-000" / "client-002.safetensors").unlink(), r"safetensors is missing;"),
    "a missing round": (lambda h: (h / "round-002.json").unlink(), r"^The history of round 2 is missing \("),
    "a broken note": (
        lambda h: (h / "round-002.json").write_text("{"),
        r"round-002\.json is damaged and cannot be read;",
    ),
    "a changed note": (
        lambda h: (h / "round-002.json").write_text((h / "round-002.json").read_text().replace(": 2", ": 4", 1)),
        r"round-002\.json is damaged \(its checksum",
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_history_is_refused_before_any_work(own_copy: Path, kind: str, monkeypatch: pytest.MonkeyPatch):
    damage, sentence = DAMAGES[kind]
    damage(own_copy / "history")
    monkeypatch.setattr("fedforget.federation.local.LocalFederation.ask", None)
    with pytest.raises(InputError, match=sentence):
        forget_run(own_copy, [CLASS], "federaser")
    assert not (own_copy / "forgotten").exists()


def test_a_run_without_a_history_says_how_to_get_one(tmp_path: Path):
    folder = tmp_path / "run"
    with pytest.raises(Stop):
        train_run(folder, replace(CONFIG, history_interval=None), progress=stop_after(6))
    for _ in range(2):  # unfinished, where a request would be queued; and finished
        before = files(folder)
        with pytest.raises(
            InputError, match=r"^Method 'federaser' needs the clients' models .*; train again with --hist"
        ):
            forget_run(folder, [CLASS], "federaser")
        assert files(folder) == before
        train_run(folder)


def stop_after(replies: int) -> Callable[[str, int, int], None]:
    def progress(what: str, done: int, total: int) -> None:
        if done == replies:
            raise Stop

    return progress


def test_a_request_in_the_middle_of_training_uses_the_rounds_there_are(tmp_path: Path):
    folder = tmp_path / "run"
    with pytest.raises(Stop):
        train_run(folder, CONFIG, progress=stop_after(3))
    with pytest.raises(InputError, match=r"^Method 'federaser' needs kept rounds of training, but none is done yet;"):
        forget_run(folder, [CLASS], "federaser")
    with pytest.raises(Stop):
        train_run(folder, progress=stop_after(7))
    branch = forget_run(folder, [CLASS], "federaser")
    assert branch is not None
    run = train_run(folder)
    assert run.served == (CLASS,)
    assert run.history is not None
    run.history.check()
    assert list(run.history.rounds) == [0, 2]


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def say(*words: str | Path) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["fedforget", *map(str, words)])
        capsys.readouterr()
        with suppress(SystemExit):
            main()
        return capsys.readouterr()

    small = ("--clients", "3", "--rounds", "3", "--lr", "0.05", "--batch-size", "16", "--threads", "1",
             "--train-limit", "150", "--json")  # fmt: skip
    say("train", "--out", tmp_path / "kept", "--history", *small)
    assert Run(tmp_path / "kept").config.history_interval == 2
    target = ("--client", "0", "--class", "3", "--method", "federaser")
    said = json.loads(say("forget", tmp_path / "kept", *target, "--json")[0])
    assert said["method"] == "federaser"
    assert said["cost"]["stored_bytes"] > 0
    (tmp_path / "run.toml").write_text("history_interval = 3\n")
    say("train", "--out", tmp_path / "other", "--history", "--config", tmp_path / "run.toml", *small)
    assert Run(tmp_path / "other").config.history_interval == 3
    say("train", "--out", tmp_path / "none", *small)
    error = say("forget", tmp_path / "none", *target)[1]
    assert "train again with --history" in error
    assert "Traceback" not in error
