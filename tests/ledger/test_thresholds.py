"""What a request's measures are held against stands in the trail before its first rung."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ledger_worlds import World, rung

from fedforget.audit import check
from fedforget.audit.thresholds import held_against, thresholds
from fedforget.errors import InputError
from fedforget.ledger.certificate import read_certificate
from fedforget.ledger.results import rung_told

RUNGS = [rung("overwrite", "not forgotten"), rung("rebuild", "forgotten", 7.0)]


def test_they_are_written_down_before_the_first_rung(world: World):
    request = world.queued()
    claim = world.claim()
    world.ledger.work.tell_rungs(claim, [rung_told(RUNGS[0].to_json())])
    world.ledger.work.start_audit(claim)
    world.ledger.versions.finish(claim, world.result(claim, rungs=RUNGS))
    events = world.ledger.trail.events(request=request.id, after=0)
    (written,) = (event for event in events if "thresholds" in json.loads(event.body))
    assert all(written.number < event.number for event in events if event.kind == "rung")
    said = json.loads(written.body)["thresholds"]
    assert said == {**thresholds(), "accuracy_limit": 2.0, "audit_level": "quick"} == claim.thresholds
    certificate = world.ledger.versions.certificate_of(request.id)
    assert certificate is not None
    assert read_certificate(certificate.content)["thresholds"] == said
    assert world.ledger.trail.check().problems == ()


@pytest.mark.parametrize("moved", ["base", "errors"])
def test_a_rung_that_was_held_against_others_is_not_published(world: World, moved: str):
    """As by a worker of another version, or one that moved them until the model passed."""
    request = world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    base, errors = (0.0, 0.30) if moved == "base" else (0.02, 5.0)
    changed = []
    for tried in RUNGS:
        assert tried.check is not None
        measured = [replace(item, margin=0.06 + base + errors * item.error) for item in tried.check.measured]
        changed.append(replace(tried, check=replace(tried.check, measured=tuple(measured))))
    with pytest.raises(InputError, match="held against other thresholds"):
        world.ledger.versions.finish(claim, world.result(claim, rungs=changed))
    assert world.ledger.requests.get(request.id).state == "auditing"


def test_a_climb_that_began_under_others_is_not_certified(world: World, monkeypatch: pytest.MonkeyPatch):
    """Its first rung is from before the software changed. (A worker begins such a climb anew: the job is another.)"""
    world.queued()
    with monkeypatch.context() as patch:
        patch.setitem(check.BASE, "excess", 0.5)
        world.ledger.work.tell_rungs(world.claim(lease_seconds=1.0), [rung_told(RUNGS[0].to_json())])
    world.clock.go_on(seconds=2)
    with pytest.raises(InputError, match="tried before its thresholds were written down"):
        world.serve("second", rungs=RUNGS)
    assert world.ledger.versions.current("digits").number == 1


def test_the_margin_is_base_and_errors():
    """By hand: 0.06 + 3 * 0.02 = 0.12, at once and one round later."""
    item: dict[str, Any] = {"name": "gap", "error": 0.02, "margin": 0.12}
    later = {"name": "gap one round later", "error": 0.01, "margin": 0.09}
    assert held_against({"check": {"measured": [item, later]}}, thresholds())
    assert not held_against({"check": {"measured": [item, {**later, "margin": 0.091}]}}, thresholds())
    assert held_against({"check": None}, thresholds())


def test_the_gaps_base_follows_from_what_was_known_before():
    """By hand: 94 % were known, so at most half of the other 6 points: 0.03 + 3 * 0.02 = 0.09. Older ones had 0.06."""
    item = {"name": "gap", "error": 0.02, "margin": 0.09}
    excess = {"name": "excess", "error": 0.02, "margin": 0.1}
    rung = {"check": {"measured": [item, excess], "known": 0.94}}
    assert held_against(rung, thresholds())
    assert not held_against({"check": {"measured": [{**item, "margin": 0.12}], "known": 0.94}}, thresholds())
    assert not held_against({"check": {"measured": [item]}}, thresholds())
    older = {"check": {name: value for name, value in thresholds()["check"].items() if name != "of_unknown"}}
    assert not held_against(rung, older)
    assert held_against({"check": {"measured": [{**item, "margin": 0.12}, excess]}}, older)
