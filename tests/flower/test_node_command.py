"""`fedforget node`: the person who runs a node sees what it withdrew, approves, and takes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flower_worlds import SCHEDULE, World
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg
from in_process_grid import InProcessGrid
from own_flower_app import QUICK, context_of, load_data, own_app
from small_worlds import SIZES, network
from typer.testing import CliRunner

from fedforget.cli.app import app
from fedforget.errors import FedForgetError, InputError
from fedforget.flower import Forget, build_client_app, retained
from fedforget.flower.node_store import NodeStore
from fedforget.methods import forget
from fedforget.requests import ErasureRequest, requests_id

TWOS = ErasureRequest.of_class(0, 2)
NAME = requests_id([TWOS])


def node(*words: str | Path) -> str:
    done = CliRunner().invoke(app, ["node", *map(str, words)])
    if done.exception is not None:
        raise done.exception
    return done.output


def approving_grid(folder: Path) -> InProcessGrid:
    configs: list[dict[str, Any]] = [{"approval": True}, *({} for _ in SIZES[1:])]
    return InProcessGrid(own_app(), len(SIZES), folder, node_configs=configs)


def test_a_request_waits_for_the_operator_and_is_served_then(tmp_path: Path):
    """The training goes on meanwhile; nothing is withdrawn and nothing was worked on."""
    state, grid = tmp_path / "site-0", approving_grid(tmp_path)
    strategy = Forget(FedAvg(), network, **QUICK)
    strategy.request(partition=0, label=2)
    sentence = rf"^Client 0's operator has not approved class 2 of client 0 yet; .*: fedforget node approve .* {NAME}"
    for _ in range(2):
        with pytest.raises(InputError, match=sentence):
            strategy.serve(grid, ArrayRecord(network().state_dict()))
    assert NodeStore(state, 0).withdrawn == ()
    assert f"{NAME}  class 2 of client 0: waits for an approval since 20" in node("list", state)
    assert node("approve", state, NAME).startswith("Approved: class 2 of client 0. It is served when the server asks")
    with pytest.raises(InputError, match=r"^Class 2 of client 0 does not wait for an approval\.$"):
        node("approve", state, NAME)
    strategy.serve(grid, ArrayRecord(network().state_dict()))
    assert len(strategy.served) == 1
    assert NodeStore(state, 0).withdrawn == (TWOS,)


def test_our_own_app_waits_for_the_operator_too(world: World, tmp_path: Path):
    configs: list[dict[str, Any]] = [{"approval": True}, {}, {}, {}]
    grid = InProcessGrid(build_client_app(world.load_client), 4, tmp_path, node_configs=configs)
    request = ErasureRequest.of_class(0, 3)
    with pytest.raises(FedForgetError, match=r"^Client 0's operator has not approved class 3 of client 0 yet;"):
        forget(world.flower(grid), world.before, request, SCHEDULE, "not")
    node("approve", tmp_path / "site-0", requests_id([request]))
    forget(world.flower(grid), world.before, request, SCHEDULE, "not")


def test_what_was_withdrawn_is_listed_with_its_time(tmp_path: Path):
    for number in (0, 1):
        NodeStore(tmp_path / str(number), number).claim()
    NodeStore(tmp_path / "0", 0).withdraw([TWOS, ErasureRequest.of_samples(0, [3, 1])])
    lines = node("list", tmp_path / "0", tmp_path / "1").splitlines()
    assert lines[0] == f"{tmp_path / '0'}: client 0"
    assert lines[1].startswith(f"  {NAME}  class 2 of client 0: withdrawn 20")
    assert "2 samples of client 0: withdrawn 20" in lines[2]
    assert lines[3:] == [f"{tmp_path / '1'}: client 1", "  nothing was withdrawn"]
    told = json.loads(node("list", tmp_path / "0", "--json"))
    assert told[0]["requests"][0]["request"] == TWOS.to_json()
    assert told[0]["requests"][0]["state"] == "withdrawn"


def test_what_an_older_fedforget_wrote_is_listed_too(tmp_path: Path):
    from fedforget.runs.store import write_sealed

    write_sealed(tmp_path / "node.json", {"version": 1, "client": 0, "withdrawn": [TWOS.to_json()]})
    assert "class 2 of client 0: withdrawn when nobody noted it" in node("list", tmp_path)


def test_a_request_is_taken_back_before_it_was_served(tmp_path: Path):
    NodeStore(tmp_path / "site-0", 0).withdraw([TWOS])
    told = node("undo", tmp_path / "site-0", NAME)
    assert told.startswith("Taken back: class 2 of client 0. The data train again from the next round on.")
    assert "stays" not in told
    loader = load_data(context_of(0))
    assert retained(context_of(0, tmp_path), loader) is loader


def test_what_was_served_is_not_taken_back_by_oversight(tmp_path: Path):
    state = tmp_path / "site-0"
    strategy = Forget(FedAvg(), network, **QUICK)
    strategy.request(partition=0, label=2)
    strategy.serve(InProcessGrid(own_app(), len(SIZES), tmp_path), ArrayRecord(network().state_dict()))
    assert ", forgotten from 20" in node("list", state)
    with pytest.raises(InputError, match=r"^A model without class 2 of client 0 was made from 20.* add --anyway\.$"):
        node("undo", state, NAME)
    assert NodeStore(state, 0).withdrawn == (TWOS,)
    assert "What a server has made of it stays: its models, and what its ledger says." in node(
        "undo", state, NAME, "--anyway"
    )
    assert NodeStore(state, 0).withdrawn == ()


def test_what_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"^There is no node\.json in .*; give the state-dir of a node"):
        node("list", tmp_path)
    NodeStore(tmp_path, 0).withdraw([TWOS])
    with pytest.raises(InputError, match=rf"^There is no request 'abc' in .*; there are: {NAME}\.$"):
        node("undo", tmp_path, "abc")
