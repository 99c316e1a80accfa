"""The database itself refuses what is against the rules, whoever asks: here, a stranger's connection with plain SQL."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_worlds import World, stranger
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from fedforget.ledger import triggers
from fedforget.ledger.chain import BEGINNING
from fedforget.ledger.states import TRANSITIONS, VERSION_TRANSITIONS, RequestState, VersionState

STATES = list(RequestState)


def refuses(world: World, statement: str, **values: Any) -> str:
    """What the database says; it must say something."""
    with pytest.raises(IntegrityError) as caught:
        say(world, statement, **values)
    return str(caught.value.orig)


def say(world: World, statement: str, **values: Any) -> None:
    """One statement or several, with `;` between, in one transaction."""
    with stranger(world.ledger) as connection:
        for part in statement.split(";"):
            connection.execute(text(part), {name: value for name, value in values.items() if f":{name}" in part})


def state_of(world: World, id: str) -> str:
    return world.ledger.requests.get(id).state


MOVE = "UPDATE requests SET state = :state, reason = 'x', version = :version WHERE id = :id"


@pytest.mark.real
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=st.lists(st.sampled_from(STATES), min_size=1, max_size=14))
def test_only_legal_transitions(world: World, wanted: list[RequestState]):
    """A random walk by raw SQL: what the table of states allows is done, the rest is refused and changes nothing."""
    request, now = world.ask(), RequestState.RECEIVED
    for state in wanted:
        values = {"state": state, "version": 1 if state == RequestState.DONE else None, "id": request.id}
        if state in TRANSITIONS[now] or state == now:
            say(world, MOVE, **values)
            now = state
        else:
            assert "refused by the ledger" in refuses(world, MOVE, **values)
        assert state_of(world, request.id) == now


@pytest.mark.daily(3)
@pytest.mark.parametrize("old", STATES)
def test_every_transition_of_the_table(world: World, old: RequestState):
    """The same for every pair, so that none is left to chance."""
    for new in STATES:
        request = world.ask()
        for step in path_to(old):
            say(world, MOVE, state=step, version=1 if step == "done" else None, id=request.id)
        values = {"state": new, "version": 1 if new == RequestState.DONE else None, "id": request.id}
        if new == old or new in TRANSITIONS[old]:
            say(world, MOVE, **values)
            assert state_of(world, request.id) == new
        else:
            refuses(world, MOVE, **values)
            assert state_of(world, request.id) == old


def path_to(state: RequestState) -> list[RequestState]:
    """The states on the way from received."""
    paths = {RequestState.RECEIVED: []}
    while state not in paths:
        paths |= {new: [*way, new] for old, way in list(paths.items()) for new in TRANSITIONS[old] if new not in paths}
    return paths[state]


def test_the_table_is_whole():
    assert TRANSITIONS.keys() == set(RequestState)
    assert VERSION_TRANSITIONS.keys() == set(VersionState)
    assert all(path_to(state) is not None for state in RequestState), "every state can be reached"


@pytest.mark.parametrize("state", [RequestState.DECIDING, RequestState.FAILED, RequestState.REFUSED])
def test_some_states_need_a_reason(world: World, state: RequestState):
    request = world.ask()
    *before, last = path_to(state)
    for step in before:
        say(world, MOVE, state=step, version=None, id=request.id)
    refuses(world, "UPDATE requests SET state = :state, reason = NULL WHERE id = :id", state=last, id=request.id)


NEW_REQUEST = """INSERT INTO requests (id, fingerprint, federation, asked_by, subject, client, target, ground, received,
    due, extended, state, changed, attempts, failures, not_before, version)
    SELECT :id, :id, federation, asked_by, subject, client, target, ground, received, due, 0, :state, changed, 0, 0,
    not_before, NULL FROM requests WHERE id = :model"""
NEW_VERSION = """INSERT INTO versions (federation, number, sha256, parent, kind, state, published)
    VALUES ('digits', :number, 'x', :parent, 'forgotten', :state, 'now')"""
NEW_EVENT = """INSERT INTO events (number, at, actor, kind, body, previous, hash)
    VALUES (:number, 'now', 'me', 'x', '{}', :previous, 'x')"""
SUPERSEDED = "UPDATE versions SET state = 'superseded' WHERE state = 'current'"


def broken(rule: str, world: World) -> list[tuple[str, dict[str, Any]]]:
    """Statements that break a rule; the ledger has one request that is done."""
    request = world.served()
    head = world.ledger.trail.head()
    world.ledger.keys.rotate()
    table = next(r.table for r in triggers.RULES if r.name == rule)
    texts = {
        "request_stays": ("fingerprint", "subject", "target", "ground", "received"),
        "version_stays": ("sha256", "kind", "published", "verdict", "method", "evidence"),
        "event_stays": ("at", "actor", "kind", "request", "body", "previous", "hash"),
        "document_stays": ("content", "kind", "made"),
        "key_stays": ("public", "made"),
        "remains_stay": ("kind", "sha256"),
    }  # fmt: skip
    if rule in texts:
        return [(f"UPDATE {table} SET {column} = 'other'", {}) for column in texts[rule]]
    if rule.endswith("_kept"):
        return [(f"DELETE FROM {table}", {})]
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "request_begins": [(NEW_REQUEST, {"id": "n", "model": request.id, "state": "accepted"})],
        "request_moves": [("UPDATE requests SET state = 'queued', version = NULL", {})],
        "request_due": [
            ("UPDATE requests SET due = '2030'", {}),
            ("UPDATE requests SET due = '1999', extended = 1, extension_reason = 'x'", {}),
        ],
        "request_effort": [
            ("UPDATE requests SET effort = 'retrain'", {}),
            ("UPDATE requests SET effort = 'retrain', state = 'failed', reason = 'x', version = NULL", {}),
        ],
        "request_served": [("UPDATE requests SET version = 1", {})],
        "version_begins": [
            (NEW_VERSION, {"number": 3, "parent": 2, "state": "superseded"}),
            (f"{SUPERSEDED};{NEW_VERSION}", {"number": 4, "parent": 3, "state": "current"}),
            (f"{SUPERSEDED};{NEW_VERSION}", {"number": 3, "parent": 1, "state": "current"}),
            (f"{SUPERSEDED};{NEW_VERSION}", {"number": 2, "parent": 1, "state": "current"}),
        ],
        "version_moves": [
            ("UPDATE versions SET state = 'destroyed' WHERE state = 'current'", {}),
            ("UPDATE versions SET state = 'current' WHERE number = 1", {}),
        ],
        "event_follows": [
            (NEW_EVENT, {"number": head.number + 2, "previous": head.hash}),
            (NEW_EVENT, {"number": head.number + 1, "previous": BEGINNING}),
            (NEW_EVENT, {"number": 0, "previous": BEGINNING}),
        ],
        "head_begins": [("INSERT INTO head (id, ledger, number, hash) VALUES (1, 'x', 7, 'x')", {})],
        "head_moves": [
            ("UPDATE head SET number = number - 1", {}),
            ("UPDATE head SET number = number + 1", {}),
            ("UPDATE head SET ledger = 'another'", {}),
        ],
        "certificate_stays": [
            ("UPDATE certificates SET content = 'other'", {}),
            ("UPDATE certificates SET withdrawn = 'then'; UPDATE certificates SET withdrawn = NULL", {}),
        ],
    }  # fmt: skip
    return found[rule]


@pytest.mark.daily(6)
@pytest.mark.parametrize("rule", [rule.name for rule in triggers.RULES])
def test_every_rule(world: World, rule: str):
    """What each rule forbids is refused with its own words, and what it guards is as before."""
    (message,) = [r.message for r in triggers.RULES if r.name == rule]
    statements = broken(rule, world)
    if rule in ("remains_stay", "remains_kept"):
        say(world, "INSERT INTO remains (federation, version, path, kind, sha256) VALUES ('digits', 1, 'a', 'b', 'c')")
    if rule == "webhook_kept":
        world.ledger.webhooks.add("elsewhere", "https://example.org/told", actor="ada")
    before = world.ledger.trail.check().problems
    for statement, values in statements:
        with pytest.raises(IntegrityError, match=message):
            say(world, statement, **values)
    assert world.ledger.trail.check().problems == before == ()


def test_a_new_event_is_the_head(world: World):
    """Nobody has to move the head, and nobody can move it elsewhere."""
    head = world.ledger.trail.head()
    say(world, NEW_EVENT, number=head.number + 1, previous=head.hash)
    assert (world.ledger.trail.head().number, world.ledger.trail.head().hash) == (head.number + 1, "x")


def test_no_table_is_emptied_at_once(world: World):
    if world.ledger.database.is_sqlite:
        pytest.skip("SQLite has no TRUNCATE")
    world.served()
    for table in triggers.KEPT:
        assert "never emptied" in refuses(world, f"TRUNCATE {table} CASCADE")


@pytest.mark.parametrize("rule", ["rule_event_stays", "rule_request_moves", "rule_event_is_head"])
def test_a_rule_that_is_gone_is_missed(world: World, rule: str):
    table = "requests" if "request" in rule else "events"
    say(world, f"DROP TRIGGER {rule}" + ("" if world.ledger.database.is_sqlite else f" ON {table}"))
    assert world.ledger.trail.check().problems == (f"The rule '{rule}' is missing from the database.",)


def test_a_rule_that_was_changed_is_missed(world: World):
    if world.ledger.database.is_sqlite:
        say(world, "DROP TRIGGER rule_event_stays")
        change = "CREATE TRIGGER rule_event_stays BEFORE UPDATE ON events BEGIN SELECT 1; END"
    else:
        change = (
            "CREATE OR REPLACE FUNCTION rule_event_stays() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"
        )
    with stranger(world.ledger) as connection:
        connection.execute(text(change))
    assert "rule_event_stays" in world.ledger.trail.check().problems[0]


def test_a_rule_that_is_switched_off_is_missed(world: World):
    if world.ledger.database.is_sqlite:
        pytest.skip("SQLite cannot switch a trigger off")
    say(world, "ALTER TABLE events DISABLE TRIGGER rule_event_stays")
    assert "rule_event_stays" in world.ledger.trail.check().problems[0]


def test_insert_or_replace_is_no_way_round(world: World):
    """SQLite's way to delete and insert at once; our own connections see the deletion."""
    if not world.ledger.database.is_sqlite:
        pytest.skip("only SQLite has it")
    id = world.served().id
    statement = f"INSERT OR REPLACE {NEW_REQUEST.removeprefix('INSERT ')}".replace(
        "SELECT :id, :id", "SELECT :id, fingerprint"
    )
    with pytest.raises(IntegrityError, match="never deleted"), world.ledger.database.writing() as session:
        session.execute(text(statement), {"id": id, "model": id, "state": "received"})
    assert state_of(world, id) == "done"
