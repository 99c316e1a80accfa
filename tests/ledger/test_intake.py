"""Requests come in once, are owed by the calendar, and say who did what to them."""

from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ledger_worlds import Ticking, World, change

from fedforget.errors import InputError
from fedforget.ledger.book import Ledger
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.states import OPEN, Ground, RequestState
from fedforget.requests import ErasureRequest

TARGET = ErasureRequest.of_class(0, 1)


def submit(world: World, **changes: Any) -> Any:
    values: dict[str, Any] = {"subject": "case-1", "ground": "objection", "asked_by": "ann"}
    target = changes.pop("target", TARGET)
    return world.ledger.requests.submit(changes.pop("federation", "digits"), target, **(values | changes))


def test_a_request_says_what_was_asked(world: World):
    request = submit(world).request
    assert request.erasure == TARGET
    assert (request.state, request.asked_by, request.client) == ("received", "ann", 0)
    assert request.received == world.ledger.requests.get(request.id).received
    assert request.due == datetime(2026, 2, 28, 12, tzinfo=UTC).replace(microsecond=request.received.microsecond)
    (event,) = world.ledger.trail.events(request=request.id)
    assert event.actor == "ann"
    assert json.loads(event.body)["target"] == {"client": 0, "kind": "class", "label": 1}


def test_the_same_request_twice_is_one(world: World):
    first, again = submit(world), submit(world, asked_by="oscar", ground="unlawful")
    assert (first.created, again.created) == (True, False)
    assert again.request.id == first.request.id
    assert (again.request.asked_by, again.request.ground) == ("ann", "objection"), "as it was first asked"
    assert len(world.ledger.trail.events(request=first.request.id)) == 1


def test_what_was_refused_may_be_asked_again(world: World):
    """Also twice; and while the new one is open, it is one request as ever."""
    known = []
    for _ in range(3):
        found = submit(world)
        assert (found.created, submit(world).created) == (True, False)
        assert submit(world).request.id == found.request.id not in known
        known.append(found.request.id)
        (event,) = world.ledger.trail.events(request=found.request.id)
        assert json.loads(event.body).get("again") == (known[-2] if len(known) > 1 else None)
        world.ledger.requests.refuse(found.request.id, "no", actor="oscar")
    assert world.ledger.trail.check().problems == ()


def test_the_month_runs_from_the_receipt(world: World):
    request = submit(world, received=date(2026, 1, 3), channel="letter").request
    assert (request.received, request.due) == (datetime(2026, 1, 3, tzinfo=UTC), datetime(2026, 2, 3, tzinfo=UTC))
    assert request.channel == "letter"
    assert world.ledger.requests.extend(request.id, 1, "complex", actor="oscar").due.isoformat()[:10] == "2026-03-03"
    today = submit(world, received=date(2026, 1, 31), subject="case-2").request
    assert today.received.hour == 12, "now"
    assert submit(world, received=date(2026, 2, 1), subject="case-3").request.received.day == 31, "east of here"
    change(world.ledger, "UPDATE requests SET received = due")
    problems = world.ledger.trail.check().problems
    assert len(problems) == 3, "held against the events"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"received": date(2026, 2, 2)}, "2026-02-02, lies in the future"),
        ({"received": date(2016, 1, 3)}, "more than two years ago; look at the year"),
        ({"channel": "pigeon"}, "The channel 'pigeon' is unknown"),
    ],
)
def test_a_receipt_that_cannot_be_is_refused(world: World, changes: dict[str, Any], complaint: str):
    before = world.ledger.trail.head()
    with pytest.raises(InputError, match=complaint):
        submit(world, **changes)
    assert world.ledger.trail.head() == before


def test_somebody_checked_who_asks(world: World):
    id = submit(world).request.id
    world.ledger.requests.note_identity(id, "She came with her passport.", actor="oscar")
    (event,) = world.ledger.trail.events(request=id, kinds=["identity checked"])
    assert (event.actor, json.loads(event.body)) == ("oscar", {"how": "She came with her passport."})
    world.ledger.requests.refuse(id, "no", actor="oscar")
    with pytest.raises(ConflictError, match="nothing left to check"):
        world.ledger.requests.note_identity(id, "late", actor="oscar")


