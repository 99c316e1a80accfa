"""A request to a running attached app, from the command line and from the console, to a certificate."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from console_visits import Program
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg
from ledger_commands import Command
from ledger_worlds import World
from own_flower_app import TRAINING, load_data, own_app, own_grid, site
from small_worlds import network
from torch.utils.data import DataLoader, TensorDataset

from fedforget.flower.strategy import Forget
from fedforget.ledger.certificate import read_certificate
from fedforget.ledger.states import Role
from fedforget.ledger.worker import Worker
from fedforget.runs.attached import AttachedRun

Each = Callable[[int], None]


def until(happened: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running_app(folder: Path, rounds: int, each: Each) -> Forget:
    """An app that trains; `each` is called after every round, as what other people do meanwhile."""

    def load(context: Any) -> tuple[DataLoader[Any], DataLoader[Any]]:
        return load_data(context), DataLoader(TensorDataset(*site(int(context.node_config["partition-id"]))))

    def evaluate(number: int, _: ArrayRecord) -> None:
        each(number)

    random.seed(0)
    strategy = Forget(FedAvg(min_available_nodes=4), network, folder=folder, **TRAINING)
    grid = own_grid(folder.parent / "nodes", own_app(load))
    strategy.start(grid, ArrayRecord(network().state_dict()), num_rounds=rounds, evaluate_fn=evaluate)
    return strategy


@pytest.mark.real
def test_a_request_to_a_running_app_ends_in_a_certificate(
    tmp_path: Path, world: World, program: Program, monkeypatch: pytest.MonkeyPatch
):
    folder, fedforget = tmp_path / "app", Command(world, monkeypatch)
    world.clock.go_on(seconds=(datetime.now(UTC) - world.ledger.clock()).total_seconds() + 600)  # commands have another
    ann, oscar = program(Role.REQUESTER), program(Role.OFFICER)
    monkeypatch.setenv("FEDFORGET_TOKEN", oscar.headers["authorization"].removeprefix("Bearer "))
    ids: dict[str, str] = {}
    workers: list[threading.Thread] = []

    def worker_asks() -> None:
        work = threading.Thread(target=Worker(world.ledger, federation="app").run, kwargs={"once": True})
        work.start()
        workers.append(work)
        until(AttachedRun(folder).run.queued)

    def each(number: int) -> None:
        if number == 1:
            fedforget("ledger", "register", "app", folder, "--exact-below", 1e9, "--audit-level", "alone",
                      "--accuracy-limit", 100)  # fmt: skip
            words = ("--federation", "app", "--client", 0, "--class", 2, "--subject", "c-1", "--ground", "objection")
            ids["terminal"] = fedforget.json("request", "submit", *words)["id"]
            fedforget("request", "accept", ids["terminal"])
            worker_asks()
        if number == 2:
            until(lambda: world.ledger.requests.get(ids["terminal"]).state in ("done", "deciding", "failed"))
            asked = {"federation": "app", "client": 1, "target": {"kind": "class", "label": 1}}
            made = ann.post("/api/v1/requests", json={**asked, "subject": "c-2", "ground": "objection"})
            ids["console"] = made.json()["id"]
            assert oscar.post(f"/api/v1/requests/{ids['console']}/accept").json()["state"] == "queued"
            worker_asks()

    strategy = running_app(folder, 3, each)
    for work in workers:
        work.join(timeout=120)
    assert [[rung.name for rung in made.rungs] for made in strategy.served] == [["retrain"], ["retrain"]]  # type: ignore[attr-defined]
    for id in ids.values():
        request = world.ledger.requests.get(id)
        assert request.state == "done", request.reason
        certificate = world.ledger.versions.certificate_of(id)
        assert certificate is not None
        assert read_certificate(certificate.content)
    versions = world.ledger.versions.of("app")
    assert [(version.number, version.verdict) for version in versions] == [(1, None), (2, "exact"), (3, "exact")]
    known = ann.get(f"/api/v1/requests/{ids['console']}/evidence").json()
    assert known["verdict"]["word"] == "exact"
    assert "The app had trained on since the version before" in " ".join(known["notes"])
