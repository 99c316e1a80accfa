"""The same digests from a SuperLink with four SuperNodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from flower_processes import free_ports, processes
from flower_runs import CONFIG, digests_of, flwr_run, in_process

from fedforget.runs import read_sealed

pytestmark = pytest.mark.real


def test_a_superlink_with_four_supernodes_gives_the_same_bits(tmp_path: Path):
    config = {**CONFIG, "out": str(tmp_path / "out")}
    expected = in_process(tmp_path / "local", config)
    with processes(tmp_path / "flower") as flower:
        port = flower.start_superlink()
        for number, node_port in enumerate(free_ports(4)):
            settings = f"partition-id={number} num-partitions=4 state-dir='{tmp_path / 'nodes' / str(number)}'"
            flower.start(
                f"supernode-{number}", "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}",
                "--host", "127.0.0.1", "--port", str(node_port), "--node-config", settings,
            )  # fmt: skip
        summary = flwr_run(flower, config)
        assert digests_of(summary) == expected, flower.logs()
        assert summary["forgotten"]["fedaf:recommended"]["notes"] == []
    withdrawn = read_sealed(tmp_path / "nodes" / "0" / "node.json")["withdrawn"]
    assert withdrawn == [{"client": 0, "kind": "class", "label": 3}]
