"""A run folder that is not what it says is refused with one sentence, before anything of it is in the ledger."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from torch import Tensor

from fedforget.errors import InputError
from fedforget.federation.rounds import Schedule
from fedforget.ledger.book import Ledger
from fedforget.ledger.executor_flower import register_flower
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run
from fedforget.runs.store import model_bytes, read_sealed, write_sealed
from fedforget.runs.train import train_run

State = dict[str, Tensor]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    train_run(folder, RunConfig(clients=2, train_limit=40, model="mlp", schedule=Schedule(rounds=1, threads=1)))
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return copytree(trained, tmp_path / "run")


def refuse(ledger: Ledger, run: Path, complaint: str) -> None:
    """By both ways in."""
    flower = run.parent / "federation.toml"
    flower.write_text('connection = "x"\nrun = "run"\n[[clients]]\nsamples = 20\n[[clients]]\nsamples = 20\n')
    for register in (
        lambda: ledger.federations.register_run("x", run),
        lambda: register_flower(ledger, "x", flower, actor="ann", method="fedaf-c"),
    ):
        with pytest.raises(InputError, match=complaint) as caught:
            register()
        assert "\n" not in str(caught.value)
    assert ledger.federations.all() == []
    assert not ledger.models.folder.exists(), "nothing was stored"


def say(run: Path, **anew: Any) -> None:
    """Another state.json, with a right checksum."""
    write_sealed(run / "state.json", {**read_sealed(run / "state.json"), **anew})


def put(run: Path, data: bytes) -> None:
    """Another model file, with a right checksum."""
    (run / Run(run).trunk.model).write_bytes(data)
    say(run, sha256=hashlib.sha256(data).hexdigest())


def broken(name: str, value: float) -> Callable[[State], None]:
    def change(state: State) -> None:
        state[name].reshape(-1)[1] = value

    return change


CHANGES: dict[str, tuple[Callable[[State], Any], str]] = {
    "NaN": (broken("1.weight", float("nan")), "'1.weight' holds values that are no numbers"),
    "infinity": (broken("1.bias", float("-inf")), "'1.bias' holds values that are no numbers"),
    "one is missing": (lambda state: state.pop("1.bias"), "lacks '1.bias', which its network has"),
    "one too many": (lambda state: state.update(more=torch.ones(2)), "has 'more', which its network has not"),
    "another shape": (
        lambda state: state.update({"1.bias": torch.ones(3)}),
        r"'1.bias' is float32 of \(3,\), but must be float32 of \(",
    ),
    "another type": (
        lambda state: state.update({"1.bias": state["1.bias"].double()}),
        r"'1.bias' is float64 of \(",
    ),
    "none at all": (lambda state: state.clear(), "lacks .*, which its network has"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_model_that_is_not_one_of_its_network(ledger: Ledger, run: Path, what: str):
    state = Run(run).load_model()
    change, complaint = CHANGES[what]
    change(state)
    put(run, model_bytes(state))
    with pytest.raises(InputError, match=complaint) as caught:
        ledger.federations.register_run("x", run)
    assert "\n" not in str(caught.value)
    assert ledger.federations.all() == []
    assert not ledger.models.folder.exists()


HEADER = json.dumps({"w": {"dtype": "F9", "shape": [1], "data_offsets": [0, 4]}}).encode()


@pytest.mark.parametrize(
    "data",
    [b"", b"no model" * 20, struct.pack("<Q", 10**15) + b"{}", struct.pack("<Q", len(HEADER)) + HEADER + b"\0" * 4],
    ids=["nothing", "no header", "a long header", "an unknown type"],
)
def test_a_file_that_is_no_model(ledger: Ledger, run: Path, data: bytes):
    put(run, data)
    refuse(ledger, run, "is no model file")


def test_a_folder_in_the_model_s_place(ledger: Ledger, run: Path):
    path = run / Run(run).trunk.model
    path.unlink()
    path.mkdir()
    refuse(ledger, run, "is missing")


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/hostname", "checkpoints/../../x.safetensors", "", "a\0b", "run.json"]
)
def test_a_trunk_outside_of_the_folder(ledger: Ledger, run: Path, name: str):
    outside = run.parent.parent / "x"
    outside.write_bytes((run / Run(run).trunk.model).read_bytes())
    say(run, model=name)
    refuse(ledger, run, "names '.*' as its own, but that is no file of it")


@pytest.mark.parametrize(
    "said",
    [
        {"model": 3}, {"model": None}, {"sha256": 7}, {"round": "many"}, {"round": None}, {"served": 5},
        {"served": ["x"]}, {"served": [{"client": 0}]},
    ],
    ids=str,
)  # fmt: skip
def test_a_state_that_makes_no_sense(ledger: Ledger, run: Path, said: dict[str, Any]):
    say(run, **said)
    refuse(ledger, run, "makes no sense|no file of it|request")


@pytest.mark.parametrize(
    "config", [None, 5, [], {"schedule": 5}, {"schedule": {"x": 1}}, {"backdoor": {"x": 1}}], ids=str
)
def test_a_configuration_that_makes_no_sense(ledger: Ledger, run: Path, config: Any):
    write_sealed(run / "run.json", {"version": 1, "config": config})
    refuse(ledger, run, "makes no sense")


@pytest.mark.parametrize("name", ["run.json", "state.json"])
@pytest.mark.parametrize("data", [b"\xff\xfe", b"[]", b"{}", b"{", b"[" * 100_000], ids=["1", "2", "3", "4", "5"])
def test_a_damaged_file(ledger: Ledger, run: Path, name: str, data: bytes):
    (run / name).write_bytes(data)
    refuse(ledger, run, r"damaged|makes no sense|version")


def test_what_is_as_it_was_trained_is_registered(ledger: Ledger, run: Path):
    assert ledger.federations.register_run("x", run).name == "x"
    assert ledger.trail.check().intact
