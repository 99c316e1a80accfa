"""A change of any event is noticed, and so is a whole new chain, by who kept a pin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ledger_worlds import World, change
from sqlalchemy import text

from fedforget.errors import InputError
from fedforget.ledger.chain import BEGINNING, Pin, canonical, hash_of

COLUMNS = ("number", "at", "actor", "kind", "request", "body", "previous", "hash")


def rows(world: World) -> list[dict[str, Any]]:
    with world.ledger.database.reading() as session:
        return [dict(row._mapping) for row in session.execute(text("SELECT * FROM events ORDER BY number"))]


def test_an_untouched_chain_is_intact(world: World):
    world.served()
    found = world.ledger.trail.check_chain(world.ledger.trail.head())
    assert found.intact
    assert (found.events, found.head) == (world.ledger.trail.head().number, world.ledger.trail.head().hash)
    assert [row["number"] for row in rows(world)] == list(range(1, found.events + 1)), "no gap"


@pytest.mark.daily(2)
@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_of_every_event_counts(world: World, column: str):
    """Each event in turn gets another value in this column; the number is taken beyond the end."""
    request = world.served()
    for row in rows(world):
        old = row[column]
        new: Any = 9999 if column == "number" else "0" * 64 if column in ("previous", "hash") else "x"
        if column == "request":
            new = None if old is not None else request.id
        if column == "previous" and row["number"] == 1:
            new = "1" * 64
        if column == "body":
            new = canonical({**json.loads(old), "more": 1})
        if column == "at":
            new = old.replace("2026", "2025")
        statement = f"UPDATE events SET {column} = :value WHERE number = :number"
        change(world.ledger, statement, value=new, number=row["number"])
        assert not world.ledger.trail.check_chain().intact, row
        change(world.ledger, statement, value=old, number=9999 if column == "number" else row["number"])
        assert world.ledger.trail.check_chain().intact


@pytest.mark.parametrize("body", ["{", "[1]", "", '{"a": 1}', '{"a":NaN}', '{"a":1,"a":1}'])
def test_a_body_is_its_one_text(world: World, body: str):
    """Also where the meaning would be the same: there is no second way to write it."""
    world.ledger.trail.append("ann", "test", {"a": 1})
    change(world.ledger, "UPDATE events SET body = :body WHERE kind = 'test'", body=body)
    assert "was changed" in world.ledger.trail.check_chain().problems[0]


def test_an_event_that_is_taken_out_is_missed(world: World):
    world.served()
    change(world.ledger, "DELETE FROM events WHERE number = 5")
    assert "Event 5 is missing" in world.ledger.trail.check_chain().problems[0]


def test_two_events_that_change_places_are_noticed(world: World):
    world.served()
    for old, new in ((5, 9999), (6, 5), (9999, 6)):
        change(world.ledger, "UPDATE events SET number = :new WHERE number = :old", old=old, new=new)
    assert not world.ledger.trail.check_chain().intact


def test_the_last_event_taken_away_is_missed(world: World):
    """By the head in the ledger, and, where that was changed as well, by the pin."""
    world.served()
    pin = world.ledger.trail.head()
    last = rows(world)[-1]
    change(world.ledger, "DELETE FROM events WHERE number = :number", number=last["number"])
    assert not world.ledger.trail.check_chain().intact
    change(world.ledger, "UPDATE head SET number = :n, hash = :h", n=last["number"] - 1, h=last["previous"])
    assert world.ledger.trail.check_chain().intact, "nobody can tell without a pin"
    assert f"knows event {pin.number}" in world.ledger.trail.check_chain(pin).problems[0]


def test_a_chain_written_anew_is_noticed_by_the_pin_alone(world: World):
    world.served()
    pin = world.ledger.trail.head()
    previous = BEGINNING
    for row in rows(world):
        event = {**row, "body": json.loads(row["body"]), "previous": previous}
        if row["kind"] == "accepted":
            event["actor"] = "mallory"
        values = {"actor": event["actor"], "previous": previous, "hash": hash_of(event), "number": row["number"]}
        statement = "UPDATE events SET actor = :actor, previous = :previous, hash = :hash WHERE number = :number"
        change(world.ledger, statement, **values)
        previous = values["hash"]
    change(world.ledger, "UPDATE head SET hash = :hash", hash=previous)
    assert world.ledger.trail.check_chain().intact, "nobody can tell without a pin"
    assert "written anew" in world.ledger.trail.check_chain(pin).problems[0]


def test_a_pin_stays_good_while_the_ledger_grows(world: World):
    pin = world.ledger.trail.head()
    world.served()
    assert world.ledger.trail.check_chain(pin, world.ledger.trail.head()).intact


def test_a_pin_of_another_ledger_is_refused(world: World):
    pin = world.ledger.trail.head()
    other = Pin("f" * 32, pin.number, pin.hash)
    assert "of the ledger ffff" in world.ledger.trail.check_chain(other).problems[0]


def test_a_pin_is_a_line():
    pin = Pin("a" * 32, 12, "b" * 64)
    assert Pin.read(f"printed on Monday:\n{pin}\nand signed") == pin
    for wrong in ("", str(pin)[:-1], str(pin).replace("pin-1", "pin-2"), str(pin).upper()):
        with pytest.raises(InputError, match="no pin"):
            Pin.read(wrong)


def test_the_first_event_names_the_ledger(world: World):
    first = rows(world)[0]
    assert first["kind"] == "ledger made"
    assert json.loads(first["body"]) == {"ledger": world.ledger.trail.head().ledger}
    assert first["previous"] == BEGINNING


def test_a_chain_with_many_faults_is_not_read_to_the_end(world: World):
    for _ in range(60):
        world.ledger.trail.append("ann", "test")
    change(world.ledger, "UPDATE events SET actor = 'mallory' WHERE kind = 'test'")
    assert len(world.ledger.trail.check_chain().problems) <= 21


def test_events_by_request_kind_actor_and_number(world: World):
    request = world.served()
    of_request = world.ledger.trail.events(request=request.id, after=0)
    assert [event.kind for event in of_request] == [
        "received", "accepted", "queued", "forgetting", "auditing", "done", "certified",
    ]  # fmt: skip
    assert [event.number for event in world.ledger.trail.events(limit=3)] == [
        world.ledger.trail.head().number - i for i in range(3)
    ]
    assert [event.kind for event in world.ledger.trail.events(kinds=["done", "no\0thing"])] == ["done"]
    assert {event.actor for event in world.ledger.trail.events(actor="worker/first")} == {"worker/first"}
    assert world.ledger.trail.events(actor="no\0body") == []
    assert [event.number for event in world.ledger.trail.events(after=2, limit=2)] == [3, 4]
    assert [event.number for event in world.ledger.trail.events(before=3)] == [2, 1]
    assert world.ledger.trail.events(after=10**30) == []
    assert len(world.ledger.trail.events(before=10**30)) > 5
    with pytest.raises(InputError, match="1 to 500 events"):
        world.ledger.trail.events(limit=0)


@pytest.mark.parametrize(
    ("actor", "kind", "request_id"),
    [("", "x", None), ("ann", "", None), ("ann", "x" * 33, None), ("a" * 129, "x", None), ("a\0", "x", None),
     ("ann", "x", "0" * 32), ("ann", "x", "\0")],
)  # fmt: skip
def test_an_event_that_cannot_be(world: World, actor: str, kind: str, request_id: str | None):
    before = world.ledger.trail.head()
    with pytest.raises(InputError, match=r"1 to 32 characters|no request"):
        world.ledger.trail.append(actor, kind, request=request_id)
    assert world.ledger.trail.head() == before


def test_what_figures_say(world: World):
    late = world.ask()
    world.clock.go_on(days=25)
    world.queued()
    world.served()
    world.clock.go_on(days=4)
    assert world.ledger.trail.figures()["oldest_queued_seconds"] == pytest.approx(4 * 86400, abs=60)
    world.claim()
    figures = world.ledger.trail.figures()
    assert figures["requests"]["received"] == 1
    assert (figures["overdue"], figures["due_soon"], figures["held"]) == (1, 0, 1), late.due
    assert (figures["events"], figures["versions"]) == (world.ledger.trail.head().number, 2)
    assert figures["oldest_queued_seconds"] == 0, "nothing waits any more"
