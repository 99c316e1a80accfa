"""What is over is destroyed: all of it, when it is due, and by no single reading of a clock."""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime, timedelta

import pytest
from ledger_worlds import DESCRIPTION, Ticking, World, weights

from fedforget.ledger.clock import Jumps
from fedforget.ledger.worker import Worker


def twins(world: World, **settings: int) -> str:
    """One run under two names, forgotten in both; the file they both began with."""
    model = weights(world.ledger, world.ledger.versions.current("digits").sha256)
    world.ledger.federations.register("again", "local", "/nowhere", DESCRIPTION, model, **settings)  # type: ignore[arg-type]
    sha256 = world.ledger.versions.get("digits", 1).sha256
    assert world.ledger.versions.get("again", 1).sha256 == sha256
    world.served()
    world.served(federation="again")
    return sha256


def test_one_run_under_two_names_is_destroyed_under_both(world: World):
    sha256 = twins(world)
    world.clock.go_on(days=31)
    assert [(version.federation, version.number) for version in world.destroy()] == [("again", 1), ("digits", 1)]
    assert not world.ledger.models.path(sha256).exists()
    assert [json.loads(event.body)["sha256"] for event in world.ledger.trail.events(kinds=["destroyed"])] == [
        sha256
    ] * 2
    assert world.ledger.trail.check().intact


def test_one_run_under_two_names_stays_until_the_later_one_is_due(world: World):
    sha256 = twins(world, keep_days=60)
    world.clock.go_on(days=45)
    assert world.destroy() == []
    assert world.ledger.trail.events(kinds=["destruction announced"]) == []
    assert world.ledger.models.path(sha256).exists()
    world.clock.go_on(days=15)
    assert len(world.destroy()) == 2
    assert not world.ledger.models.path(sha256).exists()
    assert world.ledger.trail.check().intact


def test_a_rejected_result_is_destroyed_with_the_decision(world: World):
    request = world.queued()
    world.serve(fell=9.0)
    body = json.loads(world.ledger.trail.events(kinds=["deciding"])[0].body)
    assert world.ledger.models.path(body["sha256"]).exists()
    world.ledger.versions.decide(request.id, False, "It lost too much.", actor="oscar")
    assert not world.ledger.models.path(body["sha256"]).exists()
    (event,) = world.ledger.trail.events(kinds=["failed"])
    assert json.loads(event.body)["destroyed"] == [body["sha256"]]
    assert world.ledger.trail.check().intact


def test_a_rejected_result_that_is_a_version_s_too_stays(world: World):
    """A rollback to a version with the same bits."""
    request = world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    held = world.result(claim, fell=9.0)
    world.ledger.versions.finish(claim, held)
    world.ledger.federations.register(
        "other", "local", "/nowhere", DESCRIPTION, weights(world.ledger, held.result.sha256), keep_days=1
    )
    world.ledger.versions.decide(request.id, False, "It lost too much.", actor="oscar")
    assert world.ledger.models.path(held.result.sha256).exists()
    assert world.ledger.trail.check().intact


# A clock that jumps


@pytest.mark.parametrize("days", [2, 31, 400, 365 * 70])
def test_a_clock_that_jumps_ahead_destroys_nothing(world: World, days: int):
    """However often it is looked at then; and when it is right again, all goes its way."""
    world.served()
    path = world.ledger.models.path(world.ledger.versions.get("digits", 1).sha256)
    right = world.clock.now
    world.clock.go_on(days=days)
    for _ in range(3):
        assert world.ledger.destruction.destroy_superseded() == []
        world.clock.go_on(hours=5)
    world.clock.now = right + timedelta(hours=15)
    world.ledger.trail.append("ann", "looked")
    assert path.exists()
    for _ in range(30):
        assert path.exists()
        world.clock.go_on(days=1)
        world.ledger.destruction.destroy_superseded()
    assert not path.exists()
    assert world.ledger.trail.check().intact


def test_a_clock_that_jumps_twice_destroys_nothing(world: World):
    """To and fro, as in a machine whose clock is set at every start: between the looks events were earlier."""
    world.served()
    right = world.clock.now
    world.clock.go_on(days=400)
    assert world.ledger.destruction.destroy_superseded() == []
    world.clock.now = right + timedelta(days=1)
    world.ledger.trail.append("ann", "looked")
    world.clock.now = right + timedelta(days=402)
    assert world.ledger.destruction.destroy_superseded() == []
    assert world.ledger.models.path(world.ledger.versions.get("digits", 1).sha256).exists()


def test_clocks_that_differ_a_little_hold_nothing_up(world: World):
    world.served()
    world.clock.go_on(days=30)
    assert world.ledger.destruction.destroy_superseded() == []
    world.clock.go_on(minutes=-5)
    world.ledger.trail.append("ann", "looked")
    world.clock.go_on(days=1, minutes=10)
    assert len(world.ledger.destruction.destroy_superseded()) == 1


def test_a_worker_whose_clock_jumps_destroys_nothing_until_a_person_looks(
    world: World, caplog: pytest.LogCaptureFixture
):
    """It has the machine's own clock to compare with: not even a day later."""
    world.served()
    path = world.ledger.models.path(world.ledger.versions.get("digits", 1).sha256)
    worker = Worker(world.ledger, "first", tidy_seconds=0.0)
    assert worker.run(threading.Event(), once=True) == 0
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            world.clock.go_on(days=40)
            worker.run(threading.Event(), once=True)
    assert "The clock went ahead by" in caplog.text
    assert path.exists()
    assert world.ledger.trail.events(kinds=["destruction announced"]) == []
    for _ in range(2):
        Worker(world.ledger, "second").run(threading.Event(), once=True)
        world.clock.go_on(days=1)
    assert not path.exists()


def test_a_jump_is_what_the_machine_s_own_clock_does_not_know():
    seconds, clock = 0.0, Ticking(datetime(2026, 1, 1, tzinfo=UTC))
    jumps = Jumps(clock, lambda: seconds)

    def ahead() -> float:
        return round(jumps.jump() / timedelta(hours=1), 3)

    seconds += 86400
    clock.go_on(days=1)
    assert ahead() == 0, "time went by"
    clock.go_on(hours=5)
    assert ahead() == 5
    clock.go_on(hours=-5)
    assert ahead() == 0, "it was set back"
    clock.go_on(hours=-7)
    assert ahead() == 0, "it had been wrong before"
    clock.go_on(hours=3)
    assert ahead() == 3
