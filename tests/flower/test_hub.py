"""Our own app as `flwr build` packs it: what a hub takes, and what runs with the released package."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from flower_processes import BIN
from packaging.requirements import Requirement

from fedforget import __version__
from fedforget.flower import APP
from fedforget.flower.environment import quiet_environment

ROOT = Path(__file__).parents[2]


@pytest.mark.real
def test_what_is_built_is_whole_and_runs_with_this_package(tmp_path: Path):
    app = shutil.copytree(APP, tmp_path / "app")
    subprocess.run(
        [BIN / "flwr", "build", "--app", app], cwd=tmp_path, check=True, capture_output=True, timeout=120,
        env=quiet_environment(tmp_path / "home"),
    )  # fmt: skip
    (built,) = tmp_path.glob("*.fab")
    with zipfile.ZipFile(built) as archive:
        assert {"pyproject.toml", "LICENSE", "README.md"} <= set(archive.namelist())
        packed = tomllib.loads(archive.read("pyproject.toml").decode())
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {Requirement(line).name: Requirement(line) for line in packed["project"]["dependencies"]}
    assert __version__ in needed["fedforget"].specifier
    assert needed["fedforget"].extras == {"flower"}
    flower = [Requirement(line) for line in ours["optional-dependencies"]["flower"]]
    assert needed["flwr"].specifier == next(one.specifier for one in flower if one.name == "flwr")
    for component in packed["tool"]["flwr"]["app"]["components"].values():
        module, name = component.split(":")
        assert hasattr(importlib.import_module(module), name)
    assert packed["tool"]["flwr"]["app"]["config"]["clients"] == 2, "as many as Flower simulates by default"


def test_it_is_licensed_as_we_are():
    assert (APP / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
