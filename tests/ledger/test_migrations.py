"""A ledger of an older schema, with data in it, becomes one of today."""

from __future__ import annotations

import json
import multiprocessing
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from ledger_worlds import Ticking, World, change
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import Engine

from fedforget.errors import InputError
from fedforget.ledger import triggers
from fedforget.ledger.book import Ledger, migrate
from fedforget.ledger.chain import BEGINNING, Pin, canonical, hash_of
from fedforget.ledger.database import MIGRATIONS, Database, newest_revision, upgrade
from fedforget.ledger.schema import Base

FIRST_TABLES = (
    "accounts", "documents", "federations", "head", "keys", "tokens", "versions", "requests", "certificates", "events",
)  # fmt: skip
"""In the order in which they refer to each other."""
SECOND_TABLES = ("candidates", "remains")


@pytest.fixture
def engine(url: str, ledger: Ledger) -> Iterator[Engine]:
    engine = create_engine(ledger.database.url)
    yield engine
    engine.dispose()


def test_the_migrations_make_the_tables_of_today(ledger: Ledger, engine: Engine):
    """Column by column and index by index: who changes `schema` and writes no migration is told so here."""
    with engine.connect() as connection, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*expression-based index.*")
        differences = compare_metadata(
            MigrationContext.configure(connection, opts={"compare_type": True}), Base.metadata
        )
    assert differences == []
    checks = {
        name: {check["name"] for check in inspect(engine).get_check_constraints(name)} for name in Base.metadata.tables
    }
    wanted = {
        name: {str(c.name) for c in table.constraints if type(c).__name__ == "CheckConstraint"}
        for name, table in Base.metadata.tables.items()
    }
    assert checks == wanted


def test_the_history_is_one_line():
    script = ScriptDirectory(str(MIGRATIONS))
    assert [revision.revision for revision in script.walk_revisions()] == [
        "0009",
        "0008",
        "0007",
        "0006",
        "0005",
        "0004",
        "0003",
        "0002",
        "0001",
    ]
    assert newest_revision() == "0009"


