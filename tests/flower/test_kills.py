"""Machines that lose their power, and a node that sends NaN: nothing is lost, nothing is half-applied, and the run says
what happened.

Each story is a deployment of its own with TLS and node keys, and most of it is waiting: Flower takes up to a minute to
notice that a node is dead. So they run side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flower_deployments import FragileDeployment, fragile_deployment
from flower_runs import digests_of, in_process, make_app

from fedforget.data.partition import partition
from fedforget.federation.aggregation import average
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import train
from fedforget.flower import APP
from fedforget.flower.app.settings import AppSettings
from fedforget.methods import forget
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.audit import audit_run
from fedforget.runs.folder import Run
from fedforget.runs.store import read_sealed

pytestmark = pytest.mark.slow

REQUEST = ErasureRequest.of_class(0, 3)
WENT_AWAY = "went away: its node no longer gives Flower a sign of life."
LOST_TARGET = re.compile(rf"ClientError: Client 0 ({WENT_AWAY}|is not connected\.)")
"""The second where Flower has noticed before the next task is sent."""


def run_config(folder: Path, sites: int, **more: Any) -> dict[str, Any]:
    """One round, and the request of client 0."""
    return {
        "clients": sites, "rounds": 1, "lr": 0.05, "batch-size": 16, "threads": 1, "train-limit": 60 * sites,
        "request-client": 0, "request-class": 3, "method": "overwrite", "out": str(folder / "server" / "run"), **more,
    }  # fmt: skip


def model_of(config: dict[str, Any]) -> str:
    """The digest of the run's own model."""
    return digest(Run(config["out"]).load_model())


def results_in(config: dict[str, Any]) -> list[str]:
    """Every file of a model that forgot, or of an attempt at one."""
    return sorted(path.name for path in Path(config["out"]).glob("forgotten/*/*"))


def finished(here: FragileDeployment, config: dict[str, Any], app: Path = APP) -> dict[str, Any]:
    """`flwr run` to a good end; its summary."""
    printed, summary = here.run(config, app), Path(config["out"]) / "summary.json"
    assert summary.exists(), printed
    return json.loads(summary.read_text())


def withdrawn_by(number: int, here: FragileDeployment) -> list[dict[str, Any]]:
    path = here.state_dir(number) / "node.json"
    return read_sealed(path)["withdrawn"] if path.exists() else []


def nodes_die(folder: Path) -> None:
    """A node in the middle of a round, the target before forgetting, and the target in the middle of it."""
    config = run_config(folder, 3)
    with fragile_deployment(folder, 3) as here:
        run = here.begin(config)
        here.wait_until(lambda: here.received(2) == 2, "client 2 was asked who it is, and trains")
        here.power_cut("site-2")
        here.wait_until(lambda: here.answered(0) == 2, "client 0 has trained")
        here.power_cut("site-0")
        printed = run.end()
        assert f"Client 2 {WENT_AWAY} The round went on without it." in printed, printed
        assert LOST_TARGET.search(printed), printed
        assert Run(config["out"]).finished
        trained = model_of(config)
        assert results_in(config) == []
        assert withdrawn_by(0, here) == []

        here.start_site(0)
        here.start_site(2)
        run = here.begin(config)
        here.wait_until(lambda: any(here.state_dir(0).glob("kept-*.json")), "client 0 forgets", look_every_s=0.01)
        here.power_cut("site-0")
        printed = run.end()
        assert LOST_TARGET.search(printed), printed
        assert model_of(config) == trained
        assert results_in(config) == []
        assert withdrawn_by(0, here) == [REQUEST.to_json()]

        here.start_site(0)
        told = finished(here, config)

    settings = AppSettings.read(config)
    federation = settings.run.build_federation(settings.run.load_dataset())
    first_round = settings.run.schedule.train_task(0)
    expected = average(federation.ask(first_round, state_of(federation.model), [0, 1]))
    assert told["trained"] == trained == digest(expected)
    forgot = forget(federation, expected, REQUEST, settings.run.schedule, "overwrite")
    assert told["forgotten"]["overwrite:default"]["digest"] == digest(forgot.state) == model_of(config)
    assert told["forgotten"]["overwrite:default"]["notes"] == []