def test_found_by_any_part_of_a_word_in_any_case(world: World):
    one = submit(world, subject="Case-100/A", target=ErasureRequest.of_class(1, 2)).request.id
    two = submit(world, subject="other_7", ground="unlawful").request.id

    def found(text: str, **wanted: Any) -> set[str]:
        return {request.id for request in world.ledger.requests.page(text=text, **wanted).requests}

    assert found("cAsE-10") == found("ase-100/a two") == found(one[3:12].upper()) == {one}
    assert found("UNLAW") == found("_7") == {two}
    assert found("client") == found("") == {one, two}
    assert found("%") == found("1_0") == found("case other") == found("a\0b") == found("/_") == set()
    world.ledger.requests.refuse(two, "no", actor="oscar")
    assert found("other") == {two}, "in every state"
    assert found("other", states=["received"]) == set()
    assert found("", ground="unlawful") == {two}
    tomorrow = world.clock.now + timedelta(days=1)
    assert found("", received_from=tomorrow) == found("", received_before=world.clock.now - timedelta(days=9)) == set()
    assert found("", received_before=tomorrow) == {one, two}


def test_found_by_its_verdict(world: World):
    world.served()
    held = world.queued()
    world.serve(says="not forgotten")
    for verdict, ids in (("not forgotten", [held.id]), ("over-forgotten", []), ("x\0", [])):
        assert [request.id for request in world.ledger.requests.page(verdict=verdict).requests] == ids
    assert len(world.ledger.requests.page(verdict="forgotten").requests) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"subject": "case-2"},
        {"target": ErasureRequest.of_class(0, 0)},
        {"target": ErasureRequest.of_class(1, 1)},
        {"target": ErasureRequest.of_client(0)},
        {"target": ErasureRequest.of_samples(0, [1])},
        {"target": ErasureRequest.of_feature(0, 1)},
        {"federation": "other"},
    ],
)
def test_another_request_is_another(world: World, other: dict[str, Any]):
    world.register("other")
    assert submit(world).request.id != submit(world, **other).request.id


def test_a_feature_is_asked_for_and_kept(world: World):
    request = submit(world, target=ErasureRequest.of_feature(0, 5)).request
    assert world.ledger.requests.get(request.id).erasure == ErasureRequest.of_feature(0, 5)
    assert request.to_json()["target"] == {"client": 0, "kind": "feature", "feature": [5]}
    assert request.to_json()["describes"] == "column 5 of client 0"
    assert json.loads(world.ledger.trail.events(request=request.id)[0].body)["target"]["feature"] == [5]
    assert not submit(world, target=ErasureRequest.of_feature(0, [5])).created
    with pytest.raises(InputError, match=r"^Column 6 does not exist; the table has columns 0 to 5\.$"):
        submit(world, target=ErasureRequest.of_feature(0, 6))


@pytest.mark.parametrize(
    ("served_by", "target", "sentence"),
    [
        (
            {"method": "sga"},
            ErasureRequest.of_feature(0, 5),
            "Method 'sga' cannot forget column 5 of client 0: it takes",
        ),
        (
            {"method": "cdp"},
            ErasureRequest.of_feature(0, 5),
            "Method 'cdp' cannot forget column 5 of client 0: it prunes",
        ),
        (
            {"method": "cdp"},
            ErasureRequest.of_samples(0, [1]),
            "CDP prunes the channels of a class, and '1 samples of client 0' names no class; request a class,",
        ),
        (
            {"method": "fedaf-c"},
            ErasureRequest.of_feature(0, 5),
            "Method 'fedaf-c' cannot forget column 5 of client 0: ",
        ),
        (
            {"method": "fedaf"},
            ErasureRequest.of_feature(0, 5),
            "Method 'fedaf' cannot forget column 5 of client 0: it is the paper's, which says nothing of features",
        ),
    ],
)
def test_what_the_federations_method_cannot_serve_is_refused_before_any_work(
    world: World, served_by: dict[str, Any], target: ErasureRequest, sentence: str
):
    world.register("other", **served_by)
    with pytest.raises(InputError) as refusal:
        submit(world, federation="other", target=target)
    assert str(refusal.value).startswith(sentence)
    assert not world.ledger.requests.page().requests
    assert submit(world, federation="other").created, "a class it can"
    assert submit(world, target=target).created, "another federation's can"