def as_told_then(
    events: list[dict[str, Any]], head: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The chain as it was before events held rows, and named who asked."""
    previous, told = BEGINNING, []
    for event in events:
        body = {name: value for name, value in json.loads(event["body"]).items() if name not in ("row", "asked_by")}
        then = {**event, "body": body, "previous": previous}
        previous = hash_of(then)
        told.append({**then, "body": canonical(body), "hash": previous})
    return told, [{**head[0], "hash": previous}]


def older_ledger(world: World, url: str, revision: str) -> list[dict[str, Any]]:
    """Bring the same data into a database with an older schema, with rules of that time; the events in it."""
    old = Database(url)
    tables = FIRST_TABLES if revision == "0001" else (*FIRST_TABLES, *SECOND_TABLES)
    with world.ledger.database.snapshot() as source:
        rows = {name: [dict(row._mapping) for row in source.execute(text(f"SELECT * FROM {name}"))] for name in tables}
    rows["events"], rows["head"] = as_told_then(rows["events"], rows["head"])
    with old.changing_schema() as connection:
        upgrade(connection, revision)
        for name in tables:
            columns = {column["name"] for column in inspect(connection).get_columns(name)}
            for row in rows[name]:
                kept = {column: value for column, value in row.items() if column in columns}
                places = ", ".join(f":{column}" for column in kept)
                connection.execute(text(f"INSERT INTO {name} ({', '.join(kept)}) VALUES ({places})"), kept)
        assert inspect(connection).has_table("remains") == (revision != "0001")
        if old.is_sqlite:
            connection.exec_driver_sql(
                "CREATE TRIGGER rule_of_then BEFORE UPDATE ON requests BEGIN SELECT RAISE(ABORT, 'then'); END"
            )
    old.close()
    return rows["events"]


@pytest.fixture
def other_url(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A second empty database, beside the world's."""
    if url.startswith("sqlite"):
        (tmp_path / "old").mkdir()
        yield f"sqlite:///{tmp_path / 'old' / 'ledger.sqlite'}"
        return
    server = request.getfixturevalue("postgres")
    other = server.new_database()
    yield other
    server.drop(other)


@pytest.mark.parametrize("revision", ["0001", "0002"])
def test_from_an_older_schema_with_data_in_it(world: World, other_url: str, revision: str):
    done = world.served()
    waiting = world.queued()
    events = older_ledger(world, other_url, revision)
    home = world.ledger.home
    with pytest.raises(
        InputError, match=f"has the schema {revision}, but this fedforget works with 0009; make a backup"
    ):
        Ledger.open(home, other_url)
    assert migrate(home, other_url) == (revision, "0009")
    with Ledger.open(home, other_url, clock=Ticking(world.clock.now)) as ledger:
        pin = Pin(world.ledger.trail.head().ledger, len(events), events[-1]["hash"])
        assert ledger.trail.check(pin).problems == (), "the chain, the rows and the rules"
        found = ledger.trail.events(after=len(events))
        assert [(event.kind, event.actor) for event in found] == [
            ("account found", "system"), ("account found", "system"), ("federation found", "system"),
            ("federation changed", "system"), ("federation changed", "system"),
        ]  # fmt: skip
        assert all("what was changed in it before is not known" in event.body for event in found[:3])
        assert ledger.federations.get("digits").allowance == json.loads(found[3].body)["allowance"] == 3
        assert ledger.requests.get(done.id).to_json() == done.to_json()
        certificate = ledger.versions.certificate_of(done.id)
        assert certificate is not None
        assert certificate.withdrawn is None
        with ledger.database.reading() as session:
            rules = triggers.installed(session.connection())
            columns = {column["name"] for column in inspect(session.connection()).get_columns("versions")}
        assert rules == triggers.expected("sqlite" if ledger.database.is_sqlite else "postgresql"), "none of then"
        assert "guard" not in columns
        again = World.__new__(World)
        again.ledger, again.clock = ledger, world.clock
        assert [request.id for request in again.serve().requests] == [waiting.id], "and it works on"
        ledger.versions.roll_back("digits", 2, "broken", actor="oscar")
        assert ledger.trail.check().intact
    assert migrate(home, other_url) == ("0009", "0009"), "a second time changes nothing"


def test_what_was_changed_in_an_older_ledger_is_named_where_its_events_say_it(world: World, other_url: str):
    """It opens and works all the same; from then on every change of a row beside the trail is named."""
    older_ledger(world, other_url, "0002")
    old = Database(other_url)
    with old.writing() as session:
        session.execute(text("UPDATE accounts SET role = 'admin' WHERE name = 'ann'"))
        session.execute(text("UPDATE federations SET keep_days = 0"))
        session.execute(text("UPDATE accounts SET password = 'x' WHERE name = 'ann'"))  # no event ever said it
    old.close()
    migrate(world.ledger.home, other_url)
    before = (
        "The account 'ann' was found with another role than its events said.",
        "The federation 'digits' was found with another keep_days than its events said.",
    )
    with Ledger.open(world.ledger.home, other_url, clock=world.clock) as ledger:
        assert ledger.trail.check().problems == before
        change(ledger, "UPDATE accounts SET password = 'y' WHERE name = 'ann'")
        assert ledger.trail.check().problems == (*before, "The account 'ann' has another password than its events say.")


def test_interrupted_nothing_has_changed(world: World, other_url: str, monkeypatch: pytest.MonkeyPatch):
    world.served()
    older_ledger(world, other_url, "0001")

    def killed(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(triggers, "create", killed)
        with pytest.raises(KeyboardInterrupt):
            migrate(world.ledger.home, other_url)
    old = Database(other_url)
    assert old.revision() == "0001"
    with old.reading() as session:
        assert not inspect(session.connection()).has_table("remains")
    old.close()
    assert migrate(world.ledger.home, other_url) == ("0001", "0009")


def test_a_newer_one_is_left_alone(ledger: Ledger, engine: Engine):
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(InputError, match="use the fedforget that wrote it"):
        Ledger.open(ledger.home, ledger.database.url)
    with pytest.raises(InputError, match="newer than this fedforget"):
        migrate(ledger.home, ledger.database.url)


def test_where_there_is_none_there_is_nothing_to_migrate(tmp_path: Path):
    with pytest.raises(InputError, match="no ledger"):
        migrate(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def _open(home: Path, url: str, ready: Any, answers: Any) -> None:
    ready.wait()
    with Ledger.open(home, url) as ledger:
        answers.put(ledger.trail.head().ledger)


@pytest.mark.real
def test_made_once_also_by_many_at_once(url: str, tmp_path: Path):
    context = multiprocessing.get_context("fork")  # nothing is open here, and torch is imported already
    ready, answers = context.Barrier(4), context.Queue()
    where = (tmp_path / "home", url)
    processes = [context.Process(target=_open, args=(*where, ready, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    names = {answers.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    assert len(names) == 1
    with Ledger.open(*where) as ledger:
        assert ledger.trail.check().intact
        assert ledger.trail.head().number == 1


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("nonsense", "cannot be read"),
        ("mysql://host/name", "SQLite or PostgreSQL, not in mysql"),
        ("sqlite://", "in memory would be lost"),
        ("sqlite:///:memory:", "in memory would be lost"),
        ("postgresql://nobody@/nothing?host=/nowhere", "does not answer"),
    ],
)
def test_no_ledger_there(tmp_path: Path, url: str, complaint: str):
    with pytest.raises(Exception, match=complaint):
        Ledger.open(tmp_path, url)
