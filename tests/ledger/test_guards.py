"""What later rounds may not undo is part of a version: from registration to destruction, in rows, files and trail."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import torch
from ledger_worlds import DESCRIPTION, World
from sqlalchemy import text

from fedforget.errors import InputError
from fedforget.federation.guard import Guard
from fedforget.ledger.certificate import verify_certificate
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.keys import read_public

AT_ONCE = timedelta(0)


def bodies(world: World, *kinds: str) -> list[dict[str, Any]]:
    """What events of these kinds say, oldest first."""
    return [json.loads(event.body) for event in world.ledger.trail.events(kinds=kinds, after=0, limit=500)]


def guards(world: World) -> list[str | None]:
    return [version.guard for version in world.ledger.versions.of("digits")]


def serve(world: World, bound: float | None, **how: Any) -> str | None:
    """One more version, which is held to this bound; the SHA-256 of its guard."""
    guard = None if bound is None else world.guard(bound)
    world.queued()
    world.serve(guard=guard, **how)
    return guard


def grow_old(world: World, guard: str) -> None:
    """Make the clock later than the file, so that it is old enough to be swept."""
    written = world.ledger.models.path(guard).stat().st_mtime
    world.clock.now = max(world.clock.now, world.clock.now.fromtimestamp(written, world.clock.now.tzinfo))


def test_row_and_trail_name_it(world: World):
    guard = serve(world, 1.0)
    version = world.ledger.versions.current("digits")
    assert version.guard == guard == version.to_json()["guard"]
    kept = world.ledger.models.load_guard(version.guard)
    assert kept is not None
    assert kept.lower["w"].tolist() == [1.0] * 3
    assert kept.upper["w"].tolist() == [2.0] * 3
    assert [body.get("guard") for body in bodies(world, "version published")] == [None, guard]
    assert world.ledger.trail.check().intact


def test_without_a_guard_the_trail_is_as_it_was_before_there_were_any(world: World):
    """Not even an entry that is null: the same story has the same hashes."""
    world.served()
    world.ledger.versions.roll_back("digits", 1, "broken", actor="oscar")
    world.clock.go_on(days=31)
    world.destroy()
    first, forgotten = bodies(world, "version published")
    assert {*first} == {"federation", "version", "sha256", "parent", "kind"}
    said = {"version", "federation", "sha256", "parent", "kind", "method", "preset", "evidence", "verdict"}
    assert {*forgotten} == said | {"requests"}
    assert {*bodies(world, "rolled back")[0]} == said | {"restores", "reason", "undone"}
    assert {*bodies(world, "destroyed")[0]} == {"federation", "version", "sha256", "remains"}
    assert guards(world) == [None, None, None]


def test_it_is_registered_with_the_model_and_must_fit_it(world: World):
    model, bounds = {"w": torch.zeros(3)}, torch.zeros(3)
    guard = Guard({"w": bounds}, {"w": bounds + 1})
    for other in ({"v": bounds}, {"w": torch.zeros(4)}):
        with pytest.raises(InputError, match="The guard is of another network"):
            world.ledger.federations.register("held", "local", "/x", DESCRIPTION, model, Guard(other, other))
    assert len(world.ledger.federations.all()) == 1
    world.ledger.federations.register("held", "local", "/x", DESCRIPTION, model, guard)
    version = world.ledger.versions.current("held")
    assert version.guard is not None
    assert bodies(world, "version published")[-1]["guard"] == version.guard
    world.ledger.models.check_guard(version.guard)
    assert world.ledger.trail.check().intact


@pytest.mark.parametrize("measured", [None, 1.0, 2.0])
def test_evidence_that_was_measured_under_another_guard_is_refused(world: World, measured: float | None):
    world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    result = world.result(claim, guard=None if measured is None else world.guard(measured))
    other = world.guard(3.0) if measured != 1.0 else None
    with pytest.raises(InputError, match="was measured under another guard than the one to publish"):
        world.ledger.versions.finish(claim, replace(result, result=replace(result.result, guard=other)))
    assert world.ledger.versions.finish(claim, result).version is not None


@pytest.mark.parametrize(("damage", "words"), [("change", "was changed"), ("delete", "is missing; restore it")])
def test_a_guard_that_is_not_whole_is_neither_published_nor_brought_back(world: World, damage: str, words: str):
    def break_it(guard: str) -> None:
        path = world.ledger.models.path(guard)
        path.write_bytes(path.read_bytes()[:-1] + b"x") if damage == "change" else path.unlink()

    whole = f"The guard file {world.guard()}.safetensors {words}"
    request = world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    result = world.result(claim, says="over-forgotten", guard=world.guard())
    break_it(world.guard())
    with pytest.raises(InputError, match=whole):
        world.ledger.versions.finish(claim, result)
    world.guard()
    world.ledger.versions.finish(claim, result)
    break_it(world.guard())
    with pytest.raises(InputError, match=whole):
        world.ledger.versions.decide(request.id, True, "It is fine.", actor="oscar")
    world.guard()
    world.ledger.versions.decide(request.id, True, "It is fine.", actor="oscar")
    serve(world, None)
    break_it(world.guard())
    with pytest.raises(InputError, match=whole):
        world.ledger.versions.roll_back("digits", 2, "broken", actor="oscar")
    assert guards(world) == [None, world.guard(), None]


def test_an_officer_publishes_it_or_it_is_destroyed(world: World):
    request = world.queued()
    guard = world.guard()
    world.serve(says="over-forgotten", guard=guard)
    grow_old(world, guard)
    assert world.ledger.models.sweep(AT_ONCE) == [], "it waits for the officer"
    world.ledger.versions.decide(request.id, True, "It is fine.", actor="oscar")
    assert guards(world) == [None, guard]
    assert bodies(world, "version published")[-1]["guard"] == guard
    assert bodies(world, "deciding")[-1]["guard"] == guard
    assert bodies(world, "done")[-1]["guard"] == guard
    assert world.ledger.models.sweep(AT_ONCE) == []

    request = world.queued()
    other = world.guard(5.0)
    world.serve(says="over-forgotten", guard=other)
    world.ledger.versions.decide(request.id, False, "It is not.", actor="oscar")
    assert not world.ledger.models.path(other).exists()
    assert world.ledger.models.path(guard).exists()
    assert world.ledger.trail.check().intact


def test_a_result_that_waits_cannot_lose_its_guard(world: World):
    request = world.queued()
    guard = world.guard()
    world.serve(says="over-forgotten", guard=guard)
    with world.ledger.database.writing() as session:
        held = session.scalars(text("SELECT result FROM candidates")).one()
        assert f'"{guard}"' in held
        session.execute(text("UPDATE candidates SET result = replace(result, :old, 'null')"), {"old": f'"{guard}"'})
    with pytest.raises(InputError, match="its evidence was measured under another guard"):
        world.ledger.versions.decide(request.id, True, "It is fine.", actor="oscar")
    assert world.ledger.requests.get(request.id).state == "deciding"
    assert guards(world) == [None]


def test_a_certificate_names_the_guard_that_its_verdict_holds_under(world: World):
    guard = serve(world, 1.0)
    found = [
        world.ledger.versions.certificate_of(event.request or "")
        for event in world.ledger.trail.events(kinds=["done"], after=0)
    ]
    assert found[-1] is not None
    keys = [read_public(key.public) for key in world.ledger.keys.all()]
    record = verify_certificate(found[-1].content.encode(), keys)
    assert record["after"]["guard"] == guard
    assert record["trail"][-1]["body"]["guard"] == guard


def test_a_rollback_brings_back_the_guard_of_the_version_that_it_restores(world: World):
    first, second = serve(world, 1.0), serve(world, 2.0)
    assert world.ledger.versions.roll_back("digits", 2, "broken", actor="oscar").guard == first
    assert world.ledger.versions.roll_back("digits", 3, "no, the other one", actor="oscar").guard == second
    assert world.ledger.versions.roll_back("digits", 1, "none of them", actor="oscar").guard is None
    assert world.ledger.versions.roll_back("digits", 4, "the first", actor="oscar").guard == first
    assert [body.get("guard") for body in bodies(world, "rolled back")] == [first, second, None, first]
    assert world.ledger.trail.check().intact


def test_it_is_destroyed_with_the_last_version_that_has_it(world: World):
    """A request that finds nothing left to forget publishes the guard of the version before."""
    ledger, guard = world.ledger, serve(world, 1.0)
    assert guard is not None
    world.clock.go_on(days=20)
    serve(world, 1.0)
    world.clock.go_on(days=20)
    serve(world, 2.0)
    assert [version.number for version in world.destroy()] == [1]
    world.clock.go_on(days=20)
    assert [version.number for version in world.destroy()] == [2]
    assert not ledger.models.path(ledger.versions.get("digits", 2).sha256).exists()
    assert ledger.models.path(guard).exists(), "version 3 has the same"
    assert ledger.trail.check().intact
    world.clock.go_on(days=20)
    assert [version.number for version in world.destroy()] == [3]
    assert not ledger.models.path(guard).exists()
    assert guards(world) == [None, guard, guard, world.guard(2.0)], "the hashes stay"
    assert [body.get("guard") for body in bodies(world, "destroyed")] == [None, None, guard]
    assert ledger.trail.check().intact
    with pytest.raises(ConflictError, match="were destroyed"):
        ledger.versions.roll_back("digits", 3, "x", actor="oscar")


def test_several_at_once_take_it_with_them(world: World):
    guard = serve(world, 1.0)
    assert guard is not None
    serve(world, 1.0)
    serve(world, None)
    world.clock.go_on(days=31)
    assert [version.number for version in world.destroy()] == [1, 2, 3]
    assert not world.ledger.models.path(guard).exists()
    assert world.ledger.trail.check().intact


def test_another_federation_may_have_the_same(world: World):
    guard = serve(world, 1.0)
    assert guard is not None
    world.register("other")
    world.queued(federation="other")
    world.serve(guard=guard)
    serve(world, None)
    world.clock.go_on(days=31)
    world.destroy()
    assert world.ledger.versions.get("digits", 2).state == "destroyed"
    assert world.ledger.models.path(guard).exists()
    assert world.ledger.trail.check().intact


def test_what_an_officer_may_still_publish_keeps_its_guard(world: World):
    """Its version is gone by then, and the decision is still to come."""
    ledger, guard = world.ledger, serve(world, 1.0)
    assert guard is not None
    request = world.queued()
    world.serve(says="over-forgotten", guard=guard)
    rejected = bodies(world, "deciding")[-1]["sha256"]
    ledger.versions.roll_back("digits", 1, "broken", actor="oscar")
    world.clock.go_on(days=31)
    assert [version.number for version in world.destroy()] == [2]
    assert ledger.models.path(guard).exists()
    assert ledger.trail.check().intact
    ledger.versions.decide(request.id, False, "It is not.", actor="oscar")
    assert not ledger.models.path(guard).exists()
    assert bodies(world, "failed")[-1]["destroyed"] == sorted([guard, rejected])
    assert ledger.trail.check().intact


def test_one_that_was_destroyed_may_be_made_again(world: World):
    """The same request, tried again, ends in the same bits."""
    guard = serve(world, 1.0)
    assert guard is not None
    serve(world, None)
    world.clock.go_on(days=31)
    world.destroy()
    assert bodies(world, "destroyed")[-1]["guard"] == guard
    request = world.queued()
    world.serve(says="over-forgotten", guard=world.guard(1.0))
    assert world.ledger.trail.check().intact, "it waits for the officer"
    world.ledger.versions.decide(request.id, True, "It is fine.", actor="oscar")
    assert world.ledger.versions.current("digits").guard == guard
    assert world.ledger.trail.check().intact
