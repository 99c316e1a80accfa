"""A version is published whole or not at all, through the gate; it comes back, and it is destroyed."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from ledger_worlds import READINGS, World, change_federation, weights, write_evidence_of
from sqlalchemy import text

from fedforget.audit.evidence import evidence_record, write_evidence
from fedforget.audit.verdict import conclude
from fedforget.errors import InputError
from fedforget.federation.cost import Cost
from fedforget.ledger import versions
from fedforget.ledger.certificate import read_certificate
from fedforget.ledger.clock import to_text
from fedforget.ledger.core import Core
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.intake import Requests
from fedforget.ledger.results import Handover
from fedforget.ledger.versions import Versions
from fedforget.ledger.work import Work


def test_a_version_says_where_it_comes_from(world: World):
    request = world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    result = world.result(claim, fell=0.5, cost=Cost(bytes=3))
    done = world.ledger.versions.finish(claim, result)
    assert done.version is not None
    first, second = world.ledger.versions.of("digits")
    assert second.to_json() == done.version.to_json() == world.ledger.versions.current("digits").to_json()
    assert (first.state, second.state, second.parent, second.kind) == ("superseded", "current", 1, "forgotten")
    assert (second.sha256, second.method, second.settings, second.cost) == (
        result.result.sha256, "ladder", {"epochs": 1}, Cost(bytes=3).to_json(),
    )  # fmt: skip
    assert (second.verdict, second.accuracy_before, second.accuracy_after) == ("forgotten", 90.0, 89.5)
    found = world.ledger.requests.get(request.id)
    assert (found.state, found.version) == ("done", 2)
    assert world.ledger.requests.evidence_of(request.id) == result.evidence.read_text()
    assert world.ledger.requests.report_of(request.id) is None
    assert torch.equal(weights(world.ledger, second.sha256)["w"], weights(world.ledger, result.result.sha256)["w"])


def test_the_trail_says_the_same_as_ever(world: World):
    """The same story has the same hashes: no event has an entry more than it had."""
    world.served()
    world.ledger.versions.roll_back("digits", 1, "broken", actor="oscar")
    world.clock.go_on(days=31)
    world.destroy()

    def bodies(kind: str) -> list[dict[str, Any]]:
        return [json.loads(event.body) for event in world.ledger.trail.events(kinds=[kind], after=0)]

    first, forgotten = bodies("version published")
    assert {*first} == {"federation", "version", "sha256", "parent", "kind"}
    said = {"version", "federation", "sha256", "parent", "kind", "method", "preset", "evidence", "verdict"}
    assert {*forgotten} == said | {"requests"}
    assert {*bodies("rolled back")[0]} == said | {"restores", "reason", "undone"}
    assert {*bodies("destroyed")[0]} == {"federation", "version", "sha256", "remains"}


def test_a_report_is_kept(world: World, tmp_path: Path):
    page = tmp_path / "report.html"
    page.write_text("<html>é</html>")
    request = world.served()
    assert world.ledger.requests.report_of(request.id) is None
    second = world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    world.ledger.versions.finish(claim, world.result(claim, report=page))
    assert world.ledger.requests.report_of(second.id) == "<html>é</html>"
    assert world.ledger.trail.check().intact


# One transaction


STEPS: tuple[tuple[object, str], ...] = (
    (Core, "insert"),  # of the documents
    (Versions, "_new_version"),
    (Core, "append"),
    (Requests, "move"),
    (versions, "make_certificate"),
    (Work, "release"),
)


@pytest.mark.daily(3)
@pytest.mark.parametrize(("part", "step"), STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_published_whole_or_not_at_all(
    world: World, monkeypatch: pytest.MonkeyPatch, part: object, step: str, when: str
):
    """Killed at any step of publishing, the ledger is as before; another worker ends with exactly one version."""
    request = world.queued()
    claim = world.claim("dead")
    world.ledger.work.start_audit(claim)
    result, before = world.result(claim), world.ledger.trail.head()
    real = getattr(part, step)

    def killed(*args: Any, **how: Any) -> Any:
        if when == "after":
            real(*args, **how)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(part, step, killed)
        with pytest.raises(KeyboardInterrupt):
            world.ledger.versions.finish(claim, result)
    assert world.ledger.trail.head() == before
    assert world.ledger.requests.get(request.id).state == "auditing"
    assert world.ledger.versions.current("digits").number == 1
    assert world.ledger.versions.certificate_of(request.id) is None
    assert world.ledger.trail.check().intact
    world.clock.go_on(minutes=2)
    assert world.serve("second").version is not None
    assert len(world.ledger.versions.of("digits")) == 2
    assert world.ledger.trail.check().intact


def test_a_model_that_is_not_there_is_not_published(world: World):
    world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    result = world.result(claim)
    path = world.ledger.models.path(result.result.sha256)
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(InputError, match="was changed"):
        world.ledger.versions.finish(claim, result)
    path.unlink()
    with pytest.raises(InputError, match="is missing"):
        world.ledger.versions.finish(claim, result)
    assert world.ledger.versions.current("digits").number == 1


def test_evidence_of_another_model_is_refused(world: World):
    world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    result = world.result(claim)
    write_evidence_of("0" * 64, result.evidence)
    with pytest.raises(InputError, match="another model"):
        world.ledger.versions.finish(claim, result)
    record = evidence_record(request={}, run={}, models={}, readings=READINGS, pictures={}, level="quick",
                             verdict=conclude(READINGS, with_oracle=True))  # fmt: skip
    write_evidence(result.evidence, record)
    with pytest.raises(InputError, match="another model"):
        world.ledger.versions.finish(claim, result)


def test_evidence_that_was_changed_is_refused(world: World):
    world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    result = world.result(claim, says="not forgotten")
    said = result.evidence.read_text()
    result.evidence.write_text(said.replace('"word": "not forgotten"', '"word": "forgotten"'))
    with pytest.raises(InputError, match="checksum"):
        world.ledger.versions.finish(claim, result)
    assert world.ledger.versions.current("digits").number == 1


def test_without_a_key_nothing_is_published(world: World):
    world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    (key,) = [path for path in world.ledger.keys.folder.glob("*.pem") if "public" not in path.name]
    data = key.read_bytes()
    key.unlink()
    with pytest.raises(InputError, match="is not there"):
        world.ledger.versions.finish(claim, world.result(claim))
    key.touch(mode=0o600)
    key.write_bytes(data)
    assert world.ledger.versions.finish(claim, world.result(claim)).version is not None


# The gate


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"says": "not forgotten"}, "The audit says: not forgotten."),
        ({"says": "over-forgotten"}, "The audit says: over-forgotten."),
        ({"says": "not enough evidence"}, "The audit says: not enough evidence."),
        ({"fell": 2.01}, "The retained accuracy is 2.01 points below the first version's; the limit is 2."),
        (
            {"says": "exact", "fell": 2.01},
            "The retained accuracy is 2.01 points below the first version's; the limit is 2.",
        ),
        ({"fell": None}, "The retained accuracy could not be measured."),
        ({"fell": float("nan")}, "The retained accuracy could not be measured."),
    ],
)
def test_what_the_gate_holds(world: World, how: dict[str, Any], reason: str):
    request = world.queued()
    done = world.serve(**how)
    assert done.version is None
    found = world.ledger.requests.get(request.id)
    assert (found.state, found.reason) == ("deciding", reason)
    assert world.ledger.requests.evidence_of(request.id) is not None, "the officer sees what was measured"
    assert world.ledger.versions.certificate_of(request.id) is None
    assert world.ledger.versions.current("digits").number == 1
    assert world.ledger.work.claim("next") is None, "and nobody serves it meanwhile"
    assert world.ledger.trail.check().intact


@pytest.mark.parametrize("says", ["forgotten", "exact"])
@pytest.mark.parametrize("fell", [2.0, 0.0, -5.0])
def test_what_the_gate_lets_through(world: World, says: str, fell: float):
    request = world.queued()
    version = world.serve(says=says, fell=fell).version
    assert version is not None
    assert version.verdict == says
    certificate = world.ledger.versions.certificate_of(request.id)
    assert certificate is not None
    assert read_certificate(certificate.content)["measured"]["verdict"]["word"] == says
    assert world.ledger.trail.check().intact


def test_the_limit_counts_from_the_first_version_over_all_requests(world: World):
    """Ten requests that cost 0.9 points each cost nine."""
    for _ in range(2):
        world.queued()
        assert world.serve(fell=0.9).version is not None
    third = world.queued()
    assert world.serve(fell=0.9).version is None
    reason = "The retained accuracy is 2.70 points below the first version's; the limit is 2."
    assert world.ledger.requests.get(third.id).reason == reason
    world.ledger.versions.decide(third.id, True, "We can bear it.", actor="oscar")
    small = world.queued()
    assert world.serve(fell=0.1).version is None, "what an officer let through was lost all the same"
    world.ledger.versions.decide(small.id, False, "No more.", actor="oscar")
    gained = world.queued()
    assert world.serve(fell=-0.7).version is not None, "and what is won back counts as well"
    assert gained.id == world.ledger.versions.served("digits")[-1].id


def test_ten_times_a_tenth_of_the_limit_is_the_limit(world: World):
    for _ in range(10):
        world.queued()
        assert world.serve(fell=0.2).version is not None
    world.queued()
    assert world.serve(fell=0.001).version is None


def test_what_was_rolled_back_has_not_been_lost(world: World):
    for _ in range(2):
        world.queued()
        world.serve(fell=0.9)
    world.ledger.versions.roll_back("digits", 2, "broken", actor="oscar")
    world.queued()
    assert world.serve(fell=0.9).version is not None, "1.8 of 2 points"
    world.ledger.versions.roll_back("digits", 4, "broken", actor="oscar")
    world.queued()
    assert world.serve(fell=1.2).version is None, "2.1"


def test_where_an_earlier_fall_was_not_measured_an_officer_decides(world: World):
    request = world.queued()
    world.serve(fell=None)
    world.ledger.versions.decide(request.id, True, "It is a test.", actor="oscar")
    second = world.queued()
    assert world.serve(fell=0.0).version is None
    assert "of an earlier version was not measured" in (world.ledger.requests.get(second.id).reason or "")


def test_an_officer_publishes(world: World):
    request = world.queued()
    world.serve(says="not forgotten")
    done = world.ledger.versions.decide(request.id, True, "Good enough for a prototype.", actor="oscar")
    assert done.version is not None
    assert [r.state for r in done.requests] == ["done"]
    certificate = world.ledger.versions.certificate_of(request.id)
    assert certificate is not None
    record = read_certificate(certificate.content)
    assert record["decision"] == {
        "officer": "oscar", "reason": "Good enough for a prototype.", "held": "The audit says: not forgotten.",
    }  # fmt: skip
    assert record["measured"]["verdict"]["word"] == "not forgotten", "the certificate says what was measured"
    assert world.ledger.trail.check().intact
    with pytest.raises(ConflictError, match="does not wait"):
        world.ledger.versions.decide(request.id, True, "again", actor="oscar")


def test_an_officer_rejects(world: World):
    request = world.queued()
    world.serve(fell=9.0)
    done = world.ledger.versions.decide(request.id, False, "Too much is lost.", actor="oscar")
    assert done.version is None
    found = world.ledger.requests.get(request.id)
    assert (found.state, found.reason) == ("failed", "oscar rejected the result: Too much is lost.")
    world.ledger.requests.retry(request.id, actor="oscar")
    assert world.serve().version is not None
    assert world.ledger.trail.check().intact


def test_requests_that_were_served_together_share_the_decision(world: World):
    change_federation(world.ledger, "digits", actor="oscar", together=2)
    first, second = world.queued(), world.queued()
    world.serve(fell=9.0)
    done = world.ledger.versions.decide(second.id, True, "fine", actor="oscar")
    assert [request.id for request in done.requests] == [first.id, second.id]
    assert world.ledger.trail.figures()["requests"]["done"] == 2


def test_a_result_from_an_older_version_cannot_be_published(world: World):
    """Or the request served in between would be remembered again. What the sentence says to do leads to a version."""
    held = world.queued()
    world.serve(fell=9.0)
    between = world.served()
    with pytest.raises(ConflictError) as refusal:
        world.ledger.versions.decide(held.id, True, "fine", actor="oscar")
    assert str(refusal.value) == (
        "This result was made from version 1, and version 2 was published since, which publishing it would undo; "
        "reject it, and retry the request: it is then served from version 2."
    )
    assert world.ledger.requests.get(held.id).state == "deciding"
    world.ledger.versions.decide(held.id, False, "again, from the new version", actor="oscar")
    world.ledger.requests.retry(held.id, actor="oscar")
    again = world.serve(fell=9.0)
    assert again.version is None
    done = world.ledger.versions.decide(held.id, True, "fine", actor="oscar").version
    assert done is not None
    assert (done.number, done.parent) == (3, 2)
    assert [request.id for request in world.ledger.versions.served("digits")] == [between.id, held.id]
    assert world.ledger.trail.check().intact


def test_a_decision_interrupts_who_works_from_the_version_before(world: World):
    held = world.queued()
    world.serve(says="over-forgotten")
    next_one = world.queued()
    claim = world.claim("busy")
    world.ledger.work.start_audit(claim)
    world.ledger.versions.decide(held.id, True, "fine", actor="oscar")
    with pytest.raises(Exception, match="not wanted any more"):
        world.ledger.versions.finish(claim, world.result(claim))
    assert world.ledger.requests.get(next_one.id).state == "queued"
    assert world.serve("busy").version is not None
    assert [version.parent for version in world.ledger.versions.of("digits")] == [None, 1, 2]


# Rollback


def test_rollback(world: World):
    first, second = world.served(), world.served()
    version = world.ledger.versions.roll_back("digits", 2, "Accuracy fell at site 3.", actor="oscar")
    assert (version.number, version.parent, version.restores, version.kind) == (4, 3, 2, "rollback")
    assert version.sha256 == world.ledger.versions.get("digits", 2).sha256
    assert world.ledger.versions.current("digits").number == 4
    assert world.ledger.requests.get(first.id).state == "done"
    undone = world.ledger.requests.get(second.id)
    assert (undone.state, undone.version) == ("failed", None)
    assert undone.reason == "Version 3 was rolled back to version 2: Accuracy fell at site 3."
    certificates = [world.ledger.versions.certificate_of(request.id) for request in (first, second)]
    assert [certificate.withdrawn is not None for certificate in certificates] == [False, True]  # type: ignore[union-attr]
    assert [request.id for request in world.ledger.versions.served("digits")] == [first.id]
    assert world.ledger.trail.check().intact


def test_what_was_rolled_back_is_served_again(world: World):
    request = world.served()
    world.ledger.versions.roll_back("digits", 1, "broken", actor="oscar")
    world.ledger.requests.retry(request.id, actor="oscar")
    world.serve()
    assert world.ledger.requests.get(request.id).version == 4
    newest = world.ledger.versions.certificate_of(request.id)
    assert newest is not None
    assert (newest.version, newest.withdrawn) == (4, None)
    assert world.ledger.trail.check().intact


def test_a_rollback_to_a_rollback_knows_what_its_original_knew(world: World):
    first = world.served()  # version 2
    world.ledger.versions.roll_back("digits", 1, "broken", actor="oscar")  # version 3, which knows nothing
    second = world.served()  # version 4
    world.ledger.versions.roll_back("digits", 3, "broken", actor="oscar")
    assert world.ledger.requests.get(second.id).state == "failed"
    assert world.ledger.requests.get(first.id).state == "failed"
    assert world.ledger.versions.served("digits") == []


def test_a_rollback_interrupts_who_works(world: World):
    world.served()
    busy = world.queued()
    claim = world.claim()
    world.ledger.versions.roll_back("digits", 1, "broken", actor="oscar")
    assert world.ledger.requests.get(busy.id).state == "queued"
    with pytest.raises(Exception, match="not wanted any more"):
        world.ledger.work.start_audit(claim)


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    ("to", "error"),
    [(2, ConflictError), (7, MissingError), (0, MissingError), (-1, MissingError), (10**30, MissingError)],
)
def test_a_rollback_that_cannot_be(world: World, to: int, error: type[Exception]):
    world.served()
    with pytest.raises(error, match=f"[Vv]ersion {to} "):
        world.ledger.versions.roll_back("digits", to, "x", actor="oscar")
    with pytest.raises(MissingError, match="no such federation"):
        world.ledger.versions.roll_back("no\0where", to, "x", actor="oscar")


def test_weights_that_were_changed_do_not_come_back(world: World):
    world.served()
    path = world.ledger.models.path(world.ledger.versions.get("digits", 1).sha256)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="was changed"):
        world.ledger.versions.roll_back("digits", 1, "x", actor="oscar")


# Destruction


def _in_days(world: World, number: int, days: float) -> datetime:
    superseded = world.ledger.versions.get("digits", number).superseded
    assert superseded is not None
    return superseded + timedelta(days=days)


def test_superseded_weights_are_destroyed_in_time_and_their_hashes_stay(world: World):
    world.served()
    old = world.ledger.versions.get("digits", 1)
    path = world.ledger.models.path(old.sha256)
    world.clock.go_on(days=29, seconds=-10)
    assert world.ledger.destruction.destroy_superseded() == []
    world.clock.go_on(seconds=20)
    assert world.ledger.destruction.destroy_superseded() == []
    (event,) = world.ledger.trail.events(kinds=["destruction announced"])
    assert json.loads(event.body)["due"] == to_text(_in_days(world, 1, 30))
    world.clock.go_on(days=1, seconds=-5)
    assert world.ledger.destruction.destroy_superseded() == []
    assert path.exists()
    world.clock.go_on(seconds=10)
    assert [version.number for version in world.ledger.destruction.destroy_superseded()] == [1], "in time to the second"
    assert not path.exists()
    found = world.ledger.versions.get("digits", 1)
    assert (found.state, found.sha256) == ("destroyed", old.sha256)
    (event,) = world.ledger.trail.events(kinds=["destroyed"])
    assert json.loads(event.body)["sha256"] == old.sha256
    assert world.ledger.models.path(world.ledger.versions.current("digits").sha256).exists()
    assert world.destroy() == []
    assert world.ledger.trail.check().intact
    with pytest.raises(ConflictError, match="were destroyed"):
        world.ledger.versions.roll_back("digits", 1, "x", actor="oscar")


def test_what_lies_beside_the_weights_goes_with_them(world: World):
    """A checkpoint and a sketch that still hold the target."""
    request = world.queued()
    claim = world.claim()
    files = ("runs/a/checkpoint.pt", "runs/a/sketch.pt")
    for name in files:
        place = world.ledger.home / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{name} of {request.id}")
    world.ledger.work.start_audit(claim)
    world.ledger.versions.finish(claim, world.result(claim, remains=(("checkpoint", files[0]), ("sketch", files[1]))))
    world.clock.go_on(days=31)
    world.destroy()
    assert not any((world.ledger.home / name).exists() for name in files)
    body = json.loads(world.ledger.trail.events(kinds=["destroyed"])[0].body)
    assert [(item["kind"], item["path"]) for item in body["remains"]] == [
        ("checkpoint", files[0]), ("sketch", files[1]),
    ]  # fmt: skip
    assert all(len(item["sha256"]) == 64 for item in body["remains"])
    assert world.ledger.trail.check().intact


def test_another_file_in_its_place_is_not_touched(world: World):
    """It is a later version's, and goes with that one."""
    place = world.ledger.home / "sketch"
    for content in ("first", "second"):
        world.queued()
        claim = world.claim()
        place.write_text(content)
        world.ledger.work.start_audit(claim)
        world.ledger.versions.finish(claim, world.result(claim, remains=(("sketch", "sketch"),)))
        world.clock.go_on(days=20)
    world.clock.go_on(days=-5)
    assert [version.number for version in world.destroy()] == [1]
    assert place.read_text() == "second"
    world.clock.go_on(days=20)
    assert [version.number for version in world.destroy()] == [2]
    assert not place.exists()
    assert world.ledger.trail.check().intact


