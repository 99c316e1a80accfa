"""A console over a small ledger, without a server; and visitors of every role."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browsers import Browser
from console_visits import PEOPLE, URL, Visit
from fastapi import FastAPI
from ledger_worlds import Ticking, World, begin_in_sqlite
from postgres_server import PostgresServer, postgres_server, programs
from selenium import webdriver
from starlette.testclient import TestClient

from fedforget.console.app import make_app
from fedforget.console.settings import ConsoleSettings, Limits
from fedforget.ledger.book import Ledger
from fedforget.ledger.states import Role


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if programs() is None:
        pytest.skip("no PostgreSQL is installed; as root: apt-get install postgresql")
    with postgres_server() as server:
        yield server


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """SQLite in the home; for tests marked `on_both` a PostgreSQL too: there, handlers read in threads."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield None
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    found = server.new_database()
    yield found
    server.drop(found)


@pytest.fixture
def ledger(request: pytest.FixtureRequest, tmp_path: Path, url: str | None, clock: Ticking) -> Iterator[Ledger]:
    if url is None:
        begin_in_sqlite(tmp_path / "home", clock, furnished="world" in request.fixturenames)
    with Ledger.open(tmp_path / "home", url, clock=clock) as opened:
        yield opened


@pytest.fixture
def world(ledger: Ledger, clock: Ticking) -> World:
    """A key, everybody in `PEOPLE`, and a federation `digits`."""
    world = World(ledger, clock)
    for role in (Role.OPERATOR, Role.AUDITOR, Role.ADMIN):
        ledger.accounts.add(PEOPLE[role], role)
    return world


@pytest.fixture
def settings() -> ConsoleSettings:
    return ConsoleSettings(url=URL, limits=Limits(denials_per_minute=100_000, submissions_per_minute=100_000))


@pytest.fixture
def app(world: World, settings: ConsoleSettings) -> FastAPI:
    return make_app(world.ledger, settings)


@pytest.fixture
def stranger(app: FastAPI) -> Iterator[Visit]:
    with TestClient(app, base_url=URL, follow_redirects=False) as client:
        yield Visit(client, None)


@pytest.fixture
def visit(app: FastAPI, settings: ConsoleSettings) -> Iterator[Callable[[Role], Visit]]:
    """Somebody of a role, signed in."""
    opened: list[TestClient] = []

    def of(role: Role) -> Visit:
        ledger: Ledger = app.state.console.ledger
        secret = ledger.accounts.open_session(PEOPLE[role], by="test")
        client = TestClient(app, base_url=URL, follow_redirects=False)
        client.cookies.set(settings.cookie, secret, domain="127.0.0.1")
        client.__enter__()
        opened.append(client)
        return Visit(client, secret)

    yield of
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def program(app: FastAPI) -> Iterator[Callable[[Role], TestClient]]:
    """A program with a token of somebody's."""
    opened: list[TestClient] = []

    def of(role: Role) -> TestClient:
        ledger: Ledger = app.state.console.ledger
        secret, _ = ledger.accounts.make_token(PEOPLE[role], "test", actor="system")
        headers = {"authorization": f"Bearer {secret}"}
        client = TestClient(app, base_url=URL, follow_redirects=False, headers=headers)
        client.__enter__()
        opened.append(client)
        return client

    yield of
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program, driver_program = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver_program is None:
        pytest.skip("no browser is installed; as root: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
                 f"--user-data-dir={tmp_path / 'profile'}"):  # fmt: skip
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    downloads = {"download.default_directory": str(tmp_path / "downloads"), "download.prompt_for_download": False}
    options.add_experimental_option("prefs", downloads)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_program))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
