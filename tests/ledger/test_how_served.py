"""How requests are served can be changed, for a federation and for one request; and what an officer can do next."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ledger_worlds import World, change, rung

from fedforget.errors import InputError
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.serving import serving
from fedforget.requests import ErasureRequest

UNSEEN, EXACT = rung("overwrite", "not enough evidence"), rung("retrain", "exact", 80.0)
REBUILT = rung("rebuild", "not enough evidence", 7.0)


def waiting(world: World, **how: Any) -> str:
    request = world.queued(**how)
    world.serve(says="not enough evidence", rungs=[UNSEEN])
    return request.id


def test_a_federation_is_served_in_another_way_from_now_on(world: World):
    changed = world.ledger.federations.change(
        "digits", "We want more.", actor="oscar", accuracy_limit=5.0, keep_days=7, four_eyes=True,
        settings={"at_most": "rebuild"},
    )  # fmt: skip
    assert changed.settings == {"exact_below": 60.0, "at_most": "rebuild"}
    assert (changed.accuracy_limit, changed.keep_days, changed.four_eyes) == (5.0, 7, True)
    (event,) = world.ledger.trail.events(kinds=["federation changed"])
    said = json.loads(event.body)
    assert (said["reason"], said["from"]["keep_days"], said["keep_days"]) == ("We want more.", 30, 7)
    assert "together" not in said
    assert world.ledger.trail.check().problems == ()
    changed = world.ledger.federations.change("digits", "Be sure.", actor="oscar", method="retrain")
    assert (changed.method, changed.preset, changed.settings, changed.keep_days) == ("retrain", "default", {}, 7)
    assert world.ledger.trail.check().problems == ()
    change(world.ledger, "UPDATE federations SET four_eyes = NOT four_eyes")
    assert world.ledger.trail.check().problems == (
        "The federation 'digits' has another four_eyes than its events say.",
    )


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"method": "magic"}, "'magic' is unknown"),
        ({"settings": {"at_most": "moon"}}, "The rung 'moon' is unknown"),
        ({"accuracy_limit": 101.0}, "from 0 to 100"),
        ({"keep_days": -1}, "whole number"),
        ({"keep_days": 30}, "already; nothing was changed"),
        ({"four_eyes": "yes"}, "must be true or false"),
    ],
)
def test_what_no_federation_can_be(world: World, changes: Any, complaint: str):
    before = world.ledger.trail.head()
    with pytest.raises((InputError, ConflictError), match=complaint):
        world.ledger.federations.change("digits", "why", actor="oscar", **changes)
    assert world.ledger.trail.head() == before


def test_one_request_is_served_in_its_own_way(world: World):
    federation, requests = world.ledger.federations.get("digits"), world.ledger.requests
    request = world.ask()
    assert serving(federation, request) == ("ladder", "default", {"exact_below": 60.0})
    chosen = requests.choose(request.id, {"at_most": "overwrite", "accuracy_limit": 9.0, "keep_days": 1}, actor="oscar")
    assert serving(federation, chosen)[2] == {"exact_below": 60.0, "at_most": "overwrite"}
    again = requests.choose(request.id, {"at_most": None, "method": "retrain"}, actor="oscar")
    assert serving(federation, again) == ("retrain", "default", {})
    assert again.accuracy_limit == 9.0, "what was not said stays"
    only = requests.choose(request.id, {"method": None, "effort": "rebuild"}, actor="oscar")
    assert serving(federation, only)[2] == {"lowest": "rebuild", "at_most": "rebuild"}
    assert world.ledger.trail.check().problems == ()
    requests.accept(request.id, actor="oscar")
    requests.queue(request.id, actor="oscar")
    assert world.serve(fell=8.0).version is not None, "its own limit holds"
    with pytest.raises(ConflictError, match="is done; how it is served"):
        requests.choose(request.id, {"at_most": None}, actor="oscar")
    assert [version.number for version in world.destroy()] == [1], "and its own time, though others stay for 30 days"


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ({"effort": "moon"}, "The rung 'moon' is unknown"),
        ({"effort": "rebuild", "at_most": "retrain"}, "choose one"),
        ({"method": "retrain", "at_most": "rebuild"}, "about the ladder"),
        ({"method": "magic"}, "'magic' is unknown"),
        ({"accuracy_limit": -1}, "from 0 to 100"),
        ({"keep_days": 0.5}, "whole number"),
        ({"speed": 3}, "There is no choice 'speed'"),
    ],
)
def test_what_cannot_be_chosen(world: World, choices: Any, complaint: str):
    request = world.ask()
    with pytest.raises(InputError, match=complaint):
        world.ledger.requests.choose(request.id, choices, actor="oscar")
    assert world.ledger.requests.get(request.id).to_json() == request.to_json()


def test_a_feature_is_not_rebuilt(world: World):
    request = world.ask(target=ErasureRequest.of_feature(0, 1))
    with pytest.raises(InputError, match="'rebuild' cannot forget"):
        world.ledger.requests.choose(request.id, {"effort": "rebuild"}, actor="oscar")


def test_unlike_choices_are_not_served_together(world: World):
    world.register("many", together=5)
    ids = [world.queued(federation="many", target=ErasureRequest.of_class(client, 0)).id for client in (0, 1, 2)]
    world.ledger.requests.choose(ids[1], {"accuracy_limit": 9.0}, actor="oscar")
    assert [request.id for request in world.claim().requests] == [ids[0], ids[2]]


def test_the_next_rung_is_tried_alone(world: World):
    id = waiting(world)
    world.ledger.decisions.again(id, "rebuild", actor="oscar")
    claim = world.claim()
    assert serving(claim.federation, claim.requests[0])[2] == {"lowest": "rebuild", "at_most": "rebuild"}
    world.ledger.work.start_audit(claim)
    world.ledger.versions.finish(claim, world.result(claim, says="not enough evidence", rungs=[REBUILT]))
    with pytest.raises(ConflictError, match="rung rebuild was tried already"):
        world.ledger.decisions.again(id, "rebuild", actor="oscar")
    assert world.ledger.requests.get(id).state == "deciding", "what waited still waits"
    assert [option.words for option in world.ledger.decisions.options(world.ledger.requests.get(id))] == [
        "Have it retrained", "Publish it all the same", "Refuse the request",
    ]  # fmt: skip
    assert world.ledger.trail.check().problems == ()


def test_options_say_what_they_cost_here(world: World):
    """From the federation's own history, and plainly where there is none."""
    first = world.queued()
    world.serve(says="exact", rungs=[UNSEEN, EXACT])
    assert world.ledger.decisions.options(world.ledger.requests.get(first.id)) == []
    id = waiting(world)
    rebuild, retrain, publish, refuse = world.ledger.decisions.options(world.ledger.requests.get(id))
    assert rebuild.costs == (
        "This rung was never tried in this federation, so what it costs here is not known. Retrain is forecast to take "
        "90 s."
    )
    assert retrain.costs == "Tried here once: 80 s. It ended 1 exact; 1 of 1 would have published."
    assert "never saw the data" in retrain.buys
    assert "it was held: The ladder ended at overwrite" in publish.buys
    assert "complain" in refuse.buys
    world.ledger.decisions.again(id, "rebuild", actor="oscar")
    world.serve(says="exact", rungs=[rung("rebuild", "exact", 7.0)])
    other = waiting(world)
    rebuild = world.ledger.decisions.options(world.ledger.requests.get(other))[0]
    assert (
        rebuild.costs == "Tried here once: 7.0 s, 14 % of a retraining. It ended 1 exact; 1 of 1 would have published."
    )


