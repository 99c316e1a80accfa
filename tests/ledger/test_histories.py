"""Random histories: whatever people and workers do, in whatever order, the ledger fits together at every step."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_worlds import World

from fedforget.ledger.errors import ConflictError, LeaseLostError, MissingError
from fedforget.ledger.states import VersionState
from fedforget.ledger.work import Claim

FEDERATIONS = ("digits", "other")
WORDS = (
    "ask", "accept", "queue", "refuse", "extend", "claim", "audit", "finish", "bad", "fail", "give up", "decide",
    "reject", "rollback", "retry", "wait", "destroy",
)  # fmt: skip
OFTEN = ("ask", "queue", "queue", "claim", "claim", "audit", "audit", "audit", "finish", "finish", "bad", "decide")
"""The way to a result is long: it must be gone often."""
STEPS = st.lists(
    st.tuples(st.sampled_from(WORDS + OFTEN), st.integers(0, 5), st.integers(0, 3)), min_size=10, max_size=60
)


class History:
    """Does one step after another; what the ledger refuses is no fault."""

    def __init__(self, world: World) -> None:
        self.world, self.ledger = world, world.ledger
        self.ids: list[str] = []
        self.claims: list[Claim] = []
        self.done: Counter[str] = Counter()
        self.name = len(world.ledger.requests.page(limit=500).requests)

    def do(self, step: str, which: int, number: int) -> None:
        with suppress(ConflictError, LeaseLostError, MissingError):
            self._do(step, which, number)
            self.done[step] += 1

    def _do(self, step: str, which: int, number: int) -> None:
        ledger = self.ledger
        if step == "ask":
            self.ids.append(self.world.ask(federation=FEDERATIONS[number % 2], subject=f"case-{self.name}-{which}").id)
        elif step == "claim":
            claim = ledger.work.claim(f"worker-{number}")
            self.claims += [claim] if claim else []
        elif step == "wait":
            self.world.clock.go_on(minutes=10 ** (number + 1))
        elif step == "destroy":
            ledger.destruction.destroy_superseded()
        elif step == "rollback":
            ledger.versions.roll_back(FEDERATIONS[number % 2], which, "broken", actor="oscar")
        elif step in ("audit", "finish", "bad", "fail", "give up"):
            if not self.claims:
                return
            claim = self.claims[-1 - which % min(len(self.claims), 2)]
            if step == "audit":
                ledger.work.start_audit(claim)
            elif step == "fail":
                ledger.work.fail(claim, "broken", retry=number > 0)
            elif step == "give up":
                ledger.work.give_back(claim)
            else:
                done = ledger.versions.finish(
                    claim, self.world.result(claim, says="forgotten" if step == "finish" else "not forgotten")
                )
                assert (done.version is None) == (step == "bad")
        elif self.ids:
            id = self.ids[which % len(self.ids)]
            calls: dict[str, Any] = {
                "accept": lambda: ledger.requests.accept(id, actor="oscar"),
                "queue": lambda: (ledger.requests.accept(id, actor="oscar"), ledger.requests.queue(id, actor="oscar")),
                "refuse": lambda: ledger.requests.refuse(id, "no", actor="oscar"),
                "extend": lambda: ledger.requests.extend(id, number, "hard", actor="oscar"),
                "retry": lambda: ledger.requests.retry(id, actor="oscar"),
                "decide": lambda: ledger.versions.decide(id, True, "fine", actor="oscar"),
                "reject": lambda: ledger.versions.decide(id, False, "no", actor="oscar"),
            }
            calls[step]()

    def check(self) -> None:
        found = self.ledger.trail.check()
        assert found.intact, found.problems
        for name in FEDERATIONS:
            versions = self.ledger.versions.of(name)
            assert [version.state == VersionState.CURRENT for version in versions] == [False] * (len(versions) - 1) + [
                True
            ]
            forgotten = {version.number for version in versions if version.kind == "forgotten"}
            for request in self.ledger.requests.page(federation=name, states=["done"], limit=500).requests:
                assert request.version in forgotten
                certificate = self.ledger.versions.certificate_of(request.id)
                assert certificate is not None
                assert (certificate.version, certificate.withdrawn) == (request.version, None)
            held = self.ledger.federations.get(name)
            if held.claim is None:
                working = self.ledger.requests.page(federation=name, states=["forgetting", "auditing"]).requests
                assert working == (), "nobody holds the federation, so nobody works"


@pytest.mark.real
def test_any_history_fits_together(world: World):
    """One ledger for all of them: each goes on where the last one ended. In the end every step was taken, or this would
    show less than it says."""
    world.register("other")
    done: Counter[str] = Counter()

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(steps=STEPS)
    def fits_together(steps: list[tuple[str, int, int]]) -> None:
        before = world.ledger.trail.figures()["requests"]
        history = History(world)
        for step in steps:
            history.do(*step)
        history.check()
        new = sum(world.ledger.trail.figures()["requests"].values()) - sum(before.values())
        assert new == len(set(history.ids)), "none lost, none twice"
        done.update(history.done)

    fits_together()
    assert set(done) == set(WORDS)
