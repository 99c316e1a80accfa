"""kill -9 for workers at random moments, and many workers at once: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from postgres_server import PostgresServer
from worker_worlds import CONFIG, Office, WorkerProcess, samples_of

from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.ledger.book import Ledger
from fedforget.requests import ErasureRequest
from fedforget.runs.train import train_run

pytestmark = pytest.mark.slow

KILLS, TARGETS = 20, 24
LEASE = ("--lease", "1", "--poll", "0.1")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kills") / "run"
    train_run(folder, CONFIG)
    return folder


def wait_until(worker: WorkerProcess, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert worker.process.poll() is None, worker.log.read_text()
        assert time.monotonic() < deadline, worker.log.read_text()
        time.sleep(0.01)


def start(home: Path, url: str, name: str, log: Path) -> WorkerProcess:
    """A worker that is about to claim something."""
    worker = WorkerProcess(home, url, name, *LEASE, log=log)
    wait_until(worker, lambda: "serves the requests" in log.read_text())
    return worker


def test_twenty_kills(url: str, run: Path, tmp_path: Path):
    """At random moments: some steps after the worker began, and a little later. Every request ends done exactly once,
    one version each, the chain intact."""
    home, chance, met = tmp_path / "home", random.Random(20), Counter[str]()
    with Ledger.open(home, url) as ledger:
        office = Office(ledger, run)
        office.register(method="retrain")
        ids = [office.queue(samples_of(number % 3, 3 * (number // 3))) for number in range(TARGETS)]
        for kill in range(KILLS):
            begun, steps = ledger.trail.head().number, chance.randint(1, 7)
            worker = start(home, url, f"killed-{kill}", tmp_path / f"{kill}.log")
            wait_until(worker, lambda: ledger.trail.head().number >= begun + steps)  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.8))
            worker.kill()
            at_work = [state for state in office.states(ids) if state in ("forgetting", "auditing")]
            met[at_work[0] if at_work else "between two"] += 1
            assert ledger.trail.check().problems == (), f"after kill {kill}"
        left = sum(state != "done" for state in office.states(ids))
        print(f"{KILLS} kills met {dict(met)}; {left} of {TARGETS} requests were left then.")
        last = start(home, url, "last", tmp_path / "last.log")
        wait_until(last, lambda: set(office.states(ids)) == {"done"})
        assert last.end() == 0
        office.served_once(ids)
        taken_over = [event for event in ledger.trail.events(kinds=["queued"], limit=500) if "taken over" in event.body]
        assert len(taken_over) >= KILLS // 3, "the kills met workers at work"
        assert left < TARGETS, "and some requests were served in between"


def test_killed_in_a_climb_it_goes_on_at_its_rung(url: str, tmp_path: Path):
    """Killed once one rung is told of, and again within Retrain: no rung is tried a second time."""
    target, home = ErasureRequest.of_class(0, 3), tmp_path / "home"
    schedule, backdoor = replace(CONFIG.schedule, rounds=60), Backdoor(target, Trigger(2, margin=0), 7)
    # Of a network with normalisation, or what is rebuilt is exact, and the climb ends there.
    train_run(tmp_path / "run", replace(CONFIG, model="vit", schedule=schedule, backdoor=backdoor))
    with Ledger.open(home, url) as ledger:
        office = Office(ledger, tmp_path / "run")
        # No accuracy may go, so rebuilding is not enough.
        office.register(method="ladder", settings={"exact_below": 0, "lowest": "rebuild", "limit": 0.0})
        id = office.queue(target)

        def told() -> list[str]:
            return [
                json.loads(event.body)["name"] for event in ledger.trail.events(request=id, kinds=["rung"], after=0)
            ]

        first = start(home, url, "first", tmp_path / "first.log")
        wait_until(first, lambda: told() == ["rebuild"])
        first.kill()
        second = start(home, url, "second", tmp_path / "second.log")
        wait_until(second, lambda: any(office.workplace().glob("forgotten/*/unfinished.json")))
        second.kill()
        assert office.states([id]) != ["done"], "it was killed in the climb"
        last = start(home, url, "last", tmp_path / "last.log")
        wait_until(last, lambda: office.states([id]) == ["done"])
        assert last.end() == 0
        assert told() == ["rebuild", "retrain"]
        office.served_once([id])


def test_two_workers_fifty_requests(postgres: PostgresServer, run: Path, tmp_path: Path):
    """On PostgreSQL: none is lost, and none is served twice."""
    url, home = postgres.new_database(), tmp_path / "home"
    names = [f"federation-{number}" for number in range(5)]
    with Ledger.open(home, url) as ledger:
        office = Office(ledger, run)
        for name in names:
            office.register(name, method="retrain")
        targets = [samples_of(number % 3, 3 * (number // 3)) for number in range(10)]
        ids: dict[str, list[str]] = {name: [] for name in names}
        for target in targets:
            for name in names:
                ids[name].append(office.queue(target, name))
        began = time.monotonic()
        workers = [WorkerProcess(home, url, name, "--once", log=tmp_path / f"{name}.log") for name in ("a", "b")]
        for worker in workers:
            assert worker.process.wait(timeout=280) == 0, worker.log.read_text()
        print(f"50 requests in {time.monotonic() - began:.0f} s.")
        for name in names:
            office.served_once(ids[name], name)
        served = [ledger.requests.get(id).worker for name in names for id in ids[name]]
        assert {*served} == {"a", "b"}, "both had their share"
        assert all(ledger.requests.get(id).attempts == 1 for name in names for id in ids[name])
    postgres.drop(url)


def test_a_crowd_of_workers_on_one_sqlite(run: Path, tmp_path: Path):
    """Three processes that write to one file: they wait for each other, and nobody fails."""
    home, url = tmp_path / "home", f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite'}"
    names = [f"federation-{number}" for number in range(3)]
    with Ledger.open(home, url) as ledger:
        office = Office(ledger, run)
        for name in names:
            office.register(name, method="retrain")
        targets = [samples_of(number, 0) for number in range(3)]
        ids = {name: [office.queue(target, name) for target in targets] for name in names}
        workers = [WorkerProcess(home, url, name, "--once", log=tmp_path / f"{name}.log") for name in "abc"]
        for worker in workers:
            assert worker.process.wait(timeout=280) == 0, worker.log.read_text()
            assert "does not answer" not in worker.log.read_text()
        for name in names:
            office.served_once(ids[name], name)
        assert all(ledger.requests.get(id).attempts == 1 for name in names for id in ids[name])


def test_five_hundred_requests_two_workers_twenty_kills(url: str, run: Path, tmp_path: Path):
    """Nothing lost and nothing twice, with two workers at two federations that each serve many requests in one go."""
    home, chance, each = tmp_path / "home", random.Random(500), 250
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    held = {client: federation.client(client).samples.ids.tolist() for client in federation.clients}
    with Ledger.open(home, url) as ledger:
        office, ids = Office(ledger, run), []
        for name in ("left", "right"):
            office.register(name, method="retrain", together=25)
            for number in range(each):  # some targets are asked for twice, by two subjects
                one = ErasureRequest.of_samples(number % 3, [held[number % 3][number // 3 % 50]])
                ids.append(office.queue(one, name))
        workers = [start(home, url, name, tmp_path / f"{name}.log") for name in ("a", "b")]
        for kill in range(KILLS):
            begun, place = ledger.trail.head().number, kill % 2
            deadline = time.monotonic() + chance.uniform(0.2, 6.0)
            while ledger.trail.head().number == begun and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, 0.5))
            workers[place].kill()
            workers[place] = start(home, url, f"after-{kill}", tmp_path / f"after-{kill}.log")
        left = sum(state != "done" for state in office.states(ids))
        wait_until(workers[0], lambda: set(office.states(ids)) == {"done"})
        assert [worker.end() for worker in workers] == [0, 0]
        taken = ledger.trail.events(kinds=["queued"], limit=500)
        print(f"{KILLS} kills; {left} of {len(ids)} were left after the last one; "
              f"{sum('taken over' in event.body for event in taken)} were taken over.")  # fmt: skip
        for id in ids:
            kinds = office.kinds(id)
            assert kinds.count("done") == kinds.count("certified") == 1, kinds
            assert ledger.versions.certificate_of(id) is not None
        numbers = {name: {v.number for v in ledger.versions.of(name)} - {1} for name in ("left", "right")}
        requests = [ledger.requests.get(id) for id in ids]
        for name, versions in numbers.items():
            assert {r.version for r in requests if r.federation == name} == versions, "each version served somebody"
        assert ledger.trail.check().problems == ()