def test_what_waits_can_be_refused_and_who_was_served_with_it_is_served_again(world: World):
    world.register("many", together=5)
    ids = [world.queued(federation="many", target=ErasureRequest.of_class(client, 0)).id for client in (0, 1)]
    world.serve(says="not forgotten")
    refused = world.ledger.decisions.refuse(ids[0], "It must be kept by law.", actor="oscar")
    assert (refused.state, refused.reason) == ("refused", "It must be kept by law.")
    assert [request.id for request in world.claim().requests] == [ids[1]]
    assert world.ledger.trail.check().problems == ()
    early = world.ask()
    assert world.ledger.decisions.refuse(early.id, "no", actor="oscar").state == "refused"


@pytest.mark.parametrize("act", ["publish", "reject", "again", "refuse"])
def test_four_eyes(world: World, act: str):
    """Neither who submitted nor who accepted decides, under whatever name the trail has them; anybody else may."""
    world.ledger.federations.change("digits", "Two people.", actor="oscar", four_eyes=True)
    id = waiting(world)

    def decide(actor: str) -> None:
        if act == "again":
            world.ledger.decisions.again(id, actor=actor)
        elif act == "refuse":
            world.ledger.decisions.refuse(id, "no", actor=actor)
        else:
            world.ledger.versions.decide(id, act == "publish", "so", actor=actor)

    for actor, did in (("oscar", "accepted"), ("os user maria as oscar", "accepted"), ("ann", "submitted")):
        with pytest.raises(ConflictError, match=f"you {did} this request, so another officer must decide"):
            decide(actor)
    assert world.ledger.requests.get(id).state == "deciding"
    decide("olga")
    assert world.ledger.requests.get(id).state != "deciding"
    assert world.ledger.trail.check().problems == ()


def test_four_eyes_refuse_what_failed_too(world: World):
    """A refusal is a decision, also where no result waits."""
    world.ledger.federations.change("digits", "Two people.", actor="oscar", four_eyes=True)
    id = waiting(world)
    world.ledger.versions.decide(id, False, "so", actor="olga")
    with pytest.raises(ConflictError, match="you accepted this request, so another officer must decide"):
        world.ledger.decisions.refuse(id, "no", actor="oscar")
    assert world.ledger.decisions.refuse(id, "no", actor="olga").state == "refused"


def test_a_result_that_came_to_wait_in_the_meantime_is_not_left_behind(world: World):
    """Between the look at a request and its refusal a worker may have handed in a result."""
    id = waiting(world)
    with pytest.raises(ConflictError, match="deciding"):
        world.ledger.requests.refuse(id, "no", actor="oscar")
    assert world.ledger.decisions.refuse(id, "no", actor="oscar").state == "refused"
    assert world.ledger.trail.check().problems == ()