def test_the_same_samples_in_another_order_are_the_same(world: World):
    one = submit(world, target=ErasureRequest.of_samples(0, [3, 1, 2]))
    assert not submit(world, target=ErasureRequest.of_samples(0, [2, 3, 1, 1])).created
    assert submit(world, target=ErasureRequest.of_samples(0, [1, 2])).request.id != one.request.id


def test_at_the_same_moment_too(world: World):
    """Eight threads, each with the same ten requests: ten in all, and one event each."""

    def all_of_them(_: int) -> list[tuple[str, bool]]:
        found = [submit(world, subject=f"case-{number}") for number in range(10)]
        return [(done.request.id, done.created) for done in found]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(all_of_them, range(8)))
    assert len({tuple(id for id, _ in answer) for answer in answers}) == 1, "everybody got the same ids"
    assert sum(created for answer in answers for _, created in answer) == 10
    assert world.ledger.trail.figures()["requests"]["received"] == 10
    assert len(world.ledger.trail.events(kinds=["received"], limit=100)) == 10
    assert world.ledger.trail.check().intact


def _submit_in_a_process(home: Path, url: str, ready: Any, answers: Any) -> None:
    with Ledger.open(home, url, clock=Ticking()) as ledger:
        ready.wait()
        for number in range(20):
            done = ledger.requests.submit(
                "digits", TARGET, subject=f"case-{number}", ground="objection", asked_by="ann"
            )
            answers.put((number, done.request.id, done.created))


@pytest.mark.real
def test_from_several_processes_too(world: World):
    """A process of its own has no lock in common with the others but the database's."""
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(2), context.Queue()
    where = (world.ledger.home, world.ledger.database.url)
    processes = [context.Process(target=_submit_in_a_process, args=(*where, ready, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=60) for _ in range(40)]
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    assert len({(number, id) for number, id, _ in found}) == 20
    assert sum(created for *_, created in found) == 20
    assert world.ledger.trail.check().intact


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"target": ErasureRequest.of_class(7, 1)}, "Client 7 does not exist; there are 0, 1, 2"),
        ({"target": ErasureRequest.of_class(0, 9)}, "Class 9 does not exist; there are 0 to 2"),
        ({"target": ErasureRequest.of_class(0, 2)}, "Client 0 has no samples of class 2"),
        ({"target": ErasureRequest.of_samples(2, range(4))}, "names 4 samples, more than client 2 has"),
        ({"subject": "ann@example.org"}, "no subject reference"),
        ({"subject": "Ann Smith"}, "no subject reference"),
        ({"subject": ""}, "no subject reference"),
        ({"subject": "x" * 65}, "no subject reference"),
        ({"subject": "a\0b"}, "no subject reference"),
        ({"subject": "case-\ud800"}, "no subject reference"),
        ({"ground": "because"}, "legal ground 'because' is unknown; choose one of 'consent withdrawn'"),
        ({"federation": "nowhere"}, "no such federation"),
        ({"asked_by": "nobody"}, "no such account"),
    ],
)
def test_what_cannot_be_served_is_refused_before_it_is_a_request(world: World, change: dict[str, Any], complaint: str):
    before = world.ledger.trail.head()
    with pytest.raises(InputError, match=complaint):
        submit(world, **change)
    assert world.ledger.trail.head() == before


def test_every_ground_and_kind(world: World):
    for number, ground in enumerate(Ground):
        assert submit(world, ground=str(ground), subject=f"g-{number}").request.ground == ground
    for target in (ErasureRequest.of_client(2), ErasureRequest.of_samples(1, [5]), ErasureRequest.of_class(1, 2)):
        assert submit(world, target=target).request.erasure == target


