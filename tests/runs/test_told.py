"""What is said of a climb: what was tried, where it ended, what that means, and how to ask for more."""

from __future__ import annotations

from typing import Any

import pytest

from fedforget.audit.check import CheckWord
from fedforget.federation.cost import Cost
from fedforget.params import State
from fedforget.runs.climb import NOT_KEPT, SCOUT_RUNG, STAYS, Rung
from fedforget.runs.told import MEANS, TellingRungs, ended_at, ending, rung_sentence


def rung(name: str, word: str, reason: str = "So it is.", evaluations: float = 100.0) -> Rung:
    return Rung(name, 0.1, Cost({"training": 1.0}, evaluations), word, reason)


WHOLE = Cost(gradient_evaluations=500.0)
OFFER = "Retrain is sure, and takes about 2.0 s here: --effort retrain."


def test_every_word_has_a_meaning():
    assert MEANS.keys() == {*CheckWord.__args__, *NOT_KEPT, "exact"}
    assert all(sentence.endswith(".") for sentence in MEANS.values())


def test_what_was_tried_is_billed_and_the_word_explained():
    rungs = [rung("overwrite", "not forgotten"), rung("rebuild", "forgotten", evaluations=240.0)]
    assert ending(rungs, (), WHOLE, 1000.0) == [
        "Tried: overwrite (not forgotten, 10 % of Retrain), then rebuild (forgotten, 24 % of Retrain). "
        "The checks: 16 % of Retrain.",
        f"Ended at rebuild: forgotten. {MEANS['forgotten']}",
    ]


def test_without_a_forecast_no_share_is_made_up():
    assert ending([rung("retrain", "exact")], (), WHOLE, None)[0] == "Tried: retrain (exact)."


def test_what_took_no_check_names_none():
    assert "checks" not in ending([rung("retrain", "exact")], (), Cost(gradient_evaluations=100.0), 100.0)[0]


@pytest.mark.parametrize(
    ("rungs", "line"),
    [
        ([rung("overwrite", "harmful"), rung("rebuild", "not forgotten")], "Ended at rebuild: not forgotten. "),
        ([rung("overwrite", "not forgotten"), rung("rebuild", "harmful")], "Ended at overwrite: not forgotten. "),
        ([rung("overwrite", "harmful"), rung("rebuild", "diverged")], "The model stays as it was: diverged. "),
        ([rung("overwrite", "not enough evidence", f"Hm. {STAYS}")], "The model stays as it was: not enough evidence"),
    ],
)
def test_where_it_ended_is_the_model_that_is_used(rungs: list[Rung], line: str):
    last = rungs[-1].reason
    said = ending(rungs, (f"{last} {OFFER}", "The sketch is smaller."), WHOLE, 1000.0)
    assert said[1].startswith(line)
    assert (ended_at(rungs) is None) == line.startswith("The model stays")
    assert said[2:] == [OFFER, "The sketch is smaller."], "what the rungs say is not said twice"


class Kept:
    def __init__(self) -> None:
        self.notes: dict[str, Any] = {}

    def load(self, name: str) -> tuple[dict[str, Any], State] | None:
        return (self.notes[name], {}) if name in self.notes else None

    def save(self, name: str, state: State, note: Any) -> None:
        self.notes[name] = note


def test_each_rung_is_told_when_it_is_done_and_when_it_is_found_done():
    said: list[str] = []
    kept, one = Kept(), rung("overwrite", "not forgotten")
    telling = TellingRungs(kept, said.append)
    assert telling.load("overwrite") is None
    assert said == []
    telling.save("overwrite", {}, {"rung": one.to_json()})
    assert kept.notes["overwrite"]["rung"] == one.to_json()
    assert telling.load("overwrite") == (kept.notes["overwrite"], {})
    assert said == [rung_sentence(one)] * 2 == ["overwrite: not forgotten. So it is."] * 2


@pytest.mark.parametrize(("seconds", "quick"), [(2.04, True), (3600.0, False)])
def test_where_retrain_is_quick_it_is_offered_before_the_first_rung(seconds: float, quick: bool):
    said: list[str] = []
    TellingRungs(Kept(), said.append).save(SCOUT_RUNG, {}, {"seconds": seconds})
    assert said == ["Retrain is quick here, about 2.0 s, and exact: ask with --effort retrain."] * quick
