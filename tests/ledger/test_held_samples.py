"""Samples that a client does not hold are refused when they are asked for, where its run folder is on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledger_worlds import World
from worker_worlds import CONFIG

from fedforget.errors import InputError
from fedforget.ledger.run_folders import check_held
from fedforget.requests import ErasureRequest
from fedforget.runs.train import train_run

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("held") / "run"
    train_run(folder, CONFIG)
    return folder


def test_only_what_the_client_holds_is_taken(folder: Path, world: World):
    federation = CONFIG.build_federation(CONFIG.load_dataset())
    own, others = (federation.client(client).samples.ids.tolist() for client in (0, 1))
    world.ledger.federations.register_run("run", folder)
    assert world.ask(ErasureRequest.of_samples(0, own[:4]), "run").state == "received"
    before = world.ledger.trail.head()
    with pytest.raises(InputError, match=f"1 of the 3 samples are not client 0's: {others[0]}. Use the numbers"):
        world.ask(ErasureRequest.of_samples(0, [*own[:2], others[0]]), "run")
    with pytest.raises(InputError, match="and others"):
        world.ask(ErasureRequest.of_samples(0, others[:21]), "run")
    with pytest.raises(InputError, match="Client 7 does not exist"):
        world.ask(ErasureRequest.of_samples(7, own[:1]), "run")
    assert world.ledger.trail.head() == before


def test_where_the_folder_is_elsewhere_the_client_refuses_them_itself(tmp_path: Path):
    check_held(tmp_path / "nowhere", ErasureRequest.of_samples(0, [10**9]))
