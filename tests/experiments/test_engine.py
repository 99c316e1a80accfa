"""The runner: every cell once, whatever happens; the row's fields; methods of the table appear by themselves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fedforget.errors import DivergedError, InputError
from fedforget.experiments import EXPERIMENTS, engine, find_experiment, scenario
from fedforget.experiments.cells import read_cells
from fedforget.experiments.configurations import CONFIGURATIONS, find_configuration
from fedforget.experiments.engine import Step, check_settings, reproduce, seconds_left, settings_of
from fedforget.experiments.options import Options, parse_classes, parse_methods
from fedforget.experiments.pages import labelled_tables, write_pages
from fedforget.methods import METHODS, Method
from fedforget.params import copy_state

COMPLETENESS, TIME = EXPERIMENTS["completeness"], EXPERIMENTS["time"]
ROW = {
    "dataset", "class", "method", "preset", "trial", "setting", "bd_acc_before", "bd_acc", "test_acc_before",
    "test_acc", "true_acc", "retained_acc", "target_class_test_acc", "seconds", "gradient_evaluations", "bytes",
    "stored_bytes", "peak_bytes", "paper",
}  # fmt: skip


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seed of every model before unlearning that is trained."""
    seeds: list[int] = []

    def counted(federation: Any, initial: Any, schedule: Any, **extra: Any) -> Any:
        seeds.append(schedule.seed)
        return real(federation, initial, schedule, **extra)

    real = scenario.train
    monkeypatch.setattr(scenario, "train", counted)
    return seeds


