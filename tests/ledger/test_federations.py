"""What a request can be about, and how it is served there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ledger_worlds import DESCRIPTION, World, weights

from fedforget.errors import InputError
from fedforget.federation.rounds import Schedule
from fedforget.ledger.book import Ledger
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.federations import check_there, describe, describe_run
from fedforget.params import digest
from fedforget.requests import ErasureRequest
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run
from fedforget.runs.train import train_run

WEIGHTS = {"w": torch.ones(2)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    config = RunConfig(clients=3, train_limit=90, model="mlp", schedule=Schedule(rounds=1, threads=1))
    train_run(folder, config)
    return folder


def test_a_run_folder_as_a_federation(ledger: Ledger, run: Path):
    federation = ledger.federations.register_run("hospital", run, actor="ann", keep_days=7)
    assert (federation.kind, federation.method, federation.preset, federation.keep_days) == (
        "local", "ladder", "default", 7,
    )  # fmt: skip
    assert Path(federation.place) == run.resolve()
    clients = federation.description["clients"]
    assert [client["client"] for client in clients] == [0, 1, 2]
    assert sum(sum(client["counts"]) for client in clients) == 90
    assert len(federation.description["classes"]) == 10
    current = ledger.versions.current("hospital")
    assert (current.number, current.kind, current.parent) == (1, "first", None)
    assert digest(weights(ledger, current.sha256)) == digest(Run(run).load_model())
    assert ledger.trail.check().intact


def test_numbers_and_nothing_else(run: Path):
    description, _ = describe_run(run)
    numbers = json.dumps(description)
    assert set(description) == {"classes", "clients", "shape"}
    assert all(set(client) == {"client", "name", "samples", "counts"} for client in json.loads(numbers)["clients"])


def test_a_run_that_is_not_finished_is_refused(ledger: Ledger, tmp_path: Path):
    config = RunConfig(clients=2, train_limit=40, model="mlp", schedule=Schedule(rounds=2, threads=1))
    federation = config.build_federation(config.load_dataset())
    Run.create(tmp_path / "begun", config, federation.model.state_dict())
    with pytest.raises(InputError, match="is not finished"):
        ledger.federations.register_run("begun", tmp_path / "begun")
    with pytest.raises(InputError, match="not a run folder"):
        ledger.federations.register_run("nothing", tmp_path)
    assert ledger.federations.all() == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"name": "Upper"}, "no name for a federation"),
        ({"name": ""}, "no name for a federation"),
        ({"name": "../up"}, "no name for a federation"),
        ({"kind": "cloud"}, "local or flower"),
        ({"place": ""}, "needs a place"),
        ({"place": "a\0b"}, "needs a place"),
        ({"description": describe((), {})}, "at least one client"),
        ({"method": "magic"}, "magic"),
        ({"preset": "magic"}, "magic"),
        ({"settings": {"magic": 1}}, "magic"),
        ({"audit_level": "magic"}, "magic"),
        ({"accuracy_limit": -1}, "accuracy limit"),
        ({"settings": {"at_most": "roof"}}, "'roof' is unknown"),
        ({"settings": {"exact_below": -1}}, "'exact_below' of 'ladder' is -1"),
        ({"method": "retrain", "settings": {"exact_below": 5}}, "'retrain' has no setting 'exact_below'"),
        ({"accuracy_limit": float("nan")}, "accuracy limit"),
        ({"accuracy_limit": True}, "accuracy limit"),
        ({"keep_days": -1}, "keep_days"),
        ({"keep_days": 1.5}, "keep_days"),
        ({"together": 0}, "together"),
        ({"allowance": 0}, "'allowance' is 0, but it must be a whole number from 1 to 1000"),
        ({"allowance": 1.5}, "allowance"),
    ],
)
def test_what_cannot_be_registered(ledger: Ledger, change: dict[str, Any], complaint: str):
    values = {"name": "x", "kind": "local", "place": "/x", "description": DESCRIPTION, "model": WEIGHTS, **change}
    with pytest.raises(InputError, match=complaint):
        ledger.federations.register(**values)
    assert ledger.federations.all() == []


def test_a_federation_that_climbs_has_a_limit_below_which_it_is_retrained(world: World):
    for name, how, settings in (
        ("plain", {}, {"exact_below": 60.0}),
        ("bounded", {"settings": {"at_most": "rebuild"}}, {"exact_below": 60.0, "at_most": "rebuild"}),
        ("climbs", {"settings": {"exact_below": 0}}, {"exact_below": 0}),
        ("other", {"method": "overwrite"}, {}),
    ):
        world.register(name, **how)
        assert world.ledger.federations.get(name).settings == settings
    assert world.ledger.trail.check().intact


def test_a_name_is_taken_once(world: World):
    with pytest.raises(ConflictError, match="already"):
        world.register("digits")
    assert len(world.ledger.versions.of("digits")) == 1
    for name in ("nowhere", "no\0where"):
        with pytest.raises(MissingError, match="no such federation"):
            world.ledger.federations.get(name)
        with pytest.raises(MissingError, match="no such federation"):
            world.ledger.versions.of(name)


def test_clients_that_do_not_say_how_their_samples_are_spread():
    (said,) = describe(["a", "b"], {1: [2, 0]})["clients"]
    assert said == {"client": 1, "name": "client 1", "samples": 2, "counts": [2, 0]}
    quiet = {"classes": ["a", "b"], "clients": [{**said, "counts": []}], "shape": []}
    check_there(ErasureRequest.of_class(1, 1), quiet)
    check_there(ErasureRequest.of_samples(1, [3, 5]), quiet)
    with pytest.raises(InputError, match=r"^The request names 3 samples, more than client 1 has\.$"):
        check_there(ErasureRequest.of_samples(1, [3, 5, 7]), quiet)


def test_a_feature_is_held_against_the_samples_shape(run: Path):
    description, _ = describe_run(run)
    assert description["shape"] == [1, 8, 8]
    check_there(ErasureRequest.of_feature(0, [3, 3, 2, 2]), description)
    with pytest.raises(InputError, match=r"^The patch 7,3,2,2 reaches beyond the image of 8x8 pixels\.$"):
        check_there(ErasureRequest.of_feature(0, [7, 3, 2, 2]), description)
    with pytest.raises(InputError, match=r"^The samples have the shape \(1, 8, 8\) and no columns; name a patch"):
        check_there(ErasureRequest.of_feature(0, 3), description)
    with pytest.raises(InputError, match=r"^Client 9 does not exist"):
        check_there(ErasureRequest.of_feature(9, [3, 3, 2, 2]), description)
    table = describe(["a"], {0: [5]}, [30])
    check_there(ErasureRequest.of_feature(0, 29), table)
    with pytest.raises(InputError, match=r"^Column 30 does not exist; the table has columns 0 to 29\.$"):
        check_there(ErasureRequest.of_feature(0, 30), table)


def test_a_description_from_before_features_leaves_the_shape_to_the_client():
    old = {name: value for name, value in describe(["a"], {0: [5]}, [30]).items() if name != "shape"}
    check_there(ErasureRequest.of_feature(0, 30), old)