def test_accepted_queued_refused(world: World):
    request = world.ask()
    assert world.ledger.requests.accept(request.id, actor="oscar").state == "accepted"
    assert world.ledger.requests.queue(request.id, actor="oscar").state == "queued"
    refused = world.ledger.requests.refuse(request.id, "  not\nours ", actor="oscar")
    assert (refused.state, refused.reason) == ("refused", "not ours")
    events = world.ledger.trail.events(request=request.id, after=0)
    assert [(event.kind, event.actor) for event in events][1:] == [
        ("accepted", "oscar"), ("queued", "oscar"), ("refused", "oscar"),
    ]  # fmt: skip
    assert json.loads(events[-1].body) == {"from": "queued", "reason": "not ours"}


@pytest.mark.parametrize(
    ("do", "state"),
    [
        (lambda w, id: w.ledger.requests.accept(id, actor="oscar"), "refused"),
        (lambda w, id: w.ledger.requests.queue(id, actor="oscar"), "received"),
        (lambda w, id: w.ledger.requests.queue(id, actor="oscar"), "failed"),
        (lambda w, id: w.ledger.requests.retry(id, actor="oscar"), "accepted"),
        (lambda w, id: w.ledger.requests.refuse(id, "no", actor="oscar"), "done"),
        (lambda w, id: w.ledger.requests.refuse(id, "no", actor="oscar"), "forgetting"),
        (lambda w, id: w.ledger.requests.extend(id, 1, "no", actor="oscar"), "done"),
        (lambda w, id: w.ledger.requests.extend(id, 1, "no", actor="oscar"), "refused"),
        (lambda w, id: w.ledger.versions.decide(id, True, "no", actor="oscar"), "queued"),
    ],
)
def test_what_the_state_does_not_allow(world: World, do: Any, state: str):
    request = brought_to(world, state)
    before = world.ledger.trail.head()
    with pytest.raises(ConflictError, match=r"it cannot become|nothing left to extend|does not wait for a decision"):
        do(world, request.id)
    assert world.ledger.trail.head() == before
    assert world.ledger.requests.get(request.id).state == state


def brought_to(world: World, state: str) -> Any:
    request = world.ask()
    if state == "refused":
        return world.ledger.requests.refuse(request.id, "no", actor="oscar")
    if state != "received":
        world.ledger.requests.accept(request.id, actor="oscar")
    if state in ("queued", "forgetting", "failed", "done"):
        world.ledger.requests.queue(request.id, actor="oscar")
    if state == "done":
        world.serve()
    if state in ("forgetting", "failed"):
        claim = world.claim()
        if state == "failed":
            world.ledger.work.fail(claim, "broken", retry=False)
    return world.ledger.requests.get(request.id)


@pytest.mark.parametrize("reason", ["", "  \n ", "x" * 1001, "a\0b", "\x1b[31mred"])
def test_a_reason_is_a_sentence(world: World, reason: str):
    request = world.ask()
    for refused in (
        lambda: world.ledger.requests.refuse(request.id, reason, actor="oscar"),
        lambda: world.ledger.requests.extend(request.id, 1, reason, actor="oscar"),
    ):
        with pytest.raises(InputError, match="reason"):
            refused()


@pytest.mark.parametrize("id", ["", "x", "0" * 32, "A" * 32, "0" * 31, "0" * 33, "\0" * 32, "1' OR '1'='1"])
def test_a_request_that_is_not_there(world: World, id: str):
    for look in (
        lambda: world.ledger.requests.get(id),
        lambda: world.ledger.requests.accept(id, actor="oscar"),
        lambda: world.ledger.requests.evidence_of(id),
        lambda: world.ledger.versions.decide(id, True, "x", actor="oscar"),
        lambda: world.ledger.requests.find(id),
    ):
        with pytest.raises(MissingError, match=r"no request|named by its id"):
            look()


def test_found_by_the_beginning_of_its_id(world: World):
    request = world.ask()
    assert world.ledger.requests.find(request.id[:6]).id == request.id


# Deadlines


