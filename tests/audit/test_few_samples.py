"""Of very few samples no p-value is given: their error is not known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement

import pytest

from fedforget.audit.distributions import FEWEST_JUDGED, percentage, proportion_error
from fedforget.audit.verdict import LEVEL, Evidence, Reading, conclude


def share(hits: int, judged: int) -> Reading:
    """What `percentage` gives, also of too few."""
    return Reading(100.0 * hits / judged, 100.0 * proportion_error(hits, judged))


def orders(hits: Sequence[int]) -> int:
    """In how many orders these numbers of hits can come."""
    return math.factorial(len(hits)) // math.prod(map(math.factorial, Counter(hits).values()))


def accused(judged: int, oracles: int) -> float:
    """How often one measure accuses a model that is one more oracle, where each gets every sample right with the same
    chance: counted out over all outcomes, for the worst chance."""
    outcomes = []
    for others in combinations_with_replacement(range(judged + 1), oracles):
        for own in range(judged + 1):
            evidence = Evidence(
                "share", "high", share(own, judged), share(judged, judged), tuple(share(k, judged) for k in others)
            )
            if conclude([evidence], with_oracle=True).word == "not forgotten":
                outcomes.append((own, others, orders(others)))
    worst = 0.0
    for chance in (step / 40 for step in range(1, 40)):
        of = [math.comb(judged, k) * chance**k * (1 - chance) ** (judged - k) for k in range(judged + 1)]
        worst = max(worst, sum(ways * of[own] * math.prod(of[k] for k in others) for own, others, ways in outcomes))
    return worst


@pytest.mark.parametrize("judged", [1, 2])
def test_a_share_of_one_or_two_samples_would_accuse_the_innocent(judged: int):
    assert accused(judged, 3) > 4 * LEVEL
    assert percentage(judged, judged) is None


@pytest.mark.parametrize("judged", [FEWEST_JUDGED, 7])
def test_a_share_of_a_few_accuses_no_more_than_it_may(judged: int):
    assert accused(judged, 3) <= LEVEL
    assert percentage(judged, judged) == share(judged, judged)
