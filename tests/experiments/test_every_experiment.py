"""What every experiment of the table keeps to: unique cells, the row's fields, pages and figures that are valid."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from fedforget.errors import InputError
from fedforget.experiments import EXPERIMENTS, engine
from fedforget.experiments.configurations import CONFIGURATIONS
from fedforget.experiments.engine import FIGURES, Experiment, reproduce
from fedforget.experiments.options import Options, parse_methods
from fedforget.experiments.pages import write_pages
from fedforget.experiments.ulira import MEMORISED
from fedforget.methods import METHODS, Method
from fedforget.methods.retrain import RetrainSettings
from fedforget.params import copy_state

FIRST = ("dataset", "class", "method", "preset", "trial", "setting", *FIGURES, "paper")
FEW = {
    "calibration": "overwrite",
    "completeness": "retrain,overwrite",
    "time": "retrain,overwrite",
    "sequential": "fedaf-c,overwrite",
    "audit": "retrain,overwrite",
    "durability": "retrain,overwrite",
    "feature": "retrain,overwrite",
    "requests": "retrain,overwrite",
    "ulira": "retrain,overwrite",
}
CELLS = {
    "completeness": 2, "time": 2, "overlap": 8, "epochs": 10, "lambda": 10, "teachers": 8, "sequential": 4,
    "ablation": 15, "audit": 3, "durability": 3, "ulira": 16,
    "feature": 8, "requests": 3, "calibration": 7, "ladder": 4, "readings": 12, "ridge": 4,
    "shards": 1,
}  # fmt: skip
APART = "apart"
"""The configuration in which the clients hold out samples: the only one that `ladder` takes."""
DRAWS_NOTHING = ("ladder", "readings", "ridge")


@pytest.fixture(autouse=True)
def two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ulira` has a federation of its own and `ladder` another, which the small configuration does not reach."""
    for name in (MEMORISED, APART):
        world = CONFIGURATIONS["digits"][name]
        monkeypatch.setitem(CONFIGURATIONS["digits"], name, replace(world, rounds=2))


@pytest.fixture(params=list(EXPERIMENTS))
def experiment(request: pytest.FixtureRequest) -> Experiment:
    return EXPERIMENTS[request.param]


def small(experiment: Experiment, options: Options) -> Options:
    classes = (0, 1) if experiment.name == "sequential" else (0,)
    methods = parse_methods(FEW[experiment.name]) if experiment.name in FEW else None
    chosen = replace(options, methods=methods, classes=classes, targets=("class",))
    if experiment.name == "ladder":
        return replace(in_its_configuration(experiment, chosen), targets=None)
    return replace(chosen, targets=("samples",), trials=4) if experiment.name == "ulira" else chosen


def in_its_configuration(experiment: Experiment, options: Options) -> Options:
    return replace(options, configuration=APART) if experiment.name == "ladder" else options


def test_the_table_has_every_experiment_of_the_paper():
    assert set(EXPERIMENTS) == set(CELLS)
    assert all(experiment.name == name for name, experiment in EXPERIMENTS.items())


def test_keys_are_unique_and_one_trial_comes_before_the_next(experiment: Experiment, options: Options):
    everything = parse_methods(experiment.methods) if experiment.methods else None
    whole = in_its_configuration(experiment, replace(options, quick=False, methods=everything))
    specs = experiment.specs(whole)
    keys = [experiment.key(spec, whole) for spec in specs]
    assert len(set(keys)) == len(keys) > 0
    assert [spec.trial for spec in specs] == sorted(spec.trial for spec in specs)
    quick = experiment.specs(replace(whole, quick=True))
    assert 0 < len(quick) < len(specs), "a quick run is a smaller one"
    assert not set(keys) & {experiment.key(spec, replace(whole, quick=True)) for spec in quick}


