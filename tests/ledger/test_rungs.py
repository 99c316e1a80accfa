"""What a climb tried stands in the trail and in the certificate; where it did not show that the target is forgotten, a
person may have it retrained."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ledger_worlds import World, change, rung
from signed_again import signed_again

from fedforget.errors import InputError
from fedforget.ledger.certificate import verify_certificate
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.keys import read_public
from fedforget.ledger.results import rung_told
from fedforget.ledger.versions import Finished
from fedforget.requests import ErasureRequest

FAILED, PASSED = rung("overwrite", "not forgotten"), rung("rebuild", "forgotten", 7.0)
UNSEEN = rung("overwrite", "not enough evidence")
EXACT = rung("retrain", "exact", 80.0)


def told(world: World, id: str) -> list[dict[str, Any]]:
    return [json.loads(event.body) for event in world.ledger.trail.events(request=id, kinds=["rung"], after=0)]


def record_of(world: World, id: str) -> dict[str, Any]:
    certificate = world.ledger.versions.certificate_of(id)
    assert certificate is not None
    keys = [read_public(key.public) for key in world.ledger.keys.all()]
    return verify_certificate(certificate.content.encode(), keys)


def held(world: World, *ids: str) -> Finished:
    """The next claim ends on a rung that shows nothing."""
    finished = world.serve(says="not enough evidence", rungs=[UNSEEN])
    assert {request.id for request in finished.requests} == {*ids}
    return finished


def test_every_rung_is_an_event_and_stands_in_the_certificate(world: World):
    request = world.queued()
    world.serve(rungs=[FAILED, PASSED])
    one, two = told(world, request.id)
    assert one == {
        "version": 1, "name": "overwrite", "forecast": 0.25, "word": "not forgotten",
        "reason": "The check of overwrite says so.", "model": "d" * 64, "cost": FAILED.cost.to_json(),
        "check": {
            "sees": ["gap"], "accuracy": -0.01, "known": None,
            "measured": [{"name": "gap", "value": 0.25, "error": 0.02, "margin": 0.12, "says": "accuses"}],
        },
    }  # fmt: skip
    assert (two["name"], two["word"], two["cost"]["gradient_evaluations"]) == ("rebuild", "forgotten", 700.0)
    record = record_of(world, request.id)
    assert [{"version": 1, **tried} for tried in record["method"]["rungs"]] == [one, two]
    kinds = [event["kind"] for event in record["trail"]]
    assert kinds[-3:] == ["rung", "rung", "done"]
    assert world.ledger.trail.check().problems == ()


def test_a_rung_is_told_once_while_the_climb_goes_on_and_by_whoever_goes_on_with_it(world: World):
    request = world.queued()
    first, tried = world.claim(), rung_told(FAILED.to_json())
    world.ledger.work.tell_rungs(first, [tried])
    assert [one["name"] for one in told(world, request.id)] == ["overwrite"], "before anything else is known"
    world.clock.go_on(hours=1)
    second = world.claim("second")
    world.ledger.work.tell_rungs(second, [tried])
    world.ledger.work.start_audit(second)
    world.ledger.versions.finish(second, world.result(second, rungs=[FAILED, PASSED]))
    assert [one["name"] for one in told(world, request.id)] == ["overwrite", "rebuild"]
    assert world.ledger.trail.check().problems == ()


def test_a_climb_from_another_version_is_another_climb(world: World):
    request = world.queued()
    world.serve(rungs=[PASSED])
    world.ledger.versions.roll_back("digits", 1, "broken", actor="oscar")
    world.ledger.requests.retry(request.id, actor="oscar")
    world.serve(rungs=[PASSED])
    assert [one["version"] for one in told(world, request.id)] == [1, 3]


@pytest.mark.parametrize("word", ["not enough evidence", "not forgotten", "harmful", "diverged"])
def test_where_the_ladder_does_not_end_in_forgotten_a_person_decides_whatever_the_audit_says(world: World, word: str):
    request = world.queued()
    finished = world.serve(says="forgotten", rungs=[FAILED, rung("rebuild", word)])
    assert finished.version is None
    (waiting,) = finished.requests
    assert waiting.state == "deciding"
    assert waiting.reason == (
        f"The ladder ended at rebuild: {word}. The check of rebuild says so. The audit says: forgotten."
    )
    (event,) = world.ledger.trail.events(request=request.id, kinds=["deciding"])
    assert json.loads(event.body)["retrain"] == {"gradient_evaluations": 5000.0, "seconds": 90.0}
    world.ledger.versions.decide(request.id, True, "It is small.", actor="oscar")
    record = record_of(world, request.id)
    assert [tried["word"] for tried in record["method"]["rungs"]] == ["not forgotten", word]
    assert record["decision"]["held"] == waiting.reason
    assert world.ledger.trail.check().problems == ()


def test_a_person_has_it_retrained(world: World):
    request = world.queued()
    held(world, request.id)
    kept = world.ledger.models.path(candidate_of(world))
    assert kept.exists()
    (again,) = world.ledger.decisions.again(request.id, actor="oscar")
    assert (again.id, again.state, again.effort, again.attempts) == (request.id, "queued", "retrain", 0)
    assert not kept.exists(), "what waited is nobody's"
    (event,) = world.ledger.trail.events(request=request.id, limit=1)
    assert (event.kind, event.actor) == ("queued", "oscar")
    assert json.loads(event.body) == {"from": "deciding", "effort": "retrain", "destroyed": [kept.stem]}
    with pytest.raises(ConflictError, match="does not wait for a decision"):
        world.ledger.versions.decide(request.id, True, "late", actor="oscar")
    assert world.serve(says="exact", rungs=[EXACT]).version is not None
    assert [(one["name"], one["word"]) for one in told(world, request.id)] == [
        ("overwrite", "not enough evidence"), ("retrain", "exact"),
    ]  # fmt: skip
    assert [tried["name"] for tried in record_of(world, request.id)["method"]["rungs"]] == ["retrain"]
    assert world.ledger.trail.check().problems == ()


def candidate_of(world: World) -> str:
    (event,) = world.ledger.trail.events(kinds=["deciding"], limit=1)
    return str(json.loads(event.body)["sha256"])


def test_it_stays_with_that_after_a_failure(world: World):
    request = world.queued()
    held(world, request.id)
    world.ledger.decisions.again(request.id, actor="oscar")
    world.ledger.work.fail(world.claim(), "broken", retry=False)
    assert world.ledger.requests.retry(request.id, actor="oscar").effort == "retrain"
    assert world.claim().requests[0].effort == "retrain"
    assert world.ledger.trail.check().problems == ()


def test_what_failed_may_be_retrained_too(world: World):
    request = world.queued()
    world.ledger.work.fail(world.claim(), "broken", retry=False)
    (again,) = world.ledger.decisions.again(request.id, actor="oscar")
    assert (again.state, again.effort, again.failures) == ("queued", "retrain", 0)


def test_requests_that_were_served_together_are_retrained_together_and_apart_from_others(world: World):
    world.register("many", together=5)
    pair = [world.queued(federation="many", target=ErasureRequest.of_class(client, 0)).id for client in (0, 1)]
    held(world, *pair)
    other = world.queued(federation="many", target=ErasureRequest.of_class(2, 0)).id
    assert {request.id for request in world.ledger.decisions.again(pair[1], actor="oscar")} == {*pair}
    claim = world.claim()
    assert [request.id for request in claim.requests] == pair, "one Retrain serves both, and not who did not ask for it"
    world.ledger.work.start_audit(claim)
    world.ledger.versions.finish(claim, world.result(claim, says="exact", rungs=[EXACT]))
    assert [request.id for request in world.claim().requests] == [other]


def test_one_retrain_serves_all_that_an_officer_wants_retrained(world: World):
    """Though the federation serves its requests one after another: what is exact is judged by no measure."""
    asked = [world.queued().id for _ in range(3)]
    for id in asked:
        held(world, id)
    other = world.queued().id
    for id in reversed(asked):
        world.ledger.decisions.again(id, actor="oscar")
    assert [request.id for request in world.claim().requests] == asked
    assert world.ledger.requests.get(other).state == "queued", "nobody said so of this one"


@pytest.mark.parametrize("state", ["received", "queued", "forgetting", "done", "exact"])
def test_what_cannot_be_retrained(world: World, state: str):
    if state == "received":
        request = world.ask()
    elif state == "done":
        request = world.served()
    else:
        request = world.queued()
    if state == "forgetting":
        world.claim()
    if state == "exact":
        world.serve(says="exact", rungs=[EXACT], fell=30.0)
    before = world.ledger.requests.get(request.id)
    complaint = "was retrained already" if state == "exact" else f"is {state}; it cannot be tried again"
    with pytest.raises(ConflictError, match=complaint):
        world.ledger.decisions.again(request.id, actor="oscar")
    assert world.ledger.requests.get(request.id).to_json() == before.to_json()
    assert world.ledger.trail.check().problems == ()


def test_an_effort_that_nobody_chose_is_named(world: World):
    request = world.queued()
    change(world.ledger, "UPDATE requests SET effort = 'retrain'")
    assert world.ledger.trail.check().problems == (f"Request {request.id} is not the one that its events speak of.",)


@pytest.mark.parametrize(
    "alter",
    [
        lambda rungs: rungs[0].update(word="forgotten"),
        lambda rungs: rungs[1]["cost"].update(gradient_evaluations=1.0),
        lambda rungs: rungs[1].update(model="e" * 64),
        lambda rungs: rungs[1]["check"]["measured"][0].update(value=0.0),
        lambda rungs: rungs.append({**rungs[0], "name": "retrain"}),
    ],
    ids=["another word", "another bill", "another model", "another measure", "one more"],
)
def test_rungs_that_the_trail_does_not_tell_of_do_not_pass(world: World, alter: Any):
    """Signed with the ledger's own key: the trail in it tells otherwise."""
    request = world.queued()
    world.serve(rungs=[FAILED, PASSED])
    certificate = world.ledger.versions.certificate_of(request.id)
    assert certificate is not None
    signed = signed_again(world, certificate.content.encode(), lambda record: alter(record["method"]["rungs"]))
    keys = [read_public(key.public) for key in world.ledger.keys.all()]
    with pytest.raises(InputError, match="its trail tells of other rungs of the ladder"):
        verify_certificate(signed, keys)
