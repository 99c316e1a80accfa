"""Our own federation as a Flower app: its two sides over the in-process Grid, and its run config."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_process_grid import InProcessGrid

from fedforget.data import load_dataset
from fedforget.data.partition import partition
from fedforget.data.samples import Samples
from fedforget.errors import FedForgetError, InputError
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import run_round
from fedforget.flower import APP
from fedforget.flower.app.apps import client_app, serve
from fedforget.flower.app.settings import DEFAULTS, AppSettings
from fedforget.methods import DEFAULT_METHOD, METHODS
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.audit import audit_run
from fedforget.runs.folder import Run, Trunk
from fedforget.runs.forget import forget_run
from fedforget.runs.ladder import climb
from fedforget.runs.record import Result
from fedforget.runs.train import train_run

CONFIG: dict[str, Any] = {
    "clients": 3, "rounds": 2, "lr": 0.05, "batch-size": 16, "threads": 1, "train-limit": 180,
    "request-client": 0, "request-class": 3, "backdoor": True, "join-timeout-s": 1.0,
}  # fmt: skip


def grid_for(config: dict[str, Any], tmp_path: Path) -> InProcessGrid:
    return InProcessGrid(client_app, config["clients"], tmp_path / "nodes", config)


@pytest.mark.real
def test_the_whole_story_over_flower_is_the_one_in_process(tmp_path: Path):
    """Train, forget, audit against Retrain: the same run folder, but for the times."""
    settings = AppSettings.read({**CONFIG, "out": str(tmp_path / "flower"), "audit": True, "method": "ladder,sga"})
    summary = serve(grid_for(CONFIG, tmp_path), settings)
    train_run(tmp_path / "local", settings.run)
    for method, preset in settings.methods:
        assert settings.request is not None
        forget_run(tmp_path / "local", [settings.request], method, preset)
    expected = audit_run(tmp_path / "local").to_json()
    for name in ("run.json", "state.json", "metrics.jsonl"):
        assert (tmp_path / "flower" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    assert (tmp_path / "flower" / "report.html").exists()
    for row, same in zip(summary["audit"], expected["rows"], strict=True):
        distances = [told.pop("distance_to_retrain", {}) for told in (row, same)]
        assert distances[0] == pytest.approx(distances[1]), "a sum over models that lie elsewhere in memory"
        assert timeless(row) == timeless(same)
    rows = {f"{row['method']}:{row['preset']}": row["model"] for row in expected["rows"]}
    assert {name: told["digest"] for name, told in summary["forgotten"].items()} == {
        name: rows[name] for name in ("ladder:default", "sga:ewc")
    }
    assert summary["trained"] == rows["before:None"]
    assert json.loads((tmp_path / "flower" / "summary.json").read_text())["forgotten"] == summary["forgotten"]
    (climbed,) = [row for row in expected["rows"] if row["method"] == "ladder"]
    for name in ("rungs", "notes", "retrain_forecast"):
        assert timeless(summary["forgotten"]["ladder:default"][name]) == timeless(climbed[name])


@pytest.mark.real
def test_a_verdict_without_an_oracle_over_flower_is_the_one_in_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """What is measured on private data is measured at the node; nothing is retrained. The log tells of it all, for
    `flwr run --stream`."""
    caplog.set_level("INFO", "flwr")
    config = {**CONFIG, "out": str(tmp_path / "flower"), "audit": True, "audit-level": "alone"}
    settings = AppSettings.read(config)
    summary = serve(grid_for(CONFIG, tmp_path), settings)
    assert settings.request is not None
    train_run(tmp_path / "local", settings.run)
    forget_run(tmp_path / "local", [settings.request], adopt=True)
    expected = audit_run(tmp_path / "local", level="alone").to_json()["rows"]
    assert [row["method"] for row in summary["audit"]] == [row["method"] for row in expected] == ["before", "ladder"]
    assert [row["verdict"] for row in summary["audit"]] == [row["verdict"] for row in expected]
    assert summary["audit"][1]["verdict"]["oracles"] == 0
    assert (tmp_path / "flower" / summary["audit"][1]["evidence"]["file"]).exists()
    rounds = settings.run.schedule.rounds
    assert [f"Round {done + 1} of {rounds} is done." for done in range(rounds)] == [
        line for line in caplog.messages if line.startswith("Round ")
    ]
    (verdict,) = [line for line in caplog.messages if line.startswith("The audit says of ladder")]
    assert summary["audit"][1]["verdict"]["word"] in verdict


@pytest.mark.real
def test_a_feature_over_flower_is_the_one_in_process(tmp_path: Path):
    config = {k: v for k, v in CONFIG.items() if k not in ("backdoor", "request-class")}
    config |= {"request-feature": "2,2,4,4", "audit": True}
    settings = AppSettings.read({**config, "out": str(tmp_path / "flower")})
    assert settings.request == ErasureRequest.of_feature(0, [2, 2, 4, 4])
    summary = serve(grid_for(config, tmp_path), settings)
    assert summary["target"] == "the 4x4 patch at 2,2 of client 0"
    train_run(tmp_path / "local", settings.run)
    forget_run(tmp_path / "local", [settings.request], adopt=True)
    expected = audit_run(tmp_path / "local").to_json()["rows"]
    assert [row["model"] for row in summary["audit"]] == [row["model"] for row in expected]
    for row, same in zip(summary["audit"], expected, strict=True):
        assert row["sensitivity"] == pytest.approx(same["sensitivity"])


@pytest.mark.real
def test_the_ladder_over_flower_ends_with_the_bits_of_one_process(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It is what the app does unless it is told otherwise, and how far it goes is said in the command line's words."""
    config = {**CONFIG, "out": str(tmp_path / "flower"), "at-most": "rebuild", "hold-out": 0.2}
    settings = AppSettings.read(config)
    assert settings.request is not None
    with caplog.at_level("INFO", logger="flwr"):
        told = serve(grid_for(config, tmp_path), settings)["forgotten"]["ladder:default"]
    train_run(tmp_path / "local", settings.run)
    folder = forget_run(tmp_path / "local", [settings.request], at_most="rebuild")
    assert folder is not None
    here, there = Result.read(folder), Result.read(tmp_path / "flower" / told["folder"])
    assert told["digest"] == digest(here.load_model(folder))
    assert [(rung.name, rung.word, rung.check) for rung in there.rungs] == [
        (rung.name, rung.word, rung.check) for rung in here.rungs
    ]
    assert f"{here.rungs[0].name}: about " in caplog.text, "what it will cost is said before it begins"
    alone = AppSettings.read({**config, "at-most": "", "effort": "retrain"})
    assert alone.climbing == {"lowest": "retrain", "at_most": "retrain"}


