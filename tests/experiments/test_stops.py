"""The check against the truth: which pairs of words are a false stop, a needless climb, or nothing said."""

from __future__ import annotations

from typing import Any

import pytest

from fedforget.experiments.stops import Said, against_the_truth, said_in_climbs, said_of_models


def figures(*said: Said) -> list[str]:
    return [str(value) for value in against_the_truth({"bench": said}).rows[0][2:]]


@pytest.mark.parametrize(
    ("check", "audit", "stops", "climbs", "nothing"),
    [
        ("forgotten", "not forgotten", "1 of 1 (100 %)", "0 of 0", "0 of 1 (0 %)"),
        ("forgotten", "over-forgotten", "1 of 1 (100 %)", "0 of 0", "0 of 1 (0 %)"),
        ("forgotten", "forgotten", "0 of 0", "0 of 1 (0 %)", "0 of 1 (0 %)"),
        ("forgotten", "not enough evidence", "0 of 0", "0 of 0", "0 of 0"),
        ("not forgotten", "forgotten", "0 of 0", "1 of 1 (100 %)", "0 of 1 (0 %)"),
        ("harmful", "forgotten", "0 of 0", "1 of 1 (100 %)", "0 of 1 (0 %)"),
        ("harmful", "over-forgotten", "0 of 1 (0 %)", "0 of 0", "0 of 1 (0 %)"),
        ("not enough evidence", "forgotten", "0 of 0", "0 of 1 (0 %)", "1 of 1 (100 %)"),
        ("not enough evidence", "not forgotten", "0 of 1 (0 %)", "0 of 0", "1 of 1 (100 %)"),
        ("not enough evidence", "not enough evidence", "0 of 0", "0 of 0", "0 of 0"),
        ("exact", "forgotten", "0 of 0", "0 of 1 (0 %)", "0 of 1 (0 %)"),
    ],
)
def test_each_pair_of_words(check: str, audit: str, stops: str, climbs: str, nothing: str):
    assert figures(Said(check, audit)) == [stops, climbs, nothing]


def test_all_benches_together():
    bad, good = Said("forgotten", "not forgotten"), Said("forgotten", "forgotten")
    table = against_the_truth({"one": [bad, good], "two": [good, good, Said("not forgotten", "not forgotten")]})
    assert [[str(value) for value in row[:3]] for row in table.rows] == [
        ["one", "2", "1 of 1 (100 %)"], ["two", "3", "0 of 1 (0 %)"], ["all", "5", "1 of 2 (50 %)"],
    ]  # fmt: skip


def test_what_a_climb_and_a_model_of_known_truth_say():
    def rung(word: str, check: str | None, truth: str | None) -> dict[str, Any]:
        words = (None if one is None else {"word": one} for one in (check, truth))
        return {"word": word, **dict(zip(("check", "truth"), words, strict=True))}

    row = {
        "note": None, "untouched": {"word": "not forgotten"},
        "rungs": [
            rung("not enough evidence", None, None), rung("not forgotten", "not forgotten", "not forgotten"),
            rung("not enough evidence", "forgotten", "forgotten"), rung("diverged", None, None),
            rung("harmful", "harmful", "over-forgotten"), rung("exact", "exact", "not forgotten"),
        ],
    }  # fmt: skip
    assert said_in_climbs([row, {"note": "no model"}]) == [
        Said("not enough evidence", "not forgotten"), Said("not forgotten", "not forgotten"),
        Said("forgotten", "forgotten"), Said("harmful", "over-forgotten"), Said("exact", "forgotten"),
    ]  # fmt: skip
    models = [{"check": {"word": "forgotten"}, "verdict": {"word": "forgotten"}}, {"verdict": {"word": "forgotten"}}]
    assert said_of_models(models) == [Said("forgotten", "forgotten")]
