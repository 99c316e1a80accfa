"""One client's requests may send a climb up to Retrain a few times; after that an officer must say so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from ledger_worlds import World, rung

from fedforget.ledger.allowance import below_the_top
from fedforget.ledger.work import Claim
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import Rung

FAILED, HARMFUL, EXACT = rung("overwrite", "not forgotten"), rung("rebuild", "harmful", 7.0), rung("retrain", "exact")
UP = (FAILED, HARMFUL, EXACT)
"""What a climb tries that its check sends up to Retrain."""
BOUNDED = (FAILED, HARMFUL)


@pytest.fixture
def few(world: World) -> World:
    """A federation that serves several requests together, and allows each client two such climbs."""
    world.register("few", allowance=2, together=5)
    return world


def climb(world: World, *clients: int, rungs: Sequence[Rung] = UP) -> Claim:
    """A request of each of these clients, all served by one climb; its claim."""
    for client in clients:
        world.queued(federation="few", target=ErasureRequest.of_class(client, 0))
    claim = world.claim()
    assert [request.client for request in claim.requests] == [*clients]
    world.ledger.work.start_audit(claim)
    says = "exact" if rungs[-1] is EXACT else "not forgotten"
    world.ledger.versions.finish(claim, world.result(claim, says=says, rungs=rungs))
    return claim


def bounds(world: World, client: int) -> str | None:
    """Where the next request of this client must end."""
    return climb(world, client, rungs=BOUNDED).at_most


def test_beyond_its_allowance_a_client_ends_below_retrain_and_an_officer_is_told_what_can_be_done(few: World):
    assert [climb(few, 0).at_most for _ in range(2)] == [None, None]
    claim = climb(few, 0, rungs=BOUNDED)
    assert claim.at_most == "rebuild"
    waiting = few.ledger.requests.get(claim.requests[0].id)
    assert waiting.state == "deciding"
    assert waiting.reason == (
        "The ladder ended at rebuild: harmful. The check of rebuild says so. The audit says: not forgotten. The "
        "allowance of client 0 is used up, 2 climbs to Retrain in 30 days without an officer: have it retrained, "
        "publish it all the same, or reject it."
    )
    (begun,) = few.ledger.trail.events(request=waiting.id, kinds=["forgetting"])
    assert json.loads(begun.body)["at_most"] == "rebuild"
    assert few.ledger.trail.check().problems == ()

    few.ledger.decisions.again(waiting.id, actor="oscar")
    retrained = few.claim()
    assert ([request.id for request in retrained.requests], retrained.at_most) == ([waiting.id], None)
    few.ledger.work.start_audit(retrained)
    few.ledger.versions.finish(retrained, few.result(retrained, says="exact", rungs=[EXACT]))
    assert few.ledger.requests.get(waiting.id).state == "done", "it is served, by a person's decision"


def test_each_client_has_its_own_and_they_do_not_end_together(few: World):
    climb(few, 0)
    climb(few, 0)
    both = [few.queued(federation="few", target=ErasureRequest.of_class(client, 0)).id for client in (0, 1, 0)]
    first, second = few.claim(), None
    assert ([request.id for request in first.requests], first.at_most) == ([both[0], both[2]], "rebuild")
    few.ledger.work.start_audit(first)
    few.ledger.versions.finish(first, few.result(first, rungs=BOUNDED))
    second = few.claim()
    assert ([request.id for request in second.requests], second.at_most) == ([both[1]], None)


def test_after_a_month_it_is_whole_again(few: World):
    climb(few, 0)
    few.clock.go_on(days=20)
    climb(few, 0)
    few.clock.go_on(days=9)
    assert bounds(few, 0) == "rebuild"
    few.clock.go_on(days=2)
    assert bounds(few, 0) is None


def test_one_retrain_for_several_requests_of_a_client_counts_once_and_for_each_of_the_clients(few: World):
    climb(few, 0, 0, 1)
    climb(few, 0)
    assert [bounds(few, client) for client in (0, 1, 2)] == ["rebuild", None, None]


@pytest.mark.parametrize("rungs", [(EXACT,), (rung("overwrite", "forgotten"),), BOUNDED], ids=["quick", "low", "held"])
def test_what_did_not_climb_up_to_retrain_does_not_count(few: World, rungs: Sequence[Rung]):
    """Neither does a Retrain that the federation chose, since it is quick."""
    for _ in range(3):
        climb(few, 0, rungs=rungs)
    assert bounds(few, 0) is None


def test_a_climb_that_goes_on_after_its_worker_died_is_not_held_against_itself(few: World):
    climb(few, 0)
    few.queued(federation="few")
    first = few.claim()
    told = [{"name": name, "word": "x"} for name in ("overwrite", "rebuild", "retrain")]
    few.ledger.work.tell_rungs(first, told)
    few.clock.go_on(hours=1)
    again = few.claim("second")
    assert ([request.id for request in again.requests], again.at_most) == ([first.requests[0].id], None)


@pytest.mark.parametrize(
    ("how", "rung"),
    [
        ({}, "rebuild"),
        ({"settings": {"lowest": "rebuild"}}, "rebuild"),
        ({"settings": {"lowest": "retrain"}}, None),
        ({"settings": {"at_most": "rebuild"}}, None),
        ({"method": "retrain"}, None),
    ],
)
def test_there_is_an_allowance_where_there_is_a_choice(world: World, how: dict[str, Any], rung: str | None):
    world.register("other", **how)
    assert below_the_top(world.ledger.federations.get("other"), world.ask(federation="other")) == rung


def test_where_nothing_could_be_shown_the_allowance_changed_nothing(few: World):
    climb(few, 0)
    climb(few, 0)
    claim = climb(few, 0, rungs=[rung("overwrite", "not enough evidence")])
    assert "allowance" not in (few.ledger.requests.get(claim.requests[0].id).reason or "")