@pytest.mark.parametrize("path", ["../outside", "/etc/hostname", "not-there"])
def test_only_files_of_the_home_are_ours_to_destroy(world: World, path: str):
    world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    (world.ledger.home.parent / "outside").write_text("x")
    with pytest.raises(InputError, match="no file under the ledger's home"):
        world.ledger.versions.finish(claim, world.result(claim, remains=(("checkpoint", path),)))


def test_weights_that_came_back_are_not_destroyed(world: World):
    """The same bits are the current version again."""
    world.served()
    world.ledger.versions.roll_back("digits", 1, "broken", actor="oscar")
    world.clock.go_on(days=365)
    assert [version.number for version in world.destroy()] == [2]
    assert world.ledger.models.path(world.ledger.versions.current("digits").sha256).exists()
    assert world.ledger.trail.check().intact


def test_each_federation_keeps_as_long_as_it_says(world: World):
    world.register("brief", keep_days=0)
    world.served(federation="brief")
    world.served(federation="digits")
    assert [version.federation for version in world.ledger.destruction.destroy_superseded()] == ["brief"]


def test_interrupted_after_the_file_is_gone_it_is_destroyed_at_last(world: World, monkeypatch: pytest.MonkeyPatch):
    world.served()
    world.clock.go_on(days=31)
    assert world.ledger.destruction.destroy_superseded() == []
    world.clock.go_on(days=1)

    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Core, "append", killed)
        with pytest.raises(KeyboardInterrupt):
            world.ledger.destruction.destroy_superseded()
    assert world.ledger.versions.get("digits", 1).state == "superseded"
    assert [version.number for version in world.ledger.destruction.destroy_superseded()] == [1]
    assert world.ledger.trail.check().intact


