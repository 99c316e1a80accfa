"""Every test of the ledger runs on SQLite and on a real PostgreSQL, which the tests start themselves.

A test says `ledger` or `world` and gets both; the second is marked `real` where the database itself could differ, and
`slow` elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_commands import Command
from ledger_worlds import Ticking, World, begin_in_sqlite
from postgres_server import PostgresServer, postgres_server, programs
from worker_worlds import CONFIG

from fedforget.ledger.book import Ledger
from fedforget.runs.train import train_run

HERE = Path(__file__).parent
DATABASES_DIFFER = (
    "test_at_once.py", "test_backup.py::test_there_and_back", "test_chain.py", "test_consistency.py",
    "test_histories.py", "test_intake.py::test_from_several", "test_migrations.py", "test_rules.py", "test_work.py",
    "test_worker.py::test_two_workers",
)  # fmt: skip
"""Rules, locks, order, types and migrations are PostgreSQL's own: here it is in `make test`."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = item.callspec.params if item.path.parent == HERE and hasattr(item, "callspec") else {}
        there = "postgresql" in (params.get("url"), params.get("new_url"))
        if there and not f"{item.path.name}::{item.name}".startswith(DATABASES_DIFFER):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a process."""
    if programs() is None:
        pytest.skip("no PostgreSQL is installed; as root: apt-get install postgresql")
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.new_database()
    yield url
    server.drop(url)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def new_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """An empty database to restore into; None: SQLite in the new home."""
    if request.param == "sqlite":
        yield None
        return
    server = request.getfixturevalue("postgres")
    url = server.new_database()
    yield url
    server.drop(url)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run folder for the worker's tests."""
    folder = tmp_path_factory.mktemp("worker") / "run"
    train_run(folder, CONFIG)
    return folder


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def ledger(request: pytest.FixtureRequest, url: str, tmp_path: Path, clock: Ticking) -> Iterator[Ledger]:
    """A new ledger, with nothing in it."""
    if url.startswith("sqlite"):
        begin_in_sqlite(tmp_path / "home", clock, furnished="world" in request.fixturenames)
    with Ledger.open(tmp_path / "home", url, clock=clock) as opened:
        yield opened


@pytest.fixture
def world(ledger: Ledger, clock: Ticking) -> World:
    """A ledger with a key, accounts and a federation `digits`."""
    return World(ledger, clock)


@pytest.fixture
def fedforget(world: World, monkeypatch: pytest.MonkeyPatch) -> Command:
    # The commands look at the clock on the wall.
    world.clock.now = world.clock.now.replace(year=2999)
    return Command(world, monkeypatch)
