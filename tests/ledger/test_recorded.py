"""Accounts, tokens, federations and console.toml are what the events say; what differs is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from archives import edited, replacing
from ledger_worlds import World, change, change_federation, quick_passwords

from fedforget.ledger.backup import backup, restore
from fedforget.ledger.book import Ledger
from fedforget.ledger.errors import TamperedError

PASSWORD = "correct horse battery"


@pytest.fixture
def peopled(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Somebody with a password, somebody of a provider, tokens, and changes of all of them."""
    quick_passwords(monkeypatch)
    ledger = world.ledger
    ledger.accounts.add("eve", "admin", password=PASSWORD, identity="https://login.example 42")
    ledger.accounts.add("carl", "auditor")
    ledger.accounts.change("carl", role="officer", actor="eve")
    ledger.accounts.change("carl", disabled=True, actor="eve")
    _, token = ledger.accounts.make_token("eve", "cron", actor="eve")
    ledger.accounts.make_token("eve", "other", actor="eve", lasting=None)
    ledger.accounts.revoke_token(token.id, actor="eve")
    change_federation(ledger, "digits", actor="eve", accuracy_limit=5, settings={"limit": 0.25}, place="/new")
    assert ledger.trail.check().problems == ()
    return world


INSERTED = "'mallory', 'admin', '2026-01-31T12:00:00.000000Z')"
CHANGES = [
    ("UPDATE accounts SET role = 'admin' WHERE name = 'ann'", "The account 'ann' has another role"),
    ("UPDATE accounts SET password = 'x' WHERE name = 'eve'", "The account 'eve' has another password"),
    ("UPDATE accounts SET password = 'x' WHERE name = 'ann'", "The account 'ann' has another password"),
    ("UPDATE accounts SET identity = NULL WHERE name = 'eve'", "The account 'eve' has another identity"),
    ("UPDATE accounts SET disabled = NULL WHERE name = 'carl'", "The account 'carl' has another disabled"),
    (f"INSERT INTO accounts (name, role, made) VALUES ({INSERTED}", "The account 'mallory' is there, but no event"),
    ("UPDATE tokens SET account = 'ann' WHERE label = 'other'", "has another account than its events say"),
    ("UPDATE tokens SET hash = 'x' WHERE label = 'other'", "has another hash than its events say"),
    ("UPDATE tokens SET expires = NULL WHERE label = 'cron'", "has another expires than its events say"),
    ("UPDATE tokens SET revoked = NULL", "has another revoked than its events say"),
    ("DELETE FROM tokens", "has events, but is not there"),
    ("UPDATE federations SET place = '/x'", "The federation 'digits' has another place"),
    ("UPDATE federations SET accuracy_limit = 99", "The federation 'digits' has another accuracy_limit"),
    ("UPDATE federations SET allowance = 99", "The federation 'digits' has another allowance"),
    ("UPDATE federations SET keep_days = 0", "The federation 'digits' has another keep_days"),
    ("UPDATE federations SET settings = '{}'", "The federation 'digits' has another settings"),
    ("UPDATE federations SET description = '{}'", "The federation 'digits' has another description"),
]  # fmt: skip


@pytest.mark.daily(6)
@pytest.mark.parametrize(("statement", "complaint"), CHANGES, ids=[statement for statement, _ in CHANGES])
def test_a_row_that_was_changed_beside_the_trail_is_named(peopled: World, statement: str, complaint: str):
    change(peopled.ledger, statement)
    found = peopled.ledger.trail.check()
    assert any(complaint in problem for problem in found.problems), found.problems


def test_a_lease_is_no_change(peopled: World):
    peopled.queued()
    peopled.claim()
    assert peopled.ledger.trail.check().intact


def test_nothing_secret_is_in_the_trail(peopled: World):
    secret, token = peopled.ledger.accounts.make_token("eve", "third", actor="eve")
    told = "".join(event.body for event in peopled.ledger.trail.events(after=0, limit=500))
    for hidden in (secret, token.hash, PASSWORD, "$argon2", "login.example"):
        assert hidden not in told


