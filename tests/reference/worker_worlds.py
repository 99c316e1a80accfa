"""The smallest real federation in a ledger: a request takes a worker about half a second."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedforget.federation.rounds import Schedule
from fedforget.ledger.book import Ledger
from fedforget.ledger.executors import LocalExecutor
from fedforget.ledger.keeper import Keeper
from fedforget.ledger.versions import Finished
from fedforget.ledger.work import Claim
from fedforget.ledger.worker import Worker
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig
from fedforget.runs.job import Job, Outcome

CONFIG = RunConfig(
    clients=3,
    model="mlp",
    schedule=Schedule(rounds=5, lr=0.05, batch_size=16, threads=1),
    train_limit=240,
)
LEAVE_IT = {"accuracy_limit": 100.0}
"""For tests that are not about the gate: models this small lose some points of accuracy by chance."""


def samples_of(client: int, first: int, count: int = 3) -> ErasureRequest:
    """Some of a client's own samples, by their place among them."""
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    ids = federation.client(client).samples.ids
    return ErasureRequest.of_samples(client, ids[first : first + count].tolist())


class Office:
    """A ledger with a key, `ann` who asks, `oscar` the officer, and federations of one trained run."""

    def __init__(self, ledger: Ledger, run: Path) -> None:
        self.ledger, self.run = ledger, run
        ledger.keys.make()
        ledger.accounts.add("ann", "requester")
        ledger.accounts.add("oscar", "officer")
        self._asked = 0

    def register(self, name: str = "digits", **settings: Any) -> None:
        values = {"method": "fedaf-c", "audit_level": "alone", **LEAVE_IT, **settings}
        self.ledger.federations.register_run(name, self.run, **values)

    def queue(self, target: ErasureRequest, federation: str = "digits", subject: str | None = None) -> str:
        """A request that waits for a worker; its id."""
        self._asked += 1
        request = self.ledger.requests.submit(
            federation, target, subject=subject or f"case-{self._asked}", ground="objection", asked_by="ann"
        ).request
        self.ledger.requests.accept(request.id, actor="oscar")
        return self.ledger.requests.queue(request.id, actor="oscar").id

    def work(self, name: str = "first", executor: Any = None, *, publish: bool = True, **how: Any) -> int:
        """One worker until nothing waits. Models this small are seldom `forgotten`: with `publish`, oscar publishes
        what the gate holds before the worker goes on."""
        return (Attended if publish else Worker)(self.ledger, name, executor, **how).run(once=True)

    def states(self, ids: Sequence[str]) -> list[str]:
        return [self.ledger.requests.get(id).state for id in ids]

    def kinds(self, id: str) -> list[str]:
        """What happened to a request, oldest first."""
        return [event.kind for event in self.ledger.trail.events(request=id, after=0, limit=500)]

    def workplace(self, number: int = 0, federation: str = "digits") -> Path:
        return self.ledger.home / "work" / federation / str(number)

    def served_once(self, ids: Sequence[str], federation: str = "digits") -> None:
        """Every one of these is done, by a version of its own, and the trail says the same."""
        ledger = self.ledger
        requests = [ledger.requests.get(id) for id in ids]
        assert {request.state for request in requests} == {"done"}
        versions = ledger.versions.of(federation)
        assert [version.number for version in versions] == list(range(1, len(ids) + 2))
        assert [version.parent for version in versions] == [None, *range(1, len(ids) + 1)]
        assert sorted(request.version or 0 for request in requests) == list(range(2, len(ids) + 2))
        for request in requests:
            kinds = self.kinds(request.id)
            assert kinds.count("done") == kinds.count("certified") == 1, kinds
            assert ledger.versions.certificate_of(request.id) is not None
        check = ledger.trail.check()
        assert check.problems == ()


class Attended(Worker):
    """With an officer beside it, who publishes at once what the gate holds."""

    def serve(self, claim: Claim, stop: threading.Event | None = None) -> Finished | None:
        finished = super().serve(claim, stop)
        if finished is None or finished.version is not None:
            return finished
        return self.ledger.versions.decide(finished.requests[0].id, True, "It is a test.", actor="oscar")


@dataclass
class Meddling(LocalExecutor):
    """Does its work as ever; at one point of it, something happens."""

    at: str
    happens: Callable[[], None]
    device: str = "cpu"
    times: int = 1
    seen: list[str] = field(default_factory=list)

    def execute(self, place: str, folder: Path, job: Job, keeper: Keeper) -> Outcome:
        return super().execute(place, folder, job, _Tapped(keeper, self))

    def reach(self, what: str) -> None:
        self.seen.append(what)
        if self.times and what.startswith(self.at):
            self.times -= 1
            self.happens()


@dataclass
class _Tapped:
    keeper: Keeper
    executor: Meddling

    def progress(self, what: str, done: int, total: int) -> None:
        self.executor.reach(what)
        self.keeper.progress(what, done, total)

    def auditing(self) -> None:
        self.keeper.auditing()
        self.executor.reach("auditing")

    def check(self) -> None:
        self.keeper.check()


def failing(error: Exception, times: int = 1000) -> Meddling:
    """An executor whose first so many jobs end with this error."""

    def fail() -> None:
        raise error

    return Meddling("auditing", fail, times=times)


class WorkerProcess:
    """`fedforget work`, as a process that can be killed."""

    COMMAND = "import torch; torch.set_num_threads(1); from fedforget.cli import main; main()"

    def __init__(self, home: Path, url: str, name: str, *words: str, log: Path) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", self.COMMAND, "work", "--home", str(home), "--ledger", url, "--name", name]
        self.log = log
        with open(log, "ab") as file:
            self.process = subprocess.Popen(
                [*command, *words], stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
            )

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> int:
        """SIGTERM, and its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)
