"""Table "Accuracy of unlearning multiple classes sequentially" (tab:complete_mul).

One client withdraws its classes one after another; a step serves the next class on the model that the step before left,
with all earlier requests passed on as served. A step is a cell: its `class` is what was withdrawn so far ("0,1"), its
`setting` the number of the step. All classes of the sequence are poisoned from the start, each with a wrong label and a
trigger of its own. BD Acc is over all targets so far, since what was forgotten must stay forgotten; `bd_acc_by_class`
has each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedforget.errors import FedForgetError
from fedforget.experiments.columns import Figure, at, beside_paper, counted, notes_of, table
from fedforget.experiments.drawing import Bars, bar_charts
from fedforget.experiments.engine import CellSpec, Experiment, Row
from fedforget.experiments.options import Options
from fedforget.experiments.pairs import against_retrain
from fedforget.experiments.paper_numbers import completeness
from fedforget.experiments.scenario import Scenario, ScenarioSpec
from fedforget.experiments.summaries import by_method, untouched
from fedforget.experiments.tables import Entry, Table
from fedforget.methods import Forgetting, method_settings
from fedforget.params import State

STEPS, QUICK_STEPS = 3, 2
RUNNING_MEAN = (
    "What the paper prints before unlearning is, to the digit, the running mean of its single classes (tab:complete), "
    "on all three data sets: so it is no measurement of a federation with several poisoned classes, as ours is. Each "
    "class has a trigger of its own here, in a corner of its own."
)


def specs(options: Options) -> list[CellSpec]:
    """The classes in the order they were named; one trial of every method first."""
    order = options.classes or tuple(range(QUICK_STEPS if options.quick else STEPS))
    return [
        CellSpec(ScenarioSpec(order, options.seed + trial), trial, _classes(order[:step]), method, preset, step)
        for trial in options.chosen_trials()
        for method, preset in options.methods or ()
        for step in range(1, len(order) + 1)
    ]


def _classes(labels: Sequence[int]) -> str:
    return ",".join(map(str, labels))


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    step = int(spec.setting or 0)
    requests = scenario.requests[:step]
    figures = scenario.figures_before(requests)
    name = _name(spec, scenario, step)
    try:
        result = serve_step(spec, scenario, step)
        measured = scenario.measure(result.state, requests)
    except FedForgetError as error:
        _failures(scenario)[name] = _left_no_model(step, error)
        return figures | {"note": str(error)}
    scenario.remember(name, lambda: result.state)
    by_class = {str(request.label): scenario.bd_acc(result.state, request) for request in requests}
    notes = {"notes": list(result.notes), "bd_acc_by_class": by_class}
    return figures | measured | result.cost.to_json() | notes


def serve_step(spec: CellSpec, scenario: Scenario, step: int) -> Forgetting:
    """Serve request number `step` on the model after the steps before it."""
    before = scenario.before if step == 1 else model_after(spec, scenario, step - 1)
    return scenario.forget(
        spec.method, spec.preset,
        state=before, requests=scenario.requests[step - 1 : step], served=scenario.requests[: step - 1],
    )  # fmt: skip


def model_after(spec: CellSpec, scenario: Scenario, step: int) -> State:
    """From memory, from the disk, or by serving the step once more; a step that left no model is not tried again."""
    name, failures = _name(spec, scenario, step), _failures(scenario)
    if name not in failures:
        try:
            return scenario.remember(name, lambda: serve_step(spec, scenario, step).state)
        except FedForgetError as error:
            failures[name] = _left_no_model(step, error)
    raise FedForgetError(failures[name])


def _failures(scenario: Scenario) -> dict[str, str]:
    return scenario.kept.setdefault("failures", {})


def _left_no_model(step: int, error: FedForgetError) -> str:
    said = str(error)
    return said if said.startswith("Step ") else f"Step {step} left no model: {said}"


def _name(spec: CellSpec, scenario: Scenario, step: int) -> str:
    """A model's name on the disk: with all that it depends on beside the model before."""
    changed = scenario.configuration.overrides_of(spec.method, spec.preset)
    _, settings = method_settings(spec.method, spec.preset, **changed)
    tag = hashlib.sha256(repr(settings).encode()).hexdigest()[:8]
    return f"{spec.method}-{spec.preset}-{tag}-step{step}"


FIGURES = {"bd_acc": "BD Acc", "test_acc": "Test Acc"}


def _steps(rows: Sequence[Row]) -> dict[str, str]:
    """What was withdrawn after each step, the shortest first, and how a column is called."""
    found = sorted({row["class"] for row in rows}, key=lambda classes: (classes.count(","), classes))
    return {classes: f"after {classes}" for classes in found}


def tables(rows: Sequence[Row]) -> list[Table]:
    methods, before = by_method(rows), untouched(rows)
    found = []
    for column, name in FIGURES.items():
        columns = {after: at("class", classes, beside_paper(column)) for classes, after in _steps(rows).items()}
        last = {"cells": lambda own: "" if own is before else counted(own)}
        bd_acc = column == "bd_acc"
        title = f"{name} (%) over all classes unlearned so far, the lower the better" if bd_acc else f"{name} (%)"
        lines = {"before unlearning": before, **methods}
        found.append(table(title, lines, {**columns, **last}, notes_of(rows) if bd_acc else ()))
    title = "Method minus Retrain over all steps, in points, with 95 % confidence intervals"
    return [*found, _by_class(rows, methods), against_retrain(rows, title, wide=True)]


def _by_class(rows: Sequence[Row], methods: Mapping[str, Sequence[Row]]) -> Table:
    longest = max(rows, key=lambda row: row["setting"])["class"]

    def of_class(label: str) -> Figure:
        return lambda own: Entry.of((row.get("bd_acc_by_class") or {}).get(label) for row in own)

    columns = {f"class {label}": at("class", longest, of_class(label)) for label in longest.split(",")}
    return table(f"BD Acc (%) of each class when {longest} are unlearned", methods, columns, wide=True)


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """Both columns of the table as bars; a black line is the paper's mean."""
    panels = [
        Bars.of(name, f"{name} (%)", by_method(rows), "class", _steps(rows), beside_paper(column))
        for column, name in FIGURES.items()
    ]
    return bar_charts(stem, f"Classes unlearned one after another, {rows[0]['dataset']}", rows, panels)


SEQUENTIAL = Experiment(
    name="sequential",
    title="Accuracy of unlearning multiple classes sequentially",
    label="tab:complete_mul",
    specs=specs,
    run=run,
    tables=tables,
    paper=lambda row: completeness(row["dataset"], row["class"], row["method"]),
    remarks=lambda rows: [RUNNING_MEAN],
    figures=figures,
)
