"""Everybody at once: nobody waits in a circle, nothing is half done, and the chain has no gap."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from ledger_worlds import World

from fedforget.ledger.errors import ConflictError, LeaseLostError, MissingError
from fedforget.requests import ErasureRequest


@pytest.mark.real
@pytest.mark.parametrize("seed", range(2))
def test_everybody_at_once(world: World, seed: int):
    """Six people and workers do anything in any order; keys are rotated and models rolled back meanwhile."""
    ledger = world.ledger
    names = ("digits", "other")
    world.register("other", together=3)
    ids = [world.queued(federation=names[number % 2]).id for number in range(6)]

    def live(number: int) -> int:
        draw, done = random.Random(f"{seed}/{number}"), 0
        for step in range(40):
            what = draw.choice(("submit", "serve", "serve", "event", "extend", "refuse", "rollback", "rotate", "retry",
                                "bad", "destroy", "read"))  # fmt: skip
            with suppress(ConflictError, LeaseLostError, MissingError):
                id, name = draw.choice(ids), draw.choice(names)
                if what == "submit":
                    asked = ledger.requests.submit(name, ErasureRequest.of_class(0, 1), subject=f"c-{step}",
                                                   ground="other", asked_by="ann").request  # fmt: skip
                    ids.append(asked.id)
                    ledger.requests.accept(asked.id, actor="oscar")
                    ledger.requests.queue(asked.id, actor="oscar")
                elif what in ("serve", "bad"):
                    claim = ledger.work.claim(f"worker-{number}")
                    if claim is not None:
                        ledger.work.set_progress(claim, "forgetting", 0.5)
                        ledger.work.heartbeat(claim)
                        ledger.work.start_audit(claim)
                        ledger.versions.finish(claim, world.result(claim, fell=0.0 if what == "serve" else 9.0))
                elif what == "event":
                    ledger.trail.append("ann", "looked", request=id)
                elif what == "extend":
                    ledger.requests.extend(id, 1, "hard", actor="oscar")
                elif what == "refuse":
                    ledger.requests.refuse(id, "no", actor="oscar")
                elif what == "rollback":
                    ledger.versions.roll_back(name, draw.randint(1, 5), "broken", actor="oscar")
                elif what == "rotate":
                    ledger.keys.rotate()
                elif what == "retry":
                    ledger.versions.decide(id, draw.random() < 0.5, "so it is", actor="oscar")
                    ledger.requests.retry(id, actor="oscar")
                elif what == "destroy":
                    ledger.destruction.destroy_superseded()
                else:
                    ledger.requests.page(order="due")
                    ledger.trail.figures()
                done += 1
        return done

    with ThreadPoolExecutor(6) as pool:
        done = sum(pool.map(live, range(6)))
    assert done > 60
    assert ledger.trail.check().problems == ()