def figures(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What does not depend on the clock."""
    return [(r["key"], r["bd_acc"], r["test_acc"], r["gradient_evaluations"], r["bd_acc_before"]) for r in rows]


def test_a_row_has_every_field(options: Options):
    rows = reproduce(COMPLETENESS, options)
    assert len(rows) == 6
    for row in rows:
        assert row.keys() >= ROW
        assert list(row)[: len(ROW)] == list(rows[0])[: len(ROW)]
        assert set(list(row)[: len(ROW)]) == ROW
        assert row["quick"] is True
        assert row["note"] is None
        assert all(row[name] is not None for name in ROW - {"setting", "paper"}), row
    assert [(r["class"], r["method"]) for r in rows] == [
        (label, method) for label in (0, 1) for method in ("retrain", "fedaf-c", "overwrite")
    ]
    json.dumps(rows, allow_nan=False)


@pytest.mark.real
def test_a_scenario_is_trained_once_and_a_cell_computed_once(options: Options, trainings: list[int]):
    rows = reproduce(COMPLETENESS, replace(options, trials=2))
    assert trainings == [0, 0, 1, 1], "two classes of two trials: one trial of everything first"
    assert reproduce(COMPLETENESS, replace(options, trials=2)) == rows
    assert len(trainings) == 4
    assert [r["seed"] for r in rows] == [0] * 6 + [1] * 6


@pytest.mark.real
def test_a_stop_before_any_cell_loses_and_repeats_nothing(options: Options, trainings: list[int]):
    reference = reproduce(COMPLETENESS, replace(options, out=options.out / "reference"))
    trainings.clear()
    served = 0

    def stop_at(moment: int) -> Callable[[Step], None]:
        def progress(step: Step) -> None:
            nonlocal served
            served += 1
            if served == moment:
                raise KeyboardInterrupt

        return progress

    stops = 0
    for moment in (1, 2, 4, 3, 5):
        served = 0
        try:
            reproduce(COMPLETENESS, options, progress=stop_at(moment))
        except KeyboardInterrupt:
            stops += 1
    assert stops == 5
    assert figures(reproduce(COMPLETENESS, options)) == figures(reference)
    assert trainings == [0, 0], "each of the two scenarios was trained once over all six runs"
    keys = [c["key"] for c in read_cells(COMPLETENESS.cell_file(options))]
    assert len(keys) == len(set(keys)) == 6


SCRIPT = """
import sys
from dataclasses import replace
from fedforget.experiments.configurations import CONFIGURATIONS
full = CONFIGURATIONS["digits"]["default"]
CONFIGURATIONS["digits"]["default"] = replace(full, rounds=2, quick_samples=(300, 60))
from fedforget.experiments.__main__ import main
main()
"""


def process(out: Path) -> subprocess.Popen[str]:
    words = ["reproduce", "completeness", "--quick", "--methods", "retrain,fedaf-c,overwrite"]
    words += ["--trials", "2", "--threads", "1", "--json", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_a_killed_process_is_taken_up_where_it_was(options: Options):
    path = COMPLETENESS.cell_file(options)
    at_work = process(options.out)
    end = time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < 5:
        assert at_work.poll() is None, at_work.communicate()
        assert time.monotonic() < end
        time.sleep(0.002)
    at_work.send_signal(signal.SIGKILL)
    at_work.communicate(timeout=30)
    assert at_work.returncode == -signal.SIGKILL
    content = path.read_bytes()
    kept = content[: content.rindex(b"\n") + 1]
    models = {model: model.stat().st_mtime_ns for model in (options.out / "models").glob("*.model")}
    assert len(models) >= 2

    last = process(options.out)
    said, err = last.communicate(timeout=60)
    assert last.returncode == 0, err
    rows = json.loads(said)["rows"]
    assert path.read_bytes().startswith(kept), "no cell was lost"
    assert len(rows) == len({row["key"] for row in rows}) == path.read_bytes().count(b"\n") == 12, "none was repeated"
    assert all(model.stat().st_mtime_ns == when for model, when in models.items()), "no model was trained again"
    whole = reproduce(COMPLETENESS, replace(options, trials=2, out=options.out / "whole"))
    assert figures(whole) == figures(rows)


@pytest.mark.real
def test_a_damaged_model_is_trained_again(options: Options, trainings: list[int]):
    reproduce(COMPLETENESS, replace(options, methods=parse_methods("fedaf-c")))
    models = sorted((options.out / "models").iterdir())
    good = [path.read_bytes() for path in models]
    models[0].write_bytes(good[0][:-1] + bytes([good[0][-1] ^ 1]))
    reproduce(COMPLETENESS, options)
    assert trainings == [0, 0, 0]
    assert [path.read_bytes() for path in models] == good


@pytest.mark.real
def test_two_half_runs_make_one_table(options: Options, tmp_path: Path):
    halves = [replace(options, classes=(c,), out=tmp_path / f"half{c}") for c in (0, 1)]
    for half in reversed(halves):
        reproduce(COMPLETENESS, half)
    one = reproduce(COMPLETENESS, options)
    merged = replace(options, out=tmp_path / "merged")
    rows = reproduce(COMPLETENESS, merged, merge=[half.out for half in reversed(halves)])
    assert figures(rows) == figures(one)
    pages = [write_pages(COMPLETENESS, COMPLETENESS.cell_file(o)) for o in (options, merged)]
    for a, b in zip(*pages, strict=True):
        assert a.read_bytes() == b.read_bytes(), a
    with pytest.raises(InputError, match=r"does not exist, so there is nothing to merge from"):
        reproduce(COMPLETENESS, merged, merge=[tmp_path])


@pytest.mark.real
def test_time_takes_the_cells_of_completeness(options: Options, monkeypatch: pytest.MonkeyPatch):
    rows = reproduce(COMPLETENESS, options)
    monkeypatch.setattr(engine, "Bench", lambda options: pytest.fail("computed again"))
    timed = reproduce(TIME, options)
    assert [r["key"] for r in timed] == [r["key"] for r in rows if r["class"] == 0]
    table = TIME.tables(timed)[0]
    assert [row[0] for row in table.rows] == ["retrain", "fedaf-c", "overwrite"]
    seconds = {r["method"]: r["seconds"] for r in timed}
    assert table.rows[1][2].mean == pytest.approx(seconds["retrain"] / seconds["fedaf-c"])
    timed[0]["hardware"] = "another machine"
    assert TIME.tables(timed)[0].rows[1][2].mean is None, "seconds of two machines are not compared"


@dataclass(frozen=True)
class ToySettings:
    scale: float = 0.9


def toy(federation: Any, state: Any, requests: Any, settings: ToySettings, schedule: Any, served: Any = ()) -> Any:
    return {name: tensor * settings.scale for name, tensor in copy_state(state).items()}, {}


def test_a_new_method_appears_by_itself(options: Options, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(METHODS, "toy", Method(toy, {"default": ToySettings()}, "shrinks"))
    assert ("toy", "default") in parse_methods("all")
    chosen = replace(options, classes=(0,), methods=None)
    experiment = replace(COMPLETENESS, methods="retrain,toy")
    rows = reproduce(experiment, chosen)
    assert [r["method"] for r in rows] == ["retrain", "toy"]
    assert any("toy" in row[0] for row in experiment.tables(rows)[0].rows)
    specs = COMPLETENESS.specs(replace(chosen, methods=parse_methods(COMPLETENESS.methods)))
    assert {spec.method for spec in specs} == set(METHODS)


def test_all_is_every_method_and_every_preset_of_some():
    pairs = parse_methods("all")
    assert {method for method, _ in pairs} == set(METHODS)
    assert [preset for method, preset in pairs if method == "fedaf-c"] == ["default", "replace"]
    assert [preset for method, preset in pairs if method == "cdp"] == ["paper", "code"]
    assert [preset for method, preset in pairs if method == "frr"] == ["paper"], "the other form takes too long"
    assert len(pairs) == len(METHODS) + 3
    assert parse_methods("cdp, cdp:code,cdp") == (("cdp", "paper"), ("cdp", "code"))


@pytest.mark.real
def test_a_method_that_needs_a_history_gets_one(options: Options, trainings: list[int]):
    rows = reproduce(COMPLETENESS, replace(options, classes=(0,)))
    rows = reproduce(COMPLETENESS, replace(options, classes=(0,), methods=parse_methods("federaser")))
    assert rows[0]["note"] is None
    assert rows[0]["stored_bytes"] > 0
    assert trainings == [0, 0], "the history was not kept, so the model is trained once more"


@pytest.mark.parametrize("failing", ["the method", "the training"])
def test_what_diverged_has_a_sentence_and_no_number(options: Options, monkeypatch: pytest.MonkeyPatch, failing: str):
    def diverge(*_: Any, **__: Any) -> Any:
        raise DivergedError("Method 'toy'", "it is gone.")

    if failing == "the method":
        monkeypatch.setitem(METHODS, "toy", Method(diverge, {"default": ToySettings()}, "diverges"))
    else:
        monkeypatch.setitem(METHODS, "toy", Method(toy, {"default": ToySettings()}, "shrinks"))
        monkeypatch.setattr(scenario, "train", diverge)
    rows = reproduce(COMPLETENESS, replace(options, methods=parse_methods("retrain,toy"), classes=(0,)))
    row = rows[1]
    assert row["note"] == "Method 'toy' diverged: it is gone."
    assert row["bd_acc"] is row["test_acc"] is row["seconds"] is row["gradient_evaluations"] is None
    assert (row["bd_acc_before"] is None) == (failing == "the training")
    tables = COMPLETENESS.tables(rows)
    assert tables[0].rows[2][1].text() == "no model"
    assert tables[0].rows[2][3] == "0 of 1"
    assert any("it is gone." in note for note in tables[0].notes)
    assert all("nan" not in table.to_text() for table in tables)


@pytest.mark.real
def test_quick_is_on_every_output(options: Options):
    rows = reproduce(COMPLETENESS, options)
    pages = write_pages(COMPLETENESS, COMPLETENESS.cell_file(options))
    assert [page.suffix for page in pages] == [".md", ".tex", ".json", ".png", ".svg"]
    for page in pages:
        assert "quick" in page.name
        assert page.suffix == ".png" or "quick" in page.read_text()
    assert all("quick" in table.title for table in labelled_tables(COMPLETENESS, rows))
    assert all(r["quick"] and "/quick/" in r["key"] for r in rows)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: find_experiment("magic"), "Experiment 'magic' is unknown; choose one of completeness, time"),
        (lambda: Options(dataset="imagenet"), "The experiments do not know the data set 'imagenet'; choose one of "),
        (lambda: Options(configuration="mine"), "Data set 'digits' has no configuration 'mine'; choose one of "),
        (lambda: Options(classes=(3, 10)), "Class 10 does not exist; digits has classes 0 to 9."),
        (lambda: Options(dataset="celeba", classes=(4,)), "Class 4 does not exist; celeba has classes 0 to 3."),
        (lambda: Options(trials=0), "--trials is 0, but it must be 1 or larger."),
        (lambda: Options(seed=-1), "--seed is -1, but it must be 0 or larger."),
        (lambda: Options(device="abacus"), "Device 'abacus' cannot be used on this machine; use cpu."),
        (lambda: Options(out=Path(__file__)), "is not a folder; choose another --out."),
        (lambda: parse_classes("0-x"), "The classes '0-x' cannot be read; write them as 0-9 or 0,3,7."),
        (lambda: parse_classes("5-3"), "The classes '5-3' cannot be read; write them as 0-9 or 0,3,7."),
        (lambda: parse_methods("magic"), "Method 'magic' is unknown; choose one of ladder, overwrite, rebuild,"),
        (lambda: parse_methods("retrain,ladder"), "The ladder is no method but climbs three of them; its"),
        (lambda: parse_methods("fedaf:magic"), "Method 'fedaf' has no preset 'magic'; choose one of paper, literal."),
    ],
)  # fmt: skip
def test_bad_choices_are_refused(make: Callable[[], object], sentence: str):
    with pytest.raises(InputError) as refused:
        make()
    assert sentence in str(refused.value)


def test_every_configuration_gives_its_reasons():
    for dataset, versions in CONFIGURATIONS.items():
        for name, configuration in versions.items():
            assert (configuration.dataset, configuration.name) == (dataset, name)
            assert configuration.schedule(3, 1).seed == 3
            for overridden in configuration.overrides:
                method, _, preset = overridden.partition(":")
                assert preset in METHODS[method].presets
            if "all" not in configuration.reasons:  # else it is none of the paper's
                assert {"momentum", "batch size", "partition", "trigger"} <= configuration.reasons.keys()
    paper = {d: find_configuration(d, "paper") for d in ("mnist", "cifar10", "celeba")}
    assert [(c.rounds, c.lr, c.clients, c.epochs) for c in paper.values()] == [
        (5, 0.001, 4, 1), (20, 0.01, 4, 1), (10, 0.01, 4, 1),
    ]  # fmt: skip
    assert paper["cifar10"].overrides["fedaf:literal"] == {"lr": 0.01}


def test_the_time_left_is_that_of_the_kinds_left():
    assert seconds_left({}, ["a"]) is None
    taken = {"a": [1.0, 3.0], "b": [10.0]}
    assert seconds_left(taken, ["a", "b", "c"]) == 2.0 + 10.0 + 6.0
    assert seconds_left(taken, []) == 0.0


@pytest.mark.real
def test_cells_of_other_settings_are_refused(options: Options, monkeypatch: pytest.MonkeyPatch):
    """A changed default must not show the old default's results as its own."""
    chosen = replace(options, classes=(0,), methods=parse_methods("sga"))
    rows = reproduce(COMPLETENESS, chosen)
    changed = replace(METHODS["sga"], presets={"ewc": replace(METHODS["sga"].presets["ewc"], epochs=4)})
    monkeypatch.setitem(METHODS, "sga", changed)
    with pytest.raises(InputError, match=r"a cell of sga:ewc .*other settings \(epochs was 5 and is 4\); delete such"):
        reproduce(COMPLETENESS, chosen)
    monkeypatch.undo()
    assert reproduce(COMPLETENESS, chosen) == rows


def test_a_cell_that_is_older_than_a_setting_counts_as_its_default(options: Options):
    """Also where the default is `auto`, which stands for a number."""
    chosen = replace(options, classes=(0,), methods=parse_methods("overwrite"))
    rows = reproduce(COMPLETENESS, chosen)
    path = COMPLETENESS.cell_file(chosen)
    cells = [json.loads(line) for line in path.read_text().splitlines()]
    for cell in cells:
        del cell["method_settings"]["reminder_guard"], cell["method_settings"]["recovery_clients"]
    path.write_text("".join(json.dumps(cell) + "\n" for cell in cells))
    assert [row["bd_acc"] for row in reproduce(COMPLETENESS, chosen)] == [row["bd_acc"] for row in rows]


@pytest.mark.parametrize(("value", "accepted"), [("samples", True), ("statistics", False)])
def test_a_setting_that_has_left_counts_as_what_is_fixed_now(options: Options, value: str, accepted: bool):
    (spec,) = COMPLETENESS.specs(replace(options, classes=(0,), methods=parse_methods("overwrite")))
    cell = {"method_settings": {**(settings_of(spec, options) or {}), "sketch_ahead": False, "target_data": value}}
    if accepted:
        check_settings(spec, options, cell, options.out)
    else:
        with pytest.raises(InputError, match=r"other settings \(target_data was statistics and is None\)"):
            check_settings(spec, options, cell, options.out)


@pytest.mark.parametrize(("method", "accepted"), [("fedaf:paper", True), ("overwrite", False)])
def test_a_setting_that_changes_nothing_may_differ_in_a_cell(options: Options, method: str, accepted: bool):
    """`paper` names a learning rate, so its step length is idle; `overwrite` derives the rate from it."""
    chosen = replace(options, classes=(0,), methods=parse_methods(method))
    rows = reproduce(COMPLETENESS, chosen)
    path = COMPLETENESS.cell_file(chosen)
    (cell,) = (json.loads(line) for line in path.read_text().splitlines())
    cell["method_settings"]["step_length"] = 0.18
    path.write_text(json.dumps(cell) + "\n")
    if accepted:
        assert [row["bd_acc"] for row in reproduce(COMPLETENESS, chosen)] == [row["bd_acc"] for row in rows]
    else:
        with pytest.raises(InputError, match=r"other settings \(step_length was 0\.18 and is 0\.15\)"):
            reproduce(COMPLETENESS, chosen)