TIMES = {"seconds", "seconds_by_stage", "peak_bytes"}


def timeless(told: Any) -> Any:
    """What was told, but for the clock and the memory."""
    if isinstance(told, dict):
        return {name: timeless(value) for name, value in told.items() if name not in TIMES}
    if isinstance(told, list):
        return [timeless(value) for value in told]
    return re.sub(r"about [\d.]+ s", "about - s", told) if isinstance(told, str) else told


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "rung"),
    [({"effort": "retrain"}, "retrain"), ({"at-most": "overwrite"}, "overwrite"), ({"effort": "rebuild"}, "rebuild")],
)
def test_a_climb_begins_and_ends_where_the_run_config_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, words: dict[str, Any], rung: str
):
    """And the log tells how it goes on."""
    settings = AppSettings.read({**CONFIG, **words, "out": str(tmp_path / "run")})
    with caplog.at_level(logging.INFO, "flwr"):
        first = serve(grid_for(CONFIG, tmp_path), settings)["forgotten"]
    (climbed,) = first["ladder:default"]["rungs"]
    assert climbed["name"] == rung
    said = [record.getMessage() for record in caplog.records if record.name == "flwr"]
    said = said[next(place for place, sentence in enumerate(said) if " of a retraining" in sentence) :]
    assert said[0].startswith(f"{rung}: about ")
    assert said[1] == f"{rung}: {climbed['word']}. {climbed['reason']}"
    assert said[2].startswith(f"Tried: {rung} ({climbed['word']}, ")
    assert climbed["word"] in said[3]
    assert serve(grid_for(CONFIG, tmp_path), settings)["forgotten"] == first, "the same again changes nothing"
    other = AppSettings.read(
        {**CONFIG, "effort": "rebuild" if rung == "retrain" else "retrain", "out": str(settings.out)}
    )
    with pytest.raises(InputError, match=r"^The run has served class 3 of client 0 already, and went on from there;"):
        serve(grid_for(CONFIG, tmp_path), other)


