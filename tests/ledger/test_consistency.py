"""Whatever somebody changes beside the chain, the check finds it."""

from __future__ import annotations

import pytest
from ledger_worlds import World, change
from sqlalchemy import text

CHANGES = [
    ("UPDATE requests SET state = 'failed', version = NULL, reason = 'x'", "its events do not say so"),
    ("UPDATE requests SET subject = 'other'", "not the one that its events speak of"),
    ("UPDATE requests SET ground = 'other'", "not the one that its events speak of"),
    ("UPDATE requests SET client = 2", "not the one that its events speak of"),
    ("UPDATE requests SET due = '2027-01-01T00:00:00.000000Z'", "not the one that its events speak of"),
    ("UPDATE requests SET extended = 1, extension_reason = 'x'", "not the one that its events speak of"),
    ("UPDATE requests SET version = 1", "another version or other evidence"),
    ("UPDATE requests SET evidence = NULL", "another version or other evidence"),
    ("UPDATE versions SET sha256 = 'x' WHERE number = 2", "its sha256 is another"),
    ("UPDATE versions SET verdict = 'over-forgotten' WHERE number = 2", "its verdict is another"),
    ("UPDATE versions SET evidence = NULL WHERE number = 2", "its evidence is another"),
    ("UPDATE versions SET state = 'destroyed' WHERE number = 1", "is destroyed, but its events do not say so"),
    ("UPDATE documents SET content = 'x'", "evidence .* was changed"),
    ("UPDATE certificates SET content = 'x'", "no certificate, or it was changed"),
    ("UPDATE certificates SET sha256 = 'x'", "was never issued"),
    ("DELETE FROM certificates", "was issued, but is not there"),
    ("UPDATE keys SET public = 'x'", "not the one that was made"),
    ("UPDATE requests SET target = 'x'", "makes no sense"),
    ("UPDATE events SET body = 'x'", "was changed"),
]


@pytest.mark.daily(6)
@pytest.mark.parametrize(("statement", "complaint"), CHANGES, ids=[statement for statement, _ in CHANGES])
def test_a_changed_row(world: World, statement: str, complaint: str):
    world.served()
    assert world.ledger.trail.check().intact
    change(world.ledger, statement)
    found = world.ledger.trail.check()
    assert not found.intact
    with pytest.raises(AssertionError, match=complaint):
        raise AssertionError(" ".join(found.problems))


def test_two_current_versions_are_not_possible(world: World):
    world.served()
    with pytest.raises(Exception, match=r"UNIQUE|unique"):
        change(world.ledger, "UPDATE versions SET state = 'current'")


def test_an_older_version_made_current_in_secret(world: World):
    world.served()
    change(world.ledger, "UPDATE versions SET state = CASE number WHEN 1 THEN 'destroyed' ELSE 'superseded' END")
    change(world.ledger, "UPDATE versions SET state = 'current' WHERE number = 1")
    assert "Version 2 of digits is newer than the current one." in world.ledger.trail.check().problems


def test_a_request_or_a_version_that_is_gone(world: World):
    request = world.ask()
    if not world.ledger.database.is_sqlite:
        change(world.ledger, "ALTER TABLE events DROP CONSTRAINT events_request_fkey")
        change(world.ledger, "DELETE FROM requests")
    else:
        with world.ledger.database.engine.connect() as connection:
            raw = connection.connection.dbapi_connection
            assert raw is not None
            raw.execute("PRAGMA foreign_keys=OFF")  # type: ignore[attr-defined]
            raw.execute("DROP TRIGGER rule_request_kept")  # type: ignore[attr-defined]
            connection.execute(text("DELETE FROM requests"))
            connection.commit()
            raw.execute("PRAGMA foreign_keys=ON")  # type: ignore[attr-defined]
    assert f"Request {request.id} has events, but is not there." in world.ledger.trail.check().problems


def test_a_model_file_that_is_changed_gone_or_back(world: World):
    world.served()
    path = world.ledger.models.path(world.ledger.versions.current("digits").sha256)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"x")
    assert f"The model file {path.name} was changed." in world.ledger.trail.check().problems
    path.unlink()
    assert f"The model file {path.name} is missing." in world.ledger.trail.check().problems
    path.write_bytes(data)
    assert world.ledger.trail.check().intact
    old = world.ledger.models.path(world.ledger.versions.get("digits", 1).sha256)
    data = old.read_bytes()
    world.clock.go_on(days=31)
    world.destroy()
    old.write_bytes(data)
    assert f"The model file {old.name} was destroyed, but is there." in world.ledger.trail.check().problems