@pytest.mark.real
def test_a_tiny_run(experiment: Experiment, options: Options, monkeypatch: pytest.MonkeyPatch):
    chosen = small(experiment, options)
    rows = reproduce(experiment, chosen)
    assert len(rows) == CELLS[experiment.name]
    for row in rows:
        assert tuple(row)[: len(FIRST)] == FIRST
        assert row["quick"] is True
        assert row["note"] is None or row["bd_acc"] is None
    json.dumps(rows, allow_nan=False)

    files = write_pages(experiment, experiment.cell_file(chosen))
    several = {".md", ".tex", ".json", *(() if experiment.name in DRAWS_NOTHING else (".png", ".svg"))}
    assert {file.suffix for file in files} == (several if experiment.has_pages else {".md"})
    for file in files:
        if file.suffix == ".png":
            with Image.open(file) as image:
                image.verify()
            with Image.open(file) as image:
                assert image.width > 300
                assert len(image.convert("L").getcolors(256) or []) > 2, "something is drawn"
        elif file.suffix == ".svg":
            assert ElementTree.fromstring(file.read_bytes()).tag == "{http://www.w3.org/2000/svg}svg"
        if file.suffix != ".png":
            assert "quick" in file.read_text()
    page = files[0].read_text()
    assert all(f"]({file.name})" in page for file in files if file.suffix == ".png")
    methods = {f"{row['method']}:{row['preset']}" for row in rows}
    assert ("--methods" in page) == any(name.partition(":")[0] in METHODS for name in methods)

    bytes_before = {file: file.read_bytes() for file in files}
    monkeypatch.setattr(engine, "Bench", lambda options: pytest.fail("computed again"))
    assert reproduce(experiment, chosen) == rows
    write_pages(experiment, experiment.cell_file(chosen))
    assert {file: file.read_bytes() for file in files} == bytes_before, "the same cells draw the same bytes"


def test_without_matplotlib_there_are_no_figures(options: Options, monkeypatch: pytest.MonkeyPatch):
    experiment, real = EXPERIMENTS["time"], importlib.util.find_spec
    chosen = replace(options, methods=parse_methods("fedaf-c"), classes=(0,))
    reproduce(experiment, chosen)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else real(name))
    files = write_pages(experiment, experiment.cell_file(chosen))
    assert [file.suffix for file in files] == [".md", ".tex", ".json"]
    assert "![" not in files[0].read_text()


@pytest.mark.parametrize("name", ["completeness", "sequential"])
def test_a_model_that_predicts_no_numbers_is_none(name: str, options: Options, monkeypatch: pytest.MonkeyPatch):
    """Its weights are finite and argmax finds a class, so it would have an accuracy."""

    def explode(federation: Any, state: Any, *_: Any) -> Any:
        return {key: tensor * 1e20 for key, tensor in copy_state(state).items()}, {}

    monkeypatch.setitem(METHODS, "toy", Method(explode, {"default": RetrainSettings()}, "explodes"))
    chosen = replace(options, methods=(("toy", "default"),), classes=(0,))
    (row,) = reproduce(EXPERIMENTS[name], chosen)
    assert row["note"] == "The unlearned model diverged: its weights are finite, but what it predicts is not."
    assert row["test_acc"] is row["bd_acc"] is None
    assert row["bd_acc_before"] is not None


@pytest.mark.parametrize(
    ("name", "methods", "sentence"),
    [
        ("overlap", "fedaf", "Experiment 'overlap' compares no methods; leave --methods out."),
        ("epochs", "retrain", "Method 'retrain' has no EWC epochs to vary; experiment 'epochs' takes fedaf:paper and "),
        ("lambda", "fedaf-c", "Method 'fedaf-c' has no lambda to vary; experiment 'lambda' takes fedaf:paper and "),
        ("teachers", "sga", "Method 'sga' has no teachers Q to vary; experiment 'teachers' takes fedaf:paper and "),
        ("ablation", "fedaf:paper", "takes overwrite:default apart; it cannot do that with 'fedaf:paper'."),
    ],
)
def test_a_method_without_the_knob_is_refused_before_any_work(
    options: Options, tmp_path: Path, name: str, methods: str, sentence: str
):
    chosen = replace(options, methods=parse_methods(methods), out=tmp_path / "none")
    with pytest.raises(InputError) as refused:
        reproduce(EXPERIMENTS[name], chosen)
    assert sentence in str(refused.value)
    assert str(refused.value).count("\n") == 0
    assert not chosen.out.exists()