def test_a_run_goes_on_in_its_folder(tmp_path: Path):
    """Train only, and serve the request in another run later."""
    out = {"out": str(tmp_path / "run")}
    config = {k: v for k, v in CONFIG.items() if k != "backdoor"}
    first = serve(
        grid_for(config, tmp_path), AppSettings.read({**config, **out, "request-client": -1, "request-class": -1})
    )
    assert first["forgotten"] == {}
    later = serve(grid_for(config, tmp_path), AppSettings.read({**config, **out}))
    assert later["trained"] == first["trained"]
    assert list(later["forgotten"]) == ["ladder:default"]
    assert Run(tmp_path / "run").rounds_done == 2
    with pytest.raises(InputError, match=r"holds another run; choose another out\.$"):
        serve(grid_for(config, tmp_path), AppSettings.read({**config, **out, "lr": 0.1}))


@pytest.mark.real
def test_the_next_request_starts_from_the_last_ones_model(tmp_path: Path):
    out = {"out": str(tmp_path / "run")}
    config = {k: v for k, v in CONFIG.items() if k != "backdoor"}
    first = serve(grid_for(config, tmp_path), AppSettings.read({**config, **out}))
    forgot = first["forgotten"]["ladder:default"]["digest"]
    again = serve(grid_for(config, tmp_path), AppSettings.read({**config, **out, "method": "sga"}))
    assert again["forgotten"] == first["forgotten"], "the same request again changes nothing"
    second = serve(grid_for(config, tmp_path), AppSettings.read({**config, **out, "request-client": 1}))
    assert second["trained"] == forgot
    served = [ErasureRequest.of_class(0, 3), ErasureRequest.of_class(1, 3)]
    assert list(Run(tmp_path / "run").served) == served
    settings = AppSettings.read(config)
    federation = settings.run.build_federation(settings.run.load_dataset())
    start = Run(tmp_path / "run").load_trunk(Trunk("checkpoints/round-002-served-1.safetensors", _sum(tmp_path, 1)))
    expected = climb(federation, start, served[1], settings.run.schedule, served=served[:1])
    assert second["forgotten"]["ladder:default"]["digest"] == digest(expected.state)


def _sum(tmp_path: Path, served: int) -> str:
    path = tmp_path / "run" / "checkpoints" / f"round-002-served-{served}.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def save_npz(file: Path, train: Samples, test: Samples) -> str:
    np.savez(file, x_train=train.features, y_train=train.labels, x_test=test.features, y_test=test.labels)
    return str(file)


