"""examples/flower-quickstart: ten added lines, and what they do."""

from __future__ import annotations

import ast
import difflib
import importlib
import json
import logging
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.flower_examples import EXAMPLES
from flower_processes import BIN, processes
from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp.strategy import FedAvg, FedAvgM, Strategy
from in_process_grid import Change, InProcessGrid

from fedforget.flower import ClientError
from fedforget.flower.messages import TASK_TYPE

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-quickstart"
FILES = ("pyproject.toml", *(f"quickstart/{name}.py" for name in ("__init__", "client_app", "server_app", "task")))
Play = Callable[..., list[list[float]]]


def added_and_removed() -> tuple[list[str], list[str]]:
    added, removed = [], []
    for name in FILES:
        before, after = ((EXAMPLE / side / name).read_text().splitlines() for side in ("before", "after"))
        changes = [line for line in difflib.ndiff(before, after) if line[:2] in ("+ ", "- ")]
        added += [line[2:] for line in changes if line.startswith("+")]
        removed += [line[2:] for line in changes if line.startswith("-")]
    return added, removed


def by_class(text: str) -> list[list[float]]:
    """The accuracy of each class, as often as the app's log gives it."""
    return [ast.literal_eval(found) for found in re.findall(r"'accuracy_of_class': (\[[\d., ]+\])", text)]


def test_ten_lines_do_it():
    added, removed = added_and_removed()
    assert removed == []
    assert 0 < len(added) <= 10
    readme = (EXAMPLE / "README.md").read_text()
    shown = [line[1:] for line in readme.splitlines() if re.match(r"\+(?!\+\+ )", line)]
    assert shown == added, "the README shows the same lines"


def test_flowers_own_examples_need_ten_lines_and_the_page_shows_them():
    """docs/results/flower-examples.md, whose command adds them to somebody's copy of Flower's repository."""
    page = (EXAMPLE.parents[1] / "docs" / "results" / "flower-examples.md").read_text()
    for name, example in EXAMPLES.items():
        added = [line for lines in example.added.values() for line in lines.values()]
        changed = [now for lines in example.changed.values() for now in lines.values()]
        assert 0 < len(added) <= 10
        assert len(changed) <= 1
        shown = page.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert re.findall(r"^\+(?!\+\+ )(.*)", shown, re.MULTILINE) == added
        assert all(f"`{line}`" in shown for line in changed)


def test_there_are_no_other_files():
    for side in ("before", "after"):
        tracked = [p.relative_to(EXAMPLE / side).as_posix() for p in (EXAMPLE / side).rglob("*.*") if p.is_file()]
        assert {name for name in tracked if "cache" not in name} == set(FILES)


def as_it_is(number: int, reply: Message) -> list[Message]:
    return [reply]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Play:
    """Run one of the two apps in this process, and give the accuracies it logs."""
    monkeypatch.chdir(tmp_path)

    def run(side: str, strategy: Callable[..., Strategy] = FedAvg, change: Change = as_it_is, **changes: Any) -> Any:
        for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
            del sys.modules[name]
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(EXAMPLE / side))
            client, server = (importlib.import_module(f"quickstart.{end}_app") for end in ("client", "server"))
        config = tomllib.loads((EXAMPLE / side / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
        config |= changes
        monkeypatch.setattr(server, "FedAvg", strategy)
        caplog.clear()
        with caplog.at_level(logging.INFO, "flwr"):
            server.app(InProcessGrid(client.app, 4, None, config, change), Context(7, 1, {}, RecordDict(), config))
        return by_class(caplog.text)

    return run


@pytest.mark.real
def test_the_app_before(play: Play, tmp_path: Path):
    figures = play("before", **{"num-server-rounds": 2})
    assert len(figures) == 3
    assert (tmp_path / "final_model.pt").exists()


@pytest.mark.real
def test_the_app_after_forgets_and_goes_on_without_it(play: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    show_forgetting(play("after"))
    assert re.search(r"class 3 of client 0: Ended at \w+: (forgotten|exact)\.", caplog.text)
    assert (tmp_path / "node-state" / "client-000" / "node.json").exists()
    again = play("after")
    assert max(figures[3] for figures in again[1:]) < 0.1, "no later run trains on a three"


@pytest.mark.real
def test_a_servers_momentum_does_not_bring_back_what_it_forgot(play: Play):
    show_forgetting(play("after", partial(FedAvgM, server_learning_rate=0.5, server_momentum=0.5)))


@pytest.mark.real
def test_a_request_that_fails_costs_the_app_neither_its_training_nor_its_rounds(
    play: Play, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    def struck(number: int, reply: Message) -> list[Message]:
        if number == 0 and reply.metadata.message_type == TASK_TYPE:
            error = Message(Error(2, "<class 'RuntimeError'>:<'a cosmic ray'>"), reply_to=reply)
            error.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
            return [error]
        return [reply]

    with pytest.raises(ClientError, match="a cosmic ray"):
        play("after", change=struck)
    assert len(by_class(caplog.text)) == 9 + 1 + 2
    assert (tmp_path / "final_model.pt").exists()


def show_forgetting(figures: list[list[float]]) -> None:
    """8 rounds with their start, then the model without threes, then 2 rounds more."""
    assert len(figures) == 9 + 1 + 2
    before, after, *later = figures[8:]
    assert before[3] > 0.5
    for one in (after, *later):
        assert one[3] < 0.1
        others = [(now, then) for k, (now, then) in enumerate(zip(one, before, strict=True)) if k != 3]
        assert sum(now for now, _ in others) > sum(then for _, then in others) - 0.3


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["simulation", "SuperNodes"])
def test_flwr_run_of_the_app_after(tmp_path: Path, engine: str):
    with processes(tmp_path / "flower") as flower:
        words: tuple[str, ...] = ()
        if engine == "simulation":
            words = flower.start_simulation(4)
            memory = flower.folder / "node-state" / "client-000"
        else:
            flower.start_supernodes(flower.start_superlink(), 2, tmp_path / "states")
            memory = tmp_path / "states" / "0"
        run = flower.start("run", "flwr", "run", EXAMPLE / "after", "there", "--stream", *words)
        assert run.wait(timeout=1800) == 0, flower.logs()
        told = flower.log("run").read_text()
        runs = subprocess.run(
            [BIN / "flwr", "list", "there", "--format", "json"], env=flower.environment, capture_output=True, check=True
        )
        assert [one["status"] for one in json.loads(runs.stdout)["runs"]] == ["finished:completed"], flower.logs()
        assert "Traceback" not in told
        show_forgetting(by_class(told))
        assert (flower.folder / "final_model.pt").exists()
        assert (memory / "node.json").exists()
