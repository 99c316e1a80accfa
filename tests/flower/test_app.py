"""Our own federation as a Flower app: its two sides over the in-process Grid, and its run config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_process_grid import InProcessGrid

from fedforget.errors import InputError
from fedforget.flower import APP
from fedforget.flower.apps import client_app, serve
from fedforget.flower.settings import DEFAULTS, AppSettings
from fedforget.pipeline import audit_run, forget_run, train_run
from fedforget.runs import Run

CONFIG: dict[str, Any] = {
    "clients": 3, "rounds": 2, "lr": 0.05, "batch-size": 16, "threads": 1, "train-limit": 180,
    "request-client": 0, "request-class": 3, "backdoor": True, "join-timeout-s": 1.0,
}  # fmt: skip


def grid_for(config: dict[str, Any], tmp_path: Path) -> InProcessGrid:
    return InProcessGrid(client_app, config["clients"], tmp_path / "nodes", config)


@pytest.mark.real
def test_the_whole_story_over_flower_is_the_one_in_process(tmp_path: Path):
    """Train, forget, audit against Retrain: the same run folder, but for the times."""
    settings = AppSettings.read({**CONFIG, "out": str(tmp_path / "flower"), "audit": True, "method": "fedaf,sga"})
    summary = serve(grid_for(CONFIG, tmp_path), settings)
    train_run(tmp_path / "local", settings.run)
    for method, preset in settings.methods:
        assert settings.request is not None
        forget_run(tmp_path / "local", [settings.request], method, preset)
    expected = audit_run(tmp_path / "local")
    for name in ("run.json", "state.json", "metrics.jsonl"):
        assert (tmp_path / "flower" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
    assert (tmp_path / "flower" / "report.html").exists()
    for row, same in zip(summary["audit"], expected["rows"], strict=True):
        distances = [told.pop("distance_to_retrain", {}) for told in (row, same)]
        assert distances[0] == pytest.approx(distances[1]), "a sum over models that lie elsewhere in memory"
        assert {k: v for k, v in row.items() if k not in TIMES} == {k: v for k, v in same.items() if k not in TIMES}
    rows = {f"{row['method']}:{row['preset']}": row["model"] for row in expected["rows"]}
    assert {name: told["digest"] for name, told in summary["forgotten"].items()} == {
        name: rows[name] for name in ("fedaf:recommended", "sga:ewc")
    }
    assert summary["trained"] == rows["before:None"]
    assert json.loads((tmp_path / "flower" / "summary.json").read_text())["forgotten"] == summary["forgotten"]


TIMES = {"seconds", "seconds_by_stage", "peak_bytes"}


def test_a_run_goes_on_in_its_folder(tmp_path: Path):
    """Train only, and serve the request in another run later."""
    out = {"out": str(tmp_path / "run")}
    config = {k: v for k, v in CONFIG.items() if k != "backdoor"}
    first = serve(grid_for(config, tmp_path), AppSettings.read({**config, **out, "request-client": -1}))
    assert first["forgotten"] == {}
    later = serve(grid_for(config, tmp_path), AppSettings.read({**config, **out}))
    assert later["trained"] == first["trained"]
    assert list(later["forgotten"]) == ["fedaf:recommended"]
    assert Run(tmp_path / "run").rounds_done == 2
    with pytest.raises(InputError, match=r"holds another run; choose another out\.$"):
        serve(grid_for(config, tmp_path), AppSettings.read({**config, **out, "lr": 0.1}))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"colour": 1}, "The run config has the unknown entry 'colour'; it may have dataset, clients,"),
        ({"rounds": "3"}, "Run config 'rounds' is '3', but it must be a whole number."),
        ({"audit": 1}, "Run config 'audit' is 1, but it must be true or false."),
        ({"lr": float("nan")}, "Training setting 'lr' is nan, but it must be a finite number above 0."),
        ({"method": "fedof"}, "Method 'fedof' is unknown; choose one of retrain, fedaf,"),
        ({"method": "fedaf,sga", "preset": "paper"}, "The run config names the preset 'paper' for 2 methods;"),
        ({"backdoor": True}, "The run config asks for a backdoor, but names no request"),
    ],
)
def test_a_wrong_run_config_is_refused(change: dict[str, Any], sentence: str):
    with pytest.raises(InputError) as refusal:
        AppSettings.read(change)
    assert str(refusal.value).startswith(sentence)


def test_the_defaults_are_those_of_the_apps_own_file():
    settings = AppSettings.read({})
    assert (settings.run.dataset, settings.run.clients, settings.request) == ("digits", 4, None)
    assert settings.methods == (("fedaf", "recommended"),)
    assert AppSettings.read({"method": "all"}).methods[0] == ("retrain", "default")
    assert "out" in DEFAULTS
    assert (APP / "pyproject.toml").exists()