@pytest.mark.real
def test_sites_with_data_of_their_own(tmp_path: Path):
    """Each site's file holds what a partition would have given it, one lacks a class: the same model comes out."""
    digits = load_dataset("digits").first(180)
    config: dict[str, Any] = {k: v for k, v in CONFIG.items() if k not in ("backdoor", "train-limit")}
    config |= {"dataset": save_npz(tmp_path / "server.npz", digits.train, digits.test), "out": str(tmp_path / "run")}
    config |= {"classes": 10, "request-class": -1}
    settings = AppSettings.read({**config, "request-client": -1})
    dataset = settings.run.load_dataset()
    parts = partition("iid", dataset.train.labels, 3, settings.run.schedule.seed)
    nodes = []
    for k, part in enumerate(parts):
        mine = dataset.train.select(part)
        mine = mine.select(mine.labels != 9) if k == 1 else mine
        nodes.append({"data": save_npz(tmp_path / f"site-{k}.npz", mine, mine.select(torch.arange(1)))})
    grid = InProcessGrid(client_app, 3, tmp_path / "nodes", config, node_configs=nodes)
    summary = serve(grid, settings)

    federation = LocalFederation(
        dataset, parts, settings.run.build_model(dataset), erased=[ErasureRequest.of_class(1, 9)]
    )
    state = state_of(federation.model)
    for round in range(2):
        state = run_round(federation, state, settings.run.schedule.train_task(round))
    assert summary["trained"] == digest(state)

    by_id = AppSettings.read({**config, "request-samples": "0, 5 7"})
    assert by_id.request == ErasureRequest.of_samples(0, [0, 5, 7])
    assert serve(grid, by_id)["target"] == "3 samples of client 0"

    other = {**config, "dataset": "digits", "out": str(tmp_path / "other")}
    with pytest.raises(FedForgetError, match=r"Client \d \(node \d+\) takes no part: it prepares images with Norm"):
        serve(InProcessGrid(client_app, 3, None, other, node_configs=nodes), AppSettings.read(other))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"colour": 1}, "The run config has the unknown entry 'colour'; it may have dataset, clients,"),
        ({"rounds": "3"}, "Run config 'rounds' is '3', but it must be a whole number."),
        ({"audit": 1}, "Run config 'audit' is 1, but it must be true or false."),
        ({"audit-level": "deep"}, "Level 'deep' is unknown; choose one of alone, quick, full."),
        ({"lr": float("nan")}, "Training setting 'lr' is nan, but it must be a finite number above 0."),
        (
            {
                "run": "{",
            },
            "Run config 'run' must be the configuration in a run's run.json, as JSON.",
        ),
        ({"run": "3"}, "Run config 'run' must be the configuration in a run's run.json, as JSON."),
        ({"run": '{"hue": 1}'}, "The configuration has the unknown entry 'hue'; it may have backdoor, clients,"),
        ({"run": "{}", "lr": 0.1}, "The run config gives a whole run, and 'lr' beside it; leave one of the two out."),
        ({"method": "fedof"}, "Method 'fedof' is unknown; choose one of ladder, overwrite, rebuild, retrain, fedaf,"),
        ({"method": "fedaf,sga", "preset": "paper"}, "The run config names the preset 'paper' for 2 methods;"),
        ({"request-class": 3}, "Name one target, and whose it is: request-client, with request-class,"),
        ({"request-client": 0, "request-class": 3, "request-samples": "4"}, "Name one target, and whose it is: "),
        ({"request-feature": "7"}, "Name one target, and whose it is: request-client, with request-class,"),
        (
            {"request-client": 0, "request-class": 3, "request-feature": "7"},
            "Name one target, and whose it is: ",
        ),
        ({"request-client": 0, "request-feature": "7,7"}, "'7,7' is no feature; give the number of a column, or a"),
        (
            {"request-client": 0, "request-feature": "2,2,2,2", "method": "ladder,sga"},
            "Method 'sga' cannot forget the 2x2 patch at 2,2 of client 0: it takes back",
        ),
        (
            {"request-client": 0, "request-feature": "2,2,2,2", "method": "fedaf", "preset": "paper"},
            "Method 'fedaf' cannot forget the 2x2 patch at 2,2 of client 0: it is the paper's, which says nothing of",
        ),
        (
            {"request-client": 0, "request-feature": "2,2,2,2", "effort": "rebuild"},
            "Method 'rebuild' cannot forget the 2x2 patch at 2,2 of client 0: it asks how well the target is known",
        ),
        ({"preset": "paper"}, "Method 'ladder' has no preset 'paper'; choose one of default."),
        ({"effort": "thorough"}, "The rung 'thorough' is unknown; choose one of overwrite, rebuild, retrain."),
        ({"effort": "retrain", "at-most": "rebuild"}, "The climb would begin at retrain and end at rebuild, which"),
        ({"method": "sga", "at-most": "rebuild"}, "Run config 'effort' and 'at-most' are about the ladder; leave"),
        (
            {"request-client": 0, "request-feature": "2,2,2,2", "backdoor": True},
            "A backdoor poisons samples; name a class, samples or a whole client, not a feature.",
        ),
        ({"request-client": 0, "request-samples": "four"}, "'four' is no sample id; give a whole number."),
        ({"backdoor": True}, "The run config asks for a backdoor, but names no request"),
    ],
)
def test_a_wrong_run_config_is_refused(change: dict[str, Any], sentence: str):
    with pytest.raises(InputError) as refusal:
        AppSettings.read(change)
    assert str(refusal.value).startswith(sentence)


def test_the_defaults_are_those_of_the_apps_own_file():
    settings = AppSettings.read({})
    assert (settings.run.dataset, settings.run.clients, settings.request) == ("digits", 2, None)
    assert (settings.methods, settings.climbing) == (((DEFAULT_METHOD, "default"),), {})
    assert [method for method, _ in AppSettings.read({"method": "all"}).methods] == list(METHODS)
    assert "out" in DEFAULTS
    assert (APP / "pyproject.toml").exists()
