"""Requests to an attached app that is running: its folder is the inbox, and the record of what came of each."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, Context
from flwr.serverapp.strategy import FedAvg, Result
from in_process_command import Command, in_process_command
from in_process_grid import InProcessGrid
from own_flower_app import QUICK, own_app, own_grid
from small_worlds import network
from test_attached_ladder import with_test_data

from fedforget.audit.check import Check
from fedforget.audit.check import check as real_check
from fedforget.cli.app import main
from fedforget.errors import InputError
from fedforget.flower.node_store import NodeStore
from fedforget.flower.strategy import Forget
from fedforget.params import digest
from fedforget.requests import ErasureRequest, requests_id
from fedforget.runs.attached import AttachedRun
from fedforget.runs.audit import audit_run
from fedforget.runs.climb import Climb
from fedforget.runs.record import Result as Record

TWOS, ONES = ErasureRequest.of_class(0, 2), ErasureRequest.of_class(1, 1)


def app_of(folder: Path, **more: Any) -> Forget:
    return Forget(FedAvg(min_available_nodes=4), network, folder=folder, **{**QUICK, "timeout_s": 60.0, **more})


def sites(folder: Path) -> InProcessGrid:
    return own_grid(folder / "nodes", own_app(with_test_data))


def start(
    strategy: Forget,
    grid: InProcessGrid,
    rounds: int,
    each: Callable[[int], object] = lambda _: None,
    begin: ArrayRecord | None = None,
) -> Result:
    """The app's rounds; `each` is called after every one of them, as something else that happens meanwhile."""
    random.seed(0)

    def evaluate(number: int, _: ArrayRecord) -> None:
        each(number)

    return strategy.start(grid, begin or ArrayRecord(network().state_dict()), num_rounds=rounds, evaluate_fn=evaluate)