def test_a_deadline_moves_by_two_months_at_most_counted_from_the_beginning(world: World):
    """Received on 31 January: due on 28 February, then 31 March, not the 28th; then 30 April."""
    request = world.ask()
    days = [request.due]
    for _ in range(2):
        days.append(world.ledger.requests.extend(request.id, 1, "three sites", actor="oscar").due)
    assert [day.date().isoformat() for day in days] == ["2026-02-28", "2026-03-31", "2026-04-30"]
    with pytest.raises(ConflictError, match="0 more months"):
        world.ledger.requests.extend(request.id, 1, "three sites", actor="oscar")
    found = world.ledger.requests.get(request.id)
    assert (found.extended, found.extension_reason) == (2, "three sites")
    assert [
        json.loads(e.body)["months"] for e in world.ledger.trail.events(request=request.id, kinds=["extended"])
    ] == [2, 1]


@pytest.mark.parametrize("months", [0, -1, 3])
def test_by_so_many_months_it_does_not_move(world: World, months: int):
    with pytest.raises(ConflictError, match="2 more months at most"):
        world.ledger.requests.extend(world.ask().id, months, "x", actor="oscar")


def test_once_it_has_passed_it_does_not_move(world: World):
    request = world.ask()
    world.clock.go_on(days=29)
    with pytest.raises(ConflictError, match="has passed"):
        world.ledger.requests.extend(request.id, 1, "x", actor="oscar")


# Lists


def test_pages_by_date_received(world: World):
    ids = [world.ask().id for _ in range(7)]
    seen, cursor = [], None
    for size in (3, 3, 1):
        page = world.ledger.requests.page(limit=3, after=cursor)
        assert len(page.requests) == size
        seen += [request.id for request in page.requests]
        cursor = page.next
    assert cursor is None
    assert seen == ids[::-1], "newest first"


def test_pages_by_due_date_with_many_at_the_same_moment(world: World):
    world.ledger = Ledger(world.ledger.home, world.ledger.database, lambda: datetime(2026, 1, 1, tzinfo=UTC))
    ids = {world.ask().id for _ in range(9)}
    seen: list[str] = []
    cursor = None
    while True:
        page = world.ledger.requests.page(order="due", limit=2, after=cursor)
        seen += [request.id for request in page.requests]
        cursor = page.next
        if cursor is None:
            break
    assert len(seen) == 9
    assert set(seen) == ids


def test_what_is_due_first_comes_first(world: World):
    early = world.ask()
    world.clock.go_on(days=3)
    late = world.ask()
    world.ledger.requests.extend(early.id, 1, "x", actor="oscar")
    assert [r.id for r in world.ledger.requests.page(order="due").requests] == [late.id, early.id]
    soon = world.ledger.requests.page(due_before=datetime(2026, 3, 5, tzinfo=UTC)).requests
    assert [r.id for r in soon] == [late.id]


def test_filters(world: World):
    world.register("other")
    mine, other = world.ask(), world.ask(federation="other")
    theirs = submit(world, asked_by="oscar", subject="theirs").request
    done = world.served()
    ledger = world.ledger

    def found(**how: Any) -> set[str]:
        return {request.id for request in ledger.requests.page(**how).requests}

    assert found(federation="other") == {other.id}
    assert found(asked_by="oscar") == {theirs.id}
    assert found(subject="theirs") == {theirs.id}
    assert found(states=["done"]) == {done.id}
    assert found(states=sorted(OPEN)) == {mine.id, other.id, theirs.id}
    assert found(states=[]) == set()
    assert found(federation="no\0ne", asked_by="\ud800") == set()
    assert ledger.trail.figures(asked_by="oscar")["requests"]["received"] == 1
    assert ledger.trail.figures()["requests"] == {**dict.fromkeys(RequestState, 0), "received": 3, "done": 1}


@pytest.mark.parametrize(
    "wrong",
    [{"limit": 0}, {"limit": 501}, {"states": ["lost"]}, {"after": ""}, {"after": "x~y"}, {"after": "\0"},
     {"after": "2026-01-31T12:00:00.000000Z~nothing"}],
)  # fmt: skip
def test_a_list_that_cannot_be(world: World, wrong: dict[str, Any]):
    with pytest.raises(InputError, match=r"1 to 500|'lost' is unknown|no cursor|no request"):
        world.ledger.requests.page(**wrong)
