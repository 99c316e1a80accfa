"""Each of Flower's strategies, on a federation that learnt the class: the rows of docs/results/flower-strategies.md."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from benchmarks.flower_strategies import ROWS, served

from fedforget.federation.seam import thread_count

OUTVOTED = ("FedMedian", "FedTrimmedAvg", "Krum")
"""They leave out what one site alone says: its poison was never learnt."""
LEARNT_WITH = {"Krum": 1, "QFedAvg": 1}
"""Where the draws of seed 0 end in a round that does not know the class."""
SAMPLED = "FedAvg, three of four sites a round"
"""There the poison is known as its site took part in the last round or did not."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """As the page was made: the number of threads changes the bits."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    with thread_count(1):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("poison", [False, True], ids=["honest", "poisoned"])
@pytest.mark.parametrize("name", ROWS)
def test_a_request_under_each_strategy_ends_where_retrain_would(name: str, poison: bool):
    found = served(ROWS[name], poison, seed=LEARNT_WITH.get(name, 0))
    before, after = found["before"], found["after"]
    if poison and name in OUTVOTED:
        assert before["target"] < 10
    elif not (poison and name == SAMPLED):
        assert before["target"] > 80, "it learnt the class"
    if ROWS[name].around is not None:
        assert found["refused"].startswith("A strategy around Forget")
        assert after["target"] > 80, "and the training lost nothing"
        return
    assert (found["rung"], found["word"]) == ("retrain", "exact")
    assert after["target"] < 6 if poison else after["target"] > 80
    assert after["test"] > (75 if name == "Krum" else 88), "Krum's is one site's model"
