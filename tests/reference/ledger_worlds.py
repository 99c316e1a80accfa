"""A small ledger with people and a federation in it, a clock that tests turn, and a worker that computes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from argon2 import PasswordHasher
from sqlalchemy import Connection, create_engine, text, update

from fedforget.audit.check import Check, Measured
from fedforget.audit.evidence import evidence_record, write_evidence
from fedforget.audit.verdict import Evidence, Reading, conclude
from fedforget.federation.cost import Cost
from fedforget.ledger import accounts, triggers
from fedforget.ledger.book import Ledger
from fedforget.ledger.clock import Jumps
from fedforget.ledger.core import Core
from fedforget.ledger.federations import describe
from fedforget.ledger.recorded import recorded
from fedforget.ledger.results import Handover
from fedforget.ledger.schema import Federation, Request, Version
from fedforget.ledger.versions import Finished
from fedforget.ledger.work import Claim
from fedforget.methods import method_settings
from fedforget.params import State
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import Rung
from fedforget.runs.folder import Trunk
from fedforget.runs.record import Result
from fedforget.runs.store import load_model

DESCRIPTION = describe(["zero", "one", "two"], {0: [5, 5, 0], 1: [3, 4, 9], 2: [1, 1, 1]}, [6])
READINGS = [
    Evidence("accuracy", "high", Reading(0.6, 0.2), Reading(66.0, 1.2), tuple(Reading(v, 0.2) for v in (0.4, 0.7))),
    Evidence("loss", "low", Reading(2.0, 0.1), Reading(0.1, 0.1), tuple(Reading(v, 0.1) for v in (2.1, 1.9)), False),
]
"""They say: forgotten."""
SAYING = {
    "forgotten": READINGS,
    "exact": READINGS,
    "not forgotten": [replace(READINGS[0], subject=Reading(60.0, 0.2)), READINGS[1]],
    "over-forgotten": [replace(READINGS[0], subject=Reading(-40.0, 0.2)), READINGS[1]],
    "not enough evidence": [replace(READINGS[0], subject=None), READINGS[1]],
}
"""Readings by the verdict that follows from them; an exact model may have any."""


class Ticking:
    """A clock that stands at a day in January, a microsecond later at every look, and goes on when told."""

    def __init__(self, now: datetime = datetime(2026, 1, 31, 12, tzinfo=UTC)) -> None:
        self.now = now

    def __call__(self) -> datetime:
        self.now += timedelta(microseconds=1)
        return self.now

    def go_on(self, **time: float) -> None:
        self.now += timedelta(**time)


@dataclass(frozen=True)
class _Kept:
    """The files of a home, each with who may read it, and what the clock said when they were made."""

    files: dict[Path, tuple[bytes, int]]
    now: datetime


@cache
def _made(furnished: bool) -> _Kept:
    clock = Ticking()
    with TemporaryDirectory() as folder:
        home = Path(folder)
        with Ledger.open(home, clock=clock) as ledger:
            if furnished:
                World(ledger, clock)
        files = [path for path in home.rglob("*") if path.is_file()]
        return _Kept({f.relative_to(home): (f.read_bytes(), f.stat().st_mode) for f in files}, clock.now)


def begin_in_sqlite(home: Path, clock: Ticking, *, furnished: bool) -> None:
    """A new ledger in a new home, with or without a `World` in it. Made once and copied: the migrations take longer
    than most tests."""
    made = _made(furnished)
    clock.now = made.now
    home.mkdir(mode=0o700)
    for name, (content, mode) in made.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        (home / name).write_bytes(content)
        (home / name).chmod(mode)


def write_evidence_of(model: str, file: Path, *, says: str = "forgotten") -> Path:
    """An evidence file that speaks of this model, with this verdict."""
    readings, exact = SAYING[says], says == "exact"
    made: dict[str, Any] = {"exact": True} if exact else {}
    record = evidence_record(
        request={"requests": [], "samples": 12},
        run={"dataset": "digits"},
        models={"subject": {"file": "model.safetensors", "sha256": model, **made}},
        readings=readings,
        verdict=conclude(readings, with_oracle=True, exact=exact),
        pictures={},
        level="quick",
    )
    write_evidence(file, record)
    return file


def rung(name: str, word: str, seconds: float = 2.0) -> Rung:
    """A rung that was tried."""
    cost = Cost({"clients": seconds}, gradient_evaluations=100.0 * seconds)
    reason, sees = f"The check of {name} says so.", Measured("gap", 0.25, 0.02, 0.12, "accuses")
    found = None if word == "exact" else Check(word, reason, ("gap",), (sees,), -0.01)  # type: ignore[arg-type]
    return Rung(name, 0.25, cost, word, reason, found, ("A note.",), model="d" * 64)


class World:
    """`ann` asks, `oscar` is the officer; a federation `digits` of three clients."""

    def __init__(self, ledger: Ledger, clock: Ticking) -> None:
        self.ledger, self.clock = ledger, clock
        self._asked = 0
        if not ledger.keys.all():  # or it is a copy, and everything is there
            ledger.keys.make()
            ledger.accounts.add("ann", "requester")
            ledger.accounts.add("oscar", "officer")
            self.register("digits")

    def register(self, name: str, **settings: Any) -> None:
        weights = {"w": torch.full((3,), float(sum(map(ord, name))))}
        self.ledger.federations.register(name, "local", "/nowhere", DESCRIPTION, weights, **settings)

    def ask(
        self, target: ErasureRequest | None = None, federation: str = "digits", subject: str | None = None
    ) -> Request:
        """A request that is received."""
        self._asked += 1
        return self.ledger.requests.submit(
            federation, target or ErasureRequest.of_class(0, 1), subject=subject or f"case-{self._asked}",
            ground="objection", asked_by="ann",
        ).request  # fmt: skip

    def queued(self, **how: Any) -> Request:
        """A request that waits for a worker."""
        request = self.ask(**how)
        self.ledger.requests.accept(request.id, actor="oscar")
        return self.ledger.requests.queue(request.id, actor="oscar")

    def claim(self, worker: str = "first", **how: Any) -> Claim:
        claim = self.ledger.work.claim(worker, **how)
        assert claim is not None
        return claim

    def result(
        self,
        claim: Claim,
        *,
        says: str = "forgotten",
        fell: float | None = 0.0,
        cost: Cost | None = None,
        rungs: Sequence[Rung] = (),
        **more: Any,
    ) -> Handover:
        """What a worker would have computed: the same bits whoever does it."""
        number = claim.parent.number + int(claim.requests[0].id[:6], 16)
        model = self.ledger.models.store({"w": torch.full((3,), float(number))})
        file = self.ledger.home / f"{model[:12]}.json"
        evidence = write_evidence_of(model, file, says=says)
        after = None if fell is None else 90.0 - fell
        made = Result("ladder", "default", (), Trunk("", ""), model, settings={"epochs": 1}, cost=cost or Cost())
        if rungs:
            made = replace(made, rungs=tuple(rungs), retrain={"gradient_evaluations": 5000.0, "seconds": 90.0})
        return Handover(made, evidence, 90.0, after, **more)

    def serve(self, worker: str = "first", **how: Any) -> Finished:
        """Claim and finish the next thing."""
        claim = self.claim(worker)
        self.ledger.work.start_audit(claim)
        return self.ledger.versions.finish(claim, self.result(claim, **how))

    def destroy(self) -> list[Version]:
        """Two looks, a day apart: what is over is announced, and gone a day later."""
        self.ledger.destruction.destroy_superseded()
        self.clock.go_on(days=1)
        return self.ledger.destruction.destroy_superseded()

    def begun_anew(self) -> None:
        """As in a program that is begun now: it does not know what the clock said before."""
        self.ledger.lineage._jumps = Jumps(self.clock)

    def served(self, **how: Any) -> Request:
        """A request that is done."""
        request = self.queued(**how)
        self.serve()
        return self.ledger.requests.get(request.id)


def change_federation(ledger: Ledger, name: str, *, actor: str = "oscar", **values: Any) -> Federation:
    """Serve it in another way from now on, with the event that says so."""
    if "method" in values:
        values = {"preset": method_settings(values["method"], None)[0], "settings": {}, **values}
    with ledger.database.writing() as session:
        query = update(Federation).where(Federation.name == name).values(values).returning(Federation)
        changed = session.scalars(query).one()
        said = {"federation": name, **values, **recorded("federation", changed)}
        Core(ledger.home, ledger.database, ledger.clock).append(session, actor, "federation changed", said)
        return changed


def weights(ledger: Ledger, sha256: str) -> State:
    """The model that the ledger has under this hash."""
    return load_model(ledger.models.path(sha256), sha256)


@contextmanager
def stranger(ledger: Ledger) -> Iterator[Connection]:
    """A connection of somebody else's program: none of our settings, all of the database's own rules."""
    engine = create_engine(ledger.database.url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def change(ledger: Ledger, statement: str, **values: Any) -> None:
    """Do what the rules forbid, as who owns the database can: take them away, change it, put them back."""
    with ledger.database.changing_schema() as connection:
        connection.execute(text(statement), values)
        triggers.create(connection)


def quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """argon2 with the least it can do, where its strength is not what is tested."""
    monkeypatch.setattr(accounts, "HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    accounts._nobodys_password.cache_clear()