def test_files_that_nobody_names_are_swept(world: World):
    """A worker stored its model and died."""
    world.served()
    held = world.queued()
    world.serve(fell=9.0)
    left = world.ledger.models.store({"w": torch.zeros(7)})
    (world.ledger.models.folder / "half.part").write_bytes(b"x")
    assert world.ledger.models.sweep() == [], "too young"
    assert set(world.ledger.models.sweep(timedelta(seconds=-(10**9)))) == {left, "half"}
    (event,) = world.ledger.trail.events(kinds=["swept"])
    assert left in json.loads(event.body)["models"]
    assert world.ledger.trail.check().intact
    assert world.ledger.versions.decide(held.id, True, "fine", actor="oscar").version is not None, "a candidate's stays"


def test_the_same_model_is_one_file(world: World):
    one = world.ledger.models.store({"w": torch.ones(2), "b": torch.zeros(1)})
    again = world.ledger.models.store({"w": torch.ones(2), "b": torch.zeros(1)})
    assert one == again
    assert len(list(world.ledger.models.folder.glob(f"{one}*"))) == 1


def test_a_result_goes_into_the_database_and_back(world: World, tmp_path: Path):
    """A held result is published later with all it had."""
    request = world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    kept = world.ledger.home / "sketch"
    kept.write_text("x")
    page = tmp_path / "report.html"
    page.write_text("<html>")
    result: Handover = world.result(claim, fell=9.0, report=page, cost=Cost(bytes=3), remains=(("sketch", "sketch"),))
    world.ledger.versions.finish(claim, result)
    result.evidence.unlink()
    page.unlink()
    done = world.ledger.versions.decide(request.id, True, "fine", actor="oscar")
    assert done.version is not None
    assert (done.version.cost, done.version.settings) == (Cost(bytes=3).to_json(), {"epochs": 1})
    assert world.ledger.requests.report_of(request.id) == "<html>"
    with world.ledger.database.reading() as session:
        rows = session.execute(text("SELECT version, path FROM remains")).all()
    assert [tuple(row) for row in rows] == [(1, "sketch")]


@pytest.mark.parametrize("cost", [Cost({"server": float("inf")}), Cost({"server": torch.ones(1)})])  # type: ignore[dict-item]
def test_what_cannot_be_written_down_is_refused(world: World, cost: Cost):
    world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    with pytest.raises(InputError, match="plain finite values"):
        world.ledger.versions.finish(claim, world.result(claim, cost=cost))
