"""Ledgers and backups that an older fedforget wrote are read today. `tests/reference/old_ledger` has two, each as the
SQL text of its SQLite file and as its backup:

    0002    commit 94144c2: done, rolled back, refused, extended, held for an officer, waiting; a sketch
    0004    commit 99fe470: with guards; versions destroyed, a decision for and one against, two keys, settings
"""

from __future__ import annotations

import json
import sqlite3
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ledger_worlds import Ticking, World

from fedforget.ledger.backup import restore
from fedforget.ledger.book import Ledger, migrate
from fedforget.ledger.certificate import verify_certificate
from fedforget.ledger.chain import Pin
from fedforget.ledger.database import Database, newest_revision
from fedforget.ledger.keys import read_public

OLD = Path(__file__).parents[1] / "reference" / "old_ledger"
REVISIONS = ("0002", "0004")
LATER = datetime(2026, 6, 1, tzinfo=UTC)


def old_home(revision: str, home: Path) -> Path:
    """The installation as it was: the files out of the backup, the database out of the text."""
    with tarfile.open(OLD / f"backup-{revision}.tar.gz") as tar:
        files = [name for name in tar.getnames() if not name.startswith(("tables/", "manifest"))]
        tar.extractall(home, members=[tar.getmember(name) for name in files], filter="data")
    connection = sqlite3.connect(home / "ledger.sqlite")
    connection.executescript((OLD / f"ledger-{revision}.sql").read_text())
    connection.close()
    return home


def pin_of(revision: str) -> Pin:
    with tarfile.open(OLD / f"backup-{revision}.tar.gz") as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        return Pin.read(json.load(manifest)["pin"])


@pytest.fixture(params=REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def migrated(revision: str, tmp_path: Path) -> Iterator[Ledger]:
    home = old_home(revision, tmp_path / "home")
    assert migrate(home) == (revision, newest_revision())
    with Ledger.open(home, clock=Ticking(LATER)) as ledger:
        yield ledger


@pytest.fixture
def restored(revision: str, new_url: str | None, tmp_path: Path) -> Iterator[Ledger]:
    archive = OLD / f"backup-{revision}.tar.gz"
    with restore(archive, tmp_path / "new", new_url, pins=(pin_of(revision),), clock=Ticking(LATER)) as ledger:
        yield ledger


def look_at(ledger: Ledger, revision: str) -> None:
    """All of it is there and whole, what was signed verifies, and it works on."""
    assert ledger.trail.check(pin_of(revision)).problems == ()
    states = ledger.trail.figures()["requests"]
    assert (states["done"], states["deciding"], states["queued"]) == ((1, 1, 1) if revision == "0002" else (2, 1, 1))
    versions = ledger.versions.of("digits")
    destroyed = [version.number for version in versions if version.state == "destroyed"]
    assert destroyed == ([] if revision == "0002" else [1, 2])
    assert ledger.versions.current("digits").kind == "rollback"
    assert "guard" not in versions[-1].to_json()
    federation = ledger.federations.get("digits")
    assert (federation.method, federation.preset, federation.settings) == ("ladder", "default", {"exact_below": 60.0})
    assert federation.allowance == 3
    told, *_ = ledger.trail.events(kinds=["federation changed"], after=0)
    assert json.loads(told.body)["why"] == "its preset of fedaf is no more; its requests climb the ladder"

    keys = [read_public(key.public) for key in ledger.keys.all()]
    for request in ledger.requests.page(states=["done"]).requests:
        certificate = ledger.versions.certificate_of(request.id)
        assert certificate is not None
        record = verify_certificate(certificate.content.encode(), keys)
        assert ("guard" in record["after"]) == (revision == "0004")

    world = World.__new__(World)
    world.ledger, world.clock, world._asked = ledger, Ticking(LATER + timedelta(days=1)), 100
    ledger.keys.rotate()  # a backup has no private key
    (held,) = ledger.requests.page(states=["deciding"]).requests
    published = ledger.versions.decide(held.id, True, "It is fine.", actor="oscar").version
    assert published is not None
    assert published.parent is not None
    ledger.versions.roll_back("digits", published.parent, "broken", actor="oscar")
    assert world.serve().version is not None
    assert world.served().state == "done"
    assert ledger.trail.check(pin_of(revision)).problems == ()


def test_an_old_ledger_is_migrated_and_works_on(migrated: Ledger, revision: str):
    look_at(migrated, revision)


def test_an_old_backup_is_restored_and_works_on(restored: Ledger, revision: str):
    look_at(restored, revision)


@pytest.mark.parametrize(
    ("change", "method", "problems"),
    [
        ("method = 'fedaf', preset = 'thorough'", "ladder", "preset"),
        ("method = 'retrain', preset = 'default'", "retrain", "method preset"),
        ("preset = 'paper'", "fedaf", "preset"),
        ("settings = '{\"lr\":9}'", "ladder", "settings"),
    ],
)
def test_how_an_old_federation_was_served_is_held_against_its_events_before_it_climbs(
    tmp_path: Path, change: str, method: str, problems: str
):
    home = old_home("0004", tmp_path / "home")
    old = Database(f"sqlite:///{home / 'ledger.sqlite'}")
    with old.writing() as session:
        session.connection().exec_driver_sql(f"UPDATE federations SET {change}")
    old.close()
    migrate(home)
    with Ledger.open(home, clock=Ticking(LATER)) as ledger:
        assert ledger.federations.get("digits").method == method
        how = (
            "was found with another {} than its events said."
            if method == "ladder"
            else "has another {} than its events say."
        )
        assert ledger.trail.check().problems == tuple(
            f"The federation 'digits' {how.format(column)}" for column in problems.split()
        )


def test_the_file_of_a_guard_goes_when_nothing_names_it(tmp_path: Path):
    """It was a file beside the models; what the trail says of it stays."""
    home = old_home("0004", tmp_path / "home")
    old = Database(f"sqlite:///{home / 'ledger.sqlite'}")
    with old.reading() as session:
        guards = set(session.connection().exec_driver_sql("SELECT guard FROM candidates").scalars())
    old.close()
    migrate(home)
    with Ledger.open(home, clock=Ticking(datetime(2999, 1, 1, tzinfo=UTC))) as ledger:
        assert guards < set(ledger.models.sweep())
        assert any("guard" in json.loads(event.body) for event in ledger.trail.events(kinds=["deciding"]))
        assert ledger.trail.check(pin_of("0004")).problems == ()