def the_superlink_dies(folder: Path) -> None:
    """Alone, in the middle of a round: the run goes on. With the executor, in the middle of forgetting: the same
    command goes on."""
    config = run_config(folder, 2, method="sga")
    with fragile_deployment(folder, 2, executor=True) as here:
        run = here.begin(config)
        here.wait_until(lambda: here.received(1) == 2, "client 1 trains")
        here.power_cut("server")
        here.start_server()
        here.wait_until(lambda: withdrawn_by(0, here) != [], "client 0 has withdrawn")
        here.power_cut("server")
        here.power_cut("executor")
        assert "Connection to the SuperLink is unavailable" in run.end()
        assert Run(config["out"]).finished, "the round did not need the SuperLink that began it"
        trained = model_of(config)
        assert results_in(config) == []

        here.start_server()
        here.start_executor()
        told = finished(here, config)
        assert told["trained"] == trained
    assert digests_of(told) == in_process(folder / "local", config)


def the_target_sends_nan_and_comes_back(folder: Path) -> None:
    """A NaN in a round of training and one in forgetting stop the run. Then the request is served, its node is killed
    and started again: what it withdrew stays out of a later run."""
    config = run_config(folder, 2, method="sga")
    later = run_config(folder, 2, out=str(folder / "server" / "later"))
    later |= {"request-client": -1, "request-class": -1}
    with fragile_deployment(folder, 2) as here:
        app = make_app(folder / "app", "faulty_flower_app", "client_app")
        untrained = spoiled(here, config, app, 1, "Train")
        assert not Run(config["out"]).finished
        assert results_in(config) == []
        trained = spoiled(here, config, app, 0, "Ascend")
        assert Run(config["out"]).finished
        assert results_in(config) == ["result.json"], "it says why there is no model"

        told = finished(here, config, app)
        assert told["trained"] == trained

        here.power_cut("site-0")
        here.start_site(0)
        trained_later = finished(here, later)["trained"]

    assert digests_of(told) == in_process(folder / "local", config)
    settings = AppSettings.read(later)
    dataset, schedule = settings.run.load_dataset(), settings.run.schedule
    model = settings.run.build_model(dataset)
    assert untrained == digest(state_of(model))
    parts = partition(settings.run.partition, dataset.train.labels, 2, schedule.seed)
    without_it = LocalFederation(dataset, parts, model, erased=[REQUEST])
    assert trained_later == digest(train(without_it, state_of(model), schedule)) != trained


def everything_restarts_before_later_rounds(folder: Path) -> None:
    """After a request that must last, every machine loses its power. The later rounds of the audit are those of a
    federation that never stopped: what is guarded in them, the list of what was withdrawn, is on the nodes' disks."""
    config = run_config(folder, 2, audit=False)
    with fragile_deployment(folder, 2) as here:
        told = finished(here, config)
        forgot = model_of(config)
        for machine in ("site-0", "site-1", "server"):
            here.power_cut(machine)
        here.start_server()
        for number in range(2):
            here.start_site(number)
        audited = finished(here, config | {"audit": True})
        assert withdrawn_by(0, here) == [REQUEST.to_json()]
    assert digests_of(told) == in_process(folder / "local", config)
    assert audited["trained"] == model_of(config) == forgot, "the run's own model is the one that forgot, as before"
    never_stopped = audit_run(folder / "local", [REQUEST]).to_json()["rows"]
    assert [row["method"] for row in audited["audit"]] == [row["method"] for row in never_stopped]
    for here_row, there_row in zip(audited["audit"], never_stopped, strict=True):
        for figure in ("test_acc", "bd_acc", "retained_acc", "after_one_round"):
            assert here_row[figure] == there_row[figure], (here_row["method"], figure)


def spoiled(here: FragileDeployment, config: dict[str, Any], app: Path, number: int, task: str) -> str:
    """A run in which one client's reply to one kind of task has a NaN in it; the digest of the model that is left."""
    note = here.state_dir(number) / "nan"
    note.parent.mkdir(exist_ok=True)
    note.write_text(task)
    printed = here.run(config, app)
    assert f"DivergedError: {task} at client {number} diverged: its '0.weight' is not finite." in printed, printed
    note.unlink()
    return model_of(config)


Story = Callable[[Path], None]
STORIES: tuple[Story, ...] = (
    nodes_die,
    the_superlink_dies,
    the_target_sends_nan_and_comes_back,
    everything_restarts_before_later_rounds,
)


@pytest.fixture(scope="module")
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Story, Future[None]]]:
    """The stories of the tests that were chosen, side by side."""
    chosen = {item.callspec.params["story"] for item in request.session.items if "told" in item.fixturenames}
    with ThreadPoolExecutor(len(STORIES)) as pool:
        yield {
            story: pool.submit(story, tmp_path_factory.mktemp(story.__name__)) for story in STORIES if story in chosen
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_fault(told: dict[Story, Future[None]], story: Story):
    told[story].result()