@pytest.fixture
def fedforget(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return in_process_command(main, capsys, monkeypatch)


Ask = Callable[..., str]


@pytest.fixture
def ask(fedforget: Command) -> Ask:
    """As a person does it, from another terminal."""

    def asking(folder: Path, client: int, label: int, *words: str) -> str:
        done = fedforget("forget", folder, "--client", str(client), "--class", str(label), *words)
        assert done.code == 0, done.err
        return done.out

    return asking


def test_a_request_to_a_running_app_is_served_before_its_next_round(tmp_path: Path, ask: Ask):
    folder, told, strategy = tmp_path / "app", list[str](), app_of(tmp_path / "app")

    def each(number: int) -> None:
        if number == 4:
            told.append(ask(folder, 0, 2, "--effort", "retrain"))
        if number == 5:
            assert AttachedRun(folder).answered([TWOS])["state"] == "served"

    result = start(strategy, sites(tmp_path), 6, each)
    assert "The request is queued. The app serves it before its next round" in " ".join(told[0].split())
    twos = [metrics["twos"] > 0 for metrics in result.train_metrics_clientapp.values()]
    assert twos == [True] * 4 + [False] * 2
    app = AttachedRun(folder)
    answer = app.answered([TWOS])
    assert (answer["word"], app.run.queued(), app.run.served) == ("exact", [], (TWOS,))
    record = Record.read(folder / answer["folder"])
    assert digest(record.load_model(folder / answer["folder"])) == digest(strategy.served[0].state)
    assert digest(app.run.load_trunk(record.before)) != digest(strategy.served[0].state)
    assert [rung.name for rung in record.rungs] == ["retrain"]


def test_what_comes_in_the_last_round_is_served_at_the_end(tmp_path: Path, ask: Ask):
    folder = tmp_path / "app"
    strategy = app_of(folder)
    result = start(strategy, sites(tmp_path), 2, lambda number: number == 2 and ask(folder, 0, 2))
    assert AttachedRun(folder).answered([TWOS])["state"] == "served"
    assert digest(dict(result.arrays.to_torch_state_dict())) == digest(strategy.served[0].state)


def test_one_that_cannot_be_served_costs_no_other(tmp_path: Path, ask: Ask):
    """A class that is not there is refused for good; a client that is away is asked again in the next round."""
    folder, grid = tmp_path / "app", sites(tmp_path)
    states = []

    def each(number: int) -> None:
        app = AttachedRun(folder)
        if number == 1:
            ask(folder, 0, 2, "--effort", "retrain")
            ask(folder, 1, 2)
            ask(folder, 1, 1)
            grid.gone.add(1)
        states.append([app.answered([one]).get("state") for one in (TWOS, ErasureRequest.of_class(1, 2), ONES)])
        if number == 2:
            grid.gone.clear()

    strategy = app_of(folder, join_timeout_s=0.05)
    strategy.strategy.min_available_nodes = 3  # type: ignore[attr-defined]
    start(strategy, grid, 3, each)
    assert states[2] == ["served", "waiting", "waiting"]
    assert states[3] == ["served", "refused", "served"]
    refused = AttachedRun(folder).answered([ErasureRequest.of_class(1, 2)])
    assert refused["reason"] == "Client 1 holds no sample of class 2; it holds classes 0, 1."
    assert AttachedRun(folder).run.served == (TWOS, ONES)


@pytest.mark.parametrize("trouble", ["approval", "disk"])
def test_what_may_be_otherwise_later_waits(tmp_path: Path, ask: Ask, trouble: str):
    """For the node's operator, or until an app that broke down does so no more."""
    folder, failing = tmp_path / "app", list[bool]()

    def data(context: Context) -> Any:
        if failing and context.node_config["partition-id"] == 0:
            raise OSError("No space left on device")
        return with_test_data(context)

    configs: list[dict[str, Any]] = [{"approval": trouble == "approval"}, {}, {}, {}]
    grid = InProcessGrid(own_app(data), 4, tmp_path / "nodes", node_configs=configs)
    states = []

    def each(number: int) -> None:
        if number == 1:
            ask(folder, 0, 2, "--effort", "retrain")
            failing.extend([True] * (trouble == "disk"))
        states.append(AttachedRun(folder).answered([TWOS]).get("state"))
        if number == 2:
            failing.clear()
            if trouble == "approval":
                NodeStore(tmp_path / "nodes" / "site-0", 0).approve(requests_id([TWOS]))

    strategy = app_of(folder, join_timeout_s=0.05)
    strategy.strategy.min_available_nodes = 3  # type: ignore[attr-defined]
    start(strategy, grid, 3, each)
    assert states[2:] == ["waiting", "served"]


def test_a_run_to_come_knows_what_was_forgotten_before_it(tmp_path: Path, ask: Ask, fedforget: Command):
    folder = tmp_path / "app"
    first = app_of(folder)
    first.request(partition=0, label=2)
    result = start(first, sites(tmp_path), 2)
    ask(folder, 1, 1)
    second = app_of(folder)
    start(second, sites(tmp_path), 1, begin=result.arrays)
    assert AttachedRun(folder).run.served == (TWOS, ONES)
    before = Record.read(folder / AttachedRun(folder).answered([ONES])["folder"]).before
    assert before.served == (TWOS,)
    done = fedforget("forget", folder, "--client", "0", "--class", "2")
    assert done.code == 2
    assert "has forgotten class 2 of client 0 already" in " ".join(done.err.split())


@pytest.mark.parametrize("word", ["harmful", "not forgotten"])
def test_a_request_that_ended_with_the_target_in_the_model_can_be_made_again(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, word: str
):
    def pessimist(*words: Any, **more: Any) -> Check:
        return replace(real_check(*words, **more), word=word)  # type: ignore[arg-type]

    monkeypatch.setattr("fedforget.runs.reference.check", pessimist)
    folder, states, words = tmp_path / "app", list[bool](), list[str]()

    def each(number: int) -> None:
        app = AttachedRun(folder)
        words.append(app.answered([TWOS]).get("word", ""))
        states.append(TWOS in app.run.served)
        if number == 1:
            ask(folder, 0, 2, "--effort", "rebuild")
        if number == 2:
            ask(folder, 0, 2, "--effort", "retrain")

    start(app_of(folder), sites(tmp_path), 3, each)
    assert words[2:] == [word, "exact"]
    assert states[2:] == [False, True]


def test_a_retraining_is_not_exact_where_a_node_lost_what_was_withdrawn_before(tmp_path: Path):
    """The app's own rounds leave out what the nodes remember, and nothing else."""
    strategy = app_of(tmp_path / "app")
    strategy.request(partition=0, label=2, method="retrain")
    result = start(strategy, sites(tmp_path), 1)
    NodeStore(tmp_path / "nodes" / "site-0", 0).undo(requests_id([TWOS]), anyway=True)
    later = app_of(tmp_path / "app")
    later.request(partition=1, label=1, method="retrain")
    start(later, sites(tmp_path), 1, begin=result.arrays)
    first, second = strategy.served[0], later.served[0]
    assert isinstance(first, Climb)
    assert isinstance(second, Climb)
    assert (first.word, second.word) == ("exact", "not enough evidence")
    assert second.rungs[-1].reason.startswith("Client 0's node no longer leaves out all that was withdrawn there")


class Kill(BaseException):
    """An end that nothing catches."""


def test_an_app_that_begins_with_what_had_seen_the_target_forgets_it_again(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
):
    """Killed after the record was written and before the answer: the app's own newest checkpoint is of before."""
    folder = tmp_path / "app"
    with monkeypatch.context() as killing:

        def kill(*_: object) -> None:
            raise Kill

        killing.setattr(AttachedRun, "answer_served", kill)
        first = app_of(folder)

        def each(number: int) -> None:
            if number == 2:
                ask(folder, 0, 2, "--effort", "retrain")

        with pytest.raises(Kill):
            start(first, sites(tmp_path), 4, each)
    before = AttachedRun(folder).run.load_trunk(Record.read(next(folder.glob("forgotten/*"))).before)
    for _ in range(2):  # and once more, when the request was answered
        again = app_of(folder)
        result = start(again, sites(tmp_path), 1, begin=ArrayRecord(before))
        assert [made.requests for made in again.served] == [(TWOS,)]
        assert AttachedRun(folder).run.served == (TWOS,)
        assert AttachedRun(folder).answered([TWOS])["state"] == "served"
        later = app_of(folder)
        start(later, sites(tmp_path), 1, begin=result.arrays)
        assert later.served == []


def test_a_damaged_request_is_answered_and_taken_away(tmp_path: Path):
    folder = tmp_path / "app"

    def each(number: int) -> None:
        if number == 0:
            (folder / "queue").mkdir()
            (folder / "queue" / "odd.json").write_text("{")

    start(app_of(folder), sites(tmp_path), 1, each)
    assert '"refused"' in (folder / "answers" / "odd.json").read_text()
    assert not (folder / "queue" / "odd.json").exists()


def test_what_needs_the_data_is_refused_here(tmp_path: Path, fedforget: Command):
    folder = tmp_path / "app"
    start(app_of(folder), sites(tmp_path), 1)
    with pytest.raises(InputError, match=r"^This is the folder of an attached app: its data lie at its nodes, so"):
        audit_run(folder)
    done = fedforget("audit", folder)
    assert done.code == 2
    assert "so nothing can be trained, measured or audited from here." in " ".join(done.err.split())


def test_an_inbox_needs_to_know_how_long_the_app_trains(tmp_path: Path):
    with pytest.raises(InputError, match="say how many the app trains"):
        Forget(FedAvg(), network, folder=tmp_path)
