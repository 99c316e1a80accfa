"""The same digests from Flower's simulation on Ray, with every method."""

from __future__ import annotations

from pathlib import Path

import pytest
from flower_processes import processes
from flower_runs import CONFIG, digests_of, flwr_run, in_process

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    "how",
    [
        {"method": "overwrite"},
        pytest.param({"effort": "retrain"}, marks=pytest.mark.slow),
        pytest.param({"method": "all"}, marks=pytest.mark.slow),
    ],
    ids=["overwrite", "effort", "all"],
)
def test_the_simulation_gives_the_same_bits_with_every_method(tmp_path: Path, how: dict[str, str]):
    config = {**CONFIG, **how, "out": str(tmp_path / "out"), "state-dir": str(tmp_path / "nodes")}
    expected = in_process(tmp_path / "local", config)
    assert len(set(expected.values())) == len(expected)
    with processes(tmp_path / "flower") as flower:
        summary = flwr_run(flower, config, *flower.start_simulation(4))
        assert digests_of(summary) == expected, flower.logs()
