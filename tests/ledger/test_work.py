"""Claims: nothing is served twice, nothing is lost, and who is dead has nothing more to say."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from ledger_worlds import World, change_federation

from fedforget.errors import InputError
from fedforget.ledger.certificate import read_certificate
from fedforget.ledger.errors import LeaseLostError
from fedforget.ledger.work import MOST_ATTEMPTS, MOST_FAILURES, Claim
from fedforget.requests import ErasureRequest


def kinds(world: World, id: str) -> list[str]:
    return [event.kind for event in world.ledger.trail.events(request=id, after=0)]


def test_nothing_to_do(world: World):
    assert world.ledger.work.claim("first") is None
    world.ask()
    assert world.ledger.work.claim("first") is None, "received is not queued"


def test_a_claim_takes_what_came_first(world: World):
    first, second = world.queued(), world.queued()
    claim = world.claim()
    assert [request.id for request in claim.requests] == [first.id]
    assert (claim.requests[0].state, claim.requests[0].attempts, claim.requests[0].worker) == ("forgetting", 1, "first")
    assert (claim.parent.number, claim.federation.name) == (1, "digits")
    assert world.ledger.requests.get(second.id).state == "queued"


def test_one_after_another_in_a_federation_and_side_by_side_in_two(world: World):
    world.register("other")
    world.queued()
    world.queued()
    other = world.queued(federation="other")
    first = world.claim("first")
    second = world.claim("second")
    assert [request.id for request in second.requests] == [other.id]
    assert world.ledger.work.claim("third") is None, "both are held"
    world.ledger.work.start_audit(first)
    world.ledger.versions.finish(first, world.result(first))
    assert world.claim("third").parent.number == 2


def test_only_one_federation_if_asked(world: World):
    world.register("other")
    world.queued()
    assert world.ledger.work.claim("first", federation="other") is None
    assert world.ledger.work.claim("first", federation="digits") is not None


def test_together(world: World):
    """Three wait and two may go together: one version for the two, a certificate each."""
    change_federation(world.ledger, "digits", actor="oscar", together=2)
    asked = [world.queued() for _ in range(3)]
    done = world.serve()
    assert [request.id for request in done.requests] == [asked[0].id, asked[1].id]
    assert {request.version for request in done.requests} == {2}
    assert len(world.ledger.versions.of("digits")) == 2
    assert [r.id for r in world.ledger.versions.served("digits") if r.version == 2] == [asked[0].id, asked[1].id]
    for request in asked[:2]:
        certificate = world.ledger.versions.certificate_of(request.id)
        assert certificate is not None
        assert read_certificate(certificate.content)["request"]["id"] == request.id
    assert [request.id for request in world.serve().requests] == [asked[2].id]
    assert [request.id for request in world.ledger.versions.served("digits")] == [request.id for request in asked]
    assert world.ledger.trail.check().intact


def test_features_and_samples_never_go_together(world: World):
    """No measure judges both: who waits longest goes, with those of its kind."""
    change_federation(world.ledger, "digits", actor="oscar", together=4)
    classes, features = ErasureRequest.of_class(1, 2), ErasureRequest.of_feature(0, 3)
    asked = [world.queued(target=target) for target in (features, classes, features, classes)]
    assert [request.id for request in world.serve().requests] == [asked[0].id, asked[2].id]
    assert [request.id for request in world.serve().requests] == [asked[1].id, asked[3].id]


def test_one_that_failed_is_served_alone(world: World):
    """It may be what made the others fail."""
    change_federation(world.ledger, "digits", actor="oscar", together=5)
    for _ in range(2):
        world.queued()
    world.ledger.work.fail(world.claim(), "broken")
    third = world.queued()
    assert [r.id for r in world.claim().requests] == [third.id], "those that failed wait"
    world.clock.go_on(hours=1)
    claims = []
    for _ in range(3):
        claim = world.claim("next")
        claims.append(len(claim.requests))
        world.ledger.work.start_audit(claim)
        world.ledger.versions.finish(claim, world.result(claim))
    assert claims == [1, 1, 1]
    assert world.ledger.trail.figures()["requests"]["done"] == 3


# Leases


def test_a_lease_is_renewed(world: World):
    world.queued()
    claim = world.claim(lease_seconds=60)
    for _ in range(5):
        world.clock.go_on(seconds=50)
        world.ledger.work.heartbeat(claim, 60)
        assert world.ledger.federations.get("digits").lease_until == world.clock.now + timedelta(seconds=60)
        assert world.ledger.work.claim("second") is None


def test_who_is_silent_is_taken_over(world: World):
    request = world.queued()
    dead = world.claim("dead")
    world.ledger.work.start_audit(dead)
    world.clock.go_on(seconds=59)
    assert world.ledger.work.claim("second") is None
    world.clock.go_on(seconds=2)
    claim = world.claim("second")
    assert [(r.id, r.state, r.attempts, r.worker) for r in claim.requests] == [(request.id, "forgetting", 2, "second")]
    assert kinds(world, request.id)[3:] == ["forgetting", "auditing", "queued", "forgetting"]
    taken = world.ledger.trail.events(request=request.id, kinds=["queued"])[0]
    assert json.loads(taken.body)["taken over from"] == "dead"


def dead_ends(world: World, claim: Claim) -> dict[str, Any]:
    result = world.result(claim)
    return {
        "heartbeat": lambda: world.ledger.work.heartbeat(claim),
        "start_audit": lambda: world.ledger.work.start_audit(claim),
        "finish": lambda: world.ledger.versions.finish(claim, result),
        "fail": lambda: world.ledger.work.fail(claim, "broken"),
        "give_back": lambda: world.ledger.work.give_back(claim),
    }


@pytest.mark.daily(3)
@pytest.mark.parametrize("call", ["heartbeat", "start_audit", "finish", "fail", "give_back"])
@pytest.mark.parametrize("then", ["claimed", "done"])
def test_the_dead_have_nothing_more_to_say(world: World, call: str, then: str):
    """A worker that only slept wakes up after it was taken over: all its calls are refused and change nothing."""
    world.queued()
    dead = world.claim("dead")
    world.ledger.work.start_audit(dead)
    ends = dead_ends(world, dead)
    world.clock.go_on(seconds=61)
    claim = world.claim("second")
    world.ledger.work.start_audit(claim)
    if then == "done":
        world.ledger.versions.finish(claim, world.result(claim))
    before = world.ledger.trail.head()
    with pytest.raises(LeaseLostError):
        ends[call]()
    assert world.ledger.trail.head() == before
    if then == "claimed":
        world.ledger.versions.finish(claim, world.result(claim))
    assert world.ledger.trail.figures()["requests"]["done"] == 1
    assert len(world.ledger.versions.of("digits")) == 2


def test_late_but_not_taken_over_is_not_too_late(world: World):
    world.queued()
    claim = world.claim()
    world.clock.go_on(hours=5)
    world.ledger.work.start_audit(claim)
    assert world.ledger.versions.finish(claim, world.result(claim)).version is not None


def test_finish_counts_once(world: World):
    world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    result = world.result(claim)
    world.ledger.versions.finish(claim, result)
    with pytest.raises(LeaseLostError, match="not wanted any more"):
        world.ledger.versions.finish(claim, result)
    assert len(world.ledger.versions.of("digits")) == 2


def test_a_result_before_the_audit_is_refused(world: World):
    world.queued()
    claim = world.claim()
    with pytest.raises(LeaseLostError, match="have moved on"):
        world.ledger.versions.finish(claim, world.result(claim))
    assert world.ledger.versions.current("digits").number == 1


def test_a_worker_that_stops_gives_back(world: World):
    request = world.queued()
    world.ledger.work.give_back(world.claim())
    found = world.ledger.requests.get(request.id)
    assert (found.state, found.failures) == ("queued", 0)
    assert world.claim("second").requests[0].attempts == 2


@pytest.mark.real
def test_what_kills_every_worker_fails_at_last(world: World):
    request = world.queued()
    for _ in range(MOST_ATTEMPTS):
        world.claim()
        world.clock.go_on(minutes=2)
    assert world.ledger.work.claim("first") is None
    found = world.ledger.requests.get(request.id)
    assert (found.state, found.attempts) == ("failed", MOST_ATTEMPTS)
    assert "died 100 times" in (found.reason or "")
    assert world.ledger.federations.get("digits").claim is None
    assert world.ledger.requests.retry(request.id, actor="oscar").attempts == 0
    assert world.ledger.trail.check().intact


# Failures


def test_it_waits_longer_each_time_and_then_has_failed(world: World):
    request = world.queued()
    waits = []
    for _ in range(MOST_FAILURES - 1):
        (failed,) = world.ledger.work.fail(world.claim(), "client 2 is away")
        assert (failed.state, failed.reason) == ("queued", "client 2 is away")
        waits.append(failed.not_before - failed.changed)
        assert world.ledger.work.claim("first") is None
        world.clock.go_on(seconds=waits[-1].total_seconds() + 1)
    assert [round(wait / timedelta(seconds=1)) for wait in waits] == [30, 60]
    (failed,) = world.ledger.work.fail(world.claim(), "client 2 is away")
    assert (failed.state, failed.reason, failed.failures) == ("failed", "client 2 is away", 3)
    retried = world.ledger.requests.retry(request.id, actor="oscar")
    assert (retried.state, retried.failures) == ("queued", 0)
    assert world.serve().version is not None
    assert world.ledger.trail.check().intact


def test_what_cannot_ever_work_fails_at_once(world: World):
    world.queued()
    (failed,) = world.ledger.work.fail(world.claim(), "There is no such client.", retry=False)
    assert failed.state == "failed"
    assert world.ledger.requests.refuse(failed.id, "The client has left.", actor="oscar").state == "refused"


def test_a_long_reason_is_cut(world: World):
    world.queued()
    (failed,) = world.ledger.work.fail(world.claim(), "x" * 5000)
    assert len(failed.reason or "") == 1000


def test_one_that_failed_lets_the_next_one_go(world: World):
    first, second = world.queued(), world.queued()
    world.ledger.work.fail(world.claim(), "broken")
    assert [r.id for r in world.serve().requests] == [second.id]
    world.clock.go_on(minutes=1)
    assert [r.id for r in world.serve().requests] == [first.id]


# Progress


def test_progress_is_overwritten_and_no_part_of_the_chain(world: World):
    world.queued()
    claim = world.claim()
    before = world.ledger.trail.head()
    for stage, fraction in (("forgetting", 0.2), ("forgetting", 0.7), ("x" * 99, 7.0)):
        world.ledger.work.set_progress(claim, stage, fraction)
    (found,) = world.ledger.work.progress([claim.requests[0].id, "nothing"]).values()
    assert (found.stage, found.fraction) == ("x" * 64, 1.0)
    assert world.ledger.trail.head() == before
    world.clock.go_on(minutes=2)
    world.ledger.work.set_progress(world.claim("second"), "forgetting", 0.1)
    world.ledger.work.set_progress(claim, "forgetting", 0.9)
    (found,) = world.ledger.work.progress([claim.requests[0].id]).values()
    assert found.fraction == 0.1, "the dead do not count"


@pytest.mark.parametrize("worker", ["", "x" * 121, "a\nb"])
def test_a_worker_has_a_name(world: World, worker: str):
    with pytest.raises(InputError, match="needs a name"):
        world.ledger.work.claim(worker)


@pytest.mark.real
def test_many_workers_at_once(world: World):
    """Six workers, four federations, 40 requests: none lost, none twice, one version each."""
    names = ["digits", "b", "c", "d"]
    for name in names[1:]:
        world.register(name)
    ids = [world.queued(federation=names[number % 4]).id for number in range(40)]
    wrong: list[BaseException] = []
    done = threading.Event()

    def work(number: int) -> None:
        while not done.is_set():
            try:
                claim = world.ledger.work.claim(f"worker-{number}")
                if claim is None:
                    if world.ledger.trail.figures()["requests"]["done"] == len(ids):
                        done.set()
                    continue
                world.ledger.work.start_audit(claim)
                world.ledger.versions.finish(claim, world.result(claim))
            except BaseException as error:
                wrong.append(error)
                done.set()
                raise

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert not wrong
    for name in names:
        versions = world.ledger.versions.of(name)
        assert [version.number for version in versions] == list(range(1, 12))
        served = [request.version for request in world.ledger.versions.served(name)]
        assert served == list(range(2, 12)), "one each"
    assert world.ledger.trail.check().intact
