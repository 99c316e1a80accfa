"""The same digests from a SuperLink with its SuperNodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flower_processes import processes
from flower_runs import CONFIG, digests_of, flwr_run, in_process, make_app
from masked_flower_app import MASKED

from fedforget.federation.client import SUMS
from fedforget.federation.rounds import Schedule
from fedforget.flower.app.settings import AppSettings
from fedforget.flower.node_store import KeptInFiles
from fedforget.methods import forget
from fedforget.methods.fedaf.extensions.masked_sketch import SECRET_KEY
from fedforget.params import digest
from fedforget.runs.config import RunConfig
from fedforget.runs.head import RidgeHead
from fedforget.runs.store import read_sealed
from fedforget.runs.train import train_run

pytestmark = pytest.mark.real
SHORT: dict[str, Any] = {"model": "mlp", "rounds": 1, "history-interval": 0, "method": "fedaf-c"}
"""Few messages: a process of its own answers each."""


@pytest.mark.parametrize(
    ("nodes", "more", "warm"), [(2, SHORT, False), (2, SHORT, True), pytest.param(4, {}, False, marks=pytest.mark.slow)]
)
def test_a_superlink_with_its_supernodes_gives_the_same_bits(
    tmp_path: Path, nodes: int, more: dict[str, Any], warm: bool
):
    config = {**CONFIG, **more, "clients": nodes, "out": str(tmp_path / "out")}
    expected = in_process(tmp_path / "local", config)
    with processes(tmp_path / "flower") as flower:
        flower.start_supernodes(flower.start_superlink(), nodes, tmp_path / "nodes", warm)
        summary = flwr_run(flower, config)
        assert digests_of(summary) == expected, flower.logs()
        notes = [note for told in summary["forgotten"].values() for note in told["notes"]]
        assert not any("went on without" in note for note in notes), "nobody was away"
    withdrawn = read_sealed(tmp_path / "nodes" / "0" / "node.json")["withdrawn"]
    assert withdrawn == [{"client": 0, "kind": "class", "label": 3}]


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
def test_a_ridge_head_from_three_supernodes_has_the_same_bits(tmp_path: Path, masked: bool):
    """Solved in one run from three processes' sums, and again without the target."""
    run = RunConfig(
        clients=3, train_limit=240, schedule=Schedule(rounds=1, threads=1), head=RidgeHead(features=48, masked=masked)
    )
    config = {"run": json.dumps(run.to_json()), "request-client": 0, "request-class": 3, "out": str(tmp_path / "out")}
    expected = in_process(tmp_path / "local", config)
    with processes(tmp_path / "flower") as flower:
        flower.start_supernodes(flower.start_superlink(), 3, tmp_path / "nodes")
        summary = flwr_run(flower, config)
        assert digests_of(summary) == expected, flower.logs()
    for number in range(3):
        kept = KeptInFiles(tmp_path / "nodes" / str(number))
        assert SUMS in kept
        assert SECRET_KEY not in kept
    withdrawn = read_sealed(tmp_path / "nodes" / "0" / "node.json")["withdrawn"]
    assert withdrawn == [{"client": 0, "kind": "class", "label": 3}]


@pytest.mark.slow
def test_a_masked_sketch_from_three_supernodes_gives_the_same_bits(tmp_path: Path):
    """The server sees the sum of three processes alone, and it is the sum to the bit."""
    config = {**CONFIG, "clients": 3, "model": "mlp", "rounds": 1, "history-interval": 0, "out": str(tmp_path / "out")}
    settings = AppSettings.read(config)
    assert settings.request is not None
    before = train_run(settings.out, settings.run).load_model()
    federation = settings.run.build_federation(settings.run.load_dataset())
    expected = forget(federation, before, settings.request, settings.run.schedule, "overwrite", **MASKED)
    in_the_clear = forget(
        federation, before, settings.request, settings.run.schedule, "overwrite", **{**MASKED, "sketch_masked": False}
    )
    app = make_app(tmp_path / "app", "masked_flower_app", "server_app")
    with processes(tmp_path / "flower") as flower:
        flower.start_supernodes(flower.start_superlink(), 3, tmp_path / "nodes")
        told = flwr_run(flower, config, app=app)
        assert told["digest"] == digest(expected.state), flower.logs()
    assert told["bytes"] == expected.cost.bytes
    assert digest(in_the_clear.state) != digest(expected.state), "each has other hashes: the masks were there"
    for number in range(3):
        kept = KeptInFiles(tmp_path / "nodes" / str(number))
        assert SECRET_KEY not in kept, "the secret key is gone with the request"