ROWS = {
    "an account's role": (
        replacing("tables/accounts.jsonl", b'"requester"', b'"admin"'),
        "'ann' has another role",
    ),
    "an account's password": (
        replacing("tables/accounts.jsonl", b'"password": null', b'"password": "$argon2id$x"'),
        "has another password",
    ),
    "another account": (
        lambda files: files.__setitem__(
            "tables/accounts.jsonl",
            files["tables/accounts.jsonl"]
            + json.dumps(
                {"name": "mallory", "role": "admin", "password": None, "identity": None, "disabled": None,
                 "made": "2026-01-31T12:00:00.000000Z"}
            ).encode()
            + b"\n",
        ),
        "'mallory' is there, but no event added it",
    ),
    "a federation": (
        replacing("tables/federations.jsonl", b'"place": "/new"', b'"place": "/evil"'),
        "'digits' has another place",
    ),
    "the settings": (
        lambda files: files.__setitem__("console.toml", b'[oidc]\nissuer = "https://evil.example"\nclient_id = "x"\n'),
        "console.toml is there, but no event speaks of it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ROWS)
def test_a_changed_backup_with_a_new_manifest_is_not_restored_even_with_a_pin(
    peopled: World, tmp_path: Path, what: str, new_url: str | None
):
    pin = backup(peopled.ledger, tmp_path / "b")
    alter, complaint = ROWS[what]
    archive = edited(tmp_path / "b", alter)
    with pytest.raises(TamperedError, match=complaint):
        restore(archive, tmp_path / "new", new_url, pins=(pin,), clock=peopled.clock)
    assert not (tmp_path / "new").exists()


def as_of_schema_3(archive: Path, alter: str | None = None) -> Path:
    """The archive, said to be of the schema before there were events of rows."""

    def change_it(files: dict[str, bytes]) -> None:
        replacing("manifest.json", b'"revision": "0009"', b'"revision": "0003"')(files)
        if alter is not None:
            ROWS[alter][0](files)

    return edited(archive, change_it)


@pytest.mark.parametrize("what", ["an account's role", "an account's password", "another account", "a federation"])
def test_an_archive_does_not_get_away_with_an_older_schema(peopled: World, tmp_path: Path, what: str):
    """Its migration records rows as they are found, but not against what events said of them."""
    backup(peopled.ledger, tmp_path / "b")
    with pytest.raises(TamperedError, match=r"was found with another|was found, but no event added it"):
        restore(as_of_schema_3(tmp_path / "b", what), tmp_path / "new", clock=peopled.clock)
    restore(as_of_schema_3(tmp_path / "b"), tmp_path / "new", clock=peopled.clock).close()


SETTINGS = '[limits]\nsign_ins_per_minute = 5\n[oidc]\nissuer = "https://login.example"\nclient_id = "x"\n'


def test_the_console_s_settings_are_noted_when_it_begins_and_what_differs_is_named(world: World):
    ledger, file = world.ledger, world.ledger.home / "console.toml"
    ledger.trail.note_settings()
    assert ledger.trail.events(kinds=["console settings"]) == [], "there are none"
    file.write_text(SETTINGS)
    assert ledger.trail.check().problems == (
        "console.toml is there, but no event speaks of it; a console notes it when it begins.",
    )
    ledger.trail.note_settings()
    ledger.trail.note_settings()
    (event,) = ledger.trail.events(kinds=["console settings"])
    assert json.loads(event.body)["settings"]["limits.sign_ins_per_minute"] == 5
    assert ledger.trail.check().intact
    file.write_text(SETTINGS.replace("login.example", "evil.example"))
    assert ledger.trail.check().problems == ("console.toml has another oidc.issuer than its last event says.",)
    file.write_text("[")
    assert "cannot be read" in ledger.trail.check().problems[0]
    file.unlink()
    assert ledger.trail.check().problems == ("console.toml was noted, but is not there.",)
    ledger.trail.note_settings()
    assert ledger.trail.check().intact, "a console began without it"


def test_the_console_s_settings_come_back_with_a_backup(world: World, tmp_path: Path):
    file = world.ledger.home / "console.toml"
    file.write_text(SETTINGS)
    backup(world.ledger, tmp_path / "b")
    with restore(tmp_path / "b", tmp_path / "new", clock=world.clock) as again:
        assert (again.home / "console.toml").read_text() == SETTINGS
        assert again.trail.check().intact
    archive = edited(tmp_path / "b", replacing("console.toml", b"= 5", b"= 500"))
    with pytest.raises(TamperedError, match=r"has another limits.sign_ins_per_minute"):
        restore(archive, tmp_path / "other", clock=world.clock)


def test_a_result_that_waits_for_an_officer_is_the_one_that_was_held(world: World):
    world.queued()
    world.serve(fell=9.0)
    assert world.ledger.trail.check().intact
    change(
        world.ledger, "UPDATE candidates SET sha256 = :sha256", sha256=world.ledger.versions.current("digits").sha256
    )
    assert any("that waits for an officer" in problem for problem in world.ledger.trail.check().problems)


def test_who_asked_is_held_too(world: World):
    world.ask()
    change(world.ledger, "UPDATE requests SET asked_by = 'oscar'")
    assert any("is not the one that its events speak of" in problem for problem in world.ledger.trail.check().problems)


def test_a_new_ledger_has_nothing_to_record(ledger: Ledger):
    assert [event.kind for event in ledger.trail.events()] == ["ledger made"]
