"""A small digits configuration, so that a whole experiment takes a second."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedforget.experiments.configurations import CONFIGURATIONS
from fedforget.experiments.options import Options, parse_methods


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    full = CONFIGURATIONS["digits"]["default"]
    monkeypatch.setitem(CONFIGURATIONS["digits"], "default", replace(full, rounds=2, quick_samples=(300, 60)))


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Two classes, one trial, three methods, into a folder of the test's own."""
    methods = parse_methods("retrain,fedaf-c,overwrite")
    return Options(quick=True, threads=1, methods=methods, out=tmp_path / "out")
