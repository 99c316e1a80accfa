"""Ten requests of mixed kinds by four clients: served one after another, and all at once (no table of the paper).

Every target is poisoned from the start, each with a wrong label of its own. A request served on the model that the one
before left must not undo what that one did, nor wear the model down; and when training goes on, nothing may come back.
So BD Acc of each target is measured when all ten are served, and after `FURTHER` ordinary rounds without any of
the targets, beside one Retrain without all ten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedforget.errors import FedForgetError, InputError
from fedforget.experiments.columns import Line, mean, notes_of, table
from fedforget.experiments.drawing import Bars, bar_charts
from fedforget.experiments.engine import CellSpec, Experiment, Row
from fedforget.experiments.options import Options
from fedforget.experiments.pairs import RETRAIN, paired
from fedforget.experiments.scenario import Scenario, ScenarioSpec
from fedforget.experiments.summaries import by_method, by_setting
from fedforget.experiments.tables import Entry, Table
from fedforget.experiments.targets import MIXED
from fedforget.federation.cost import Cost
from fedforget.federation.rounds import further_rounds
from fedforget.params import State
from fedforget.requests import ErasureRequest

FURTHER = 5
ONE_BY_ONE, AT_ONCE = "one by one", "at once"


def specs(options: Options) -> list[CellSpec]:
    """Retrain serves all of them at once: that is what the others are compared with."""
    if options.settings.clients != 4:
        raise InputError("The ten requests come from four clients; choose a configuration with so many.")
    return [
        CellSpec(ScenarioSpec((), options.seed + trial, target=MIXED), trial, None, method, preset, way)
        for trial in options.chosen_trials()
        for method, preset in options.methods or ()
        for way in ((AT_ONCE,) if method == RETRAIN else (ONE_BY_ONE, AT_ONCE))
    ]


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    figures = bd_acc_by_request(scenario, scenario.before, "_before") | scenario.figures_before()
    try:
        state, cost = _served(spec, scenario)
        figures |= cost | scenario.measure(state) | bd_acc_by_request(scenario, state)
        *_, (_, later) = further_rounds(scenario.federation, state, scenario.schedule, scenario.requests, FURTHER)
        figures |= bd_acc_by_request(scenario, later, "_later")
        figures["test_acc_later"] = scenario.measure(later)["test_acc"]
    except FedForgetError as error:
        return figures | {"note": str(error)}
    return figures


def _served(spec: CellSpec, scenario: Scenario) -> tuple[State, dict[str, Any]]:
    """(the model without all the targets, what that cost together)."""
    steps = [scenario.requests] if spec.setting == AT_ONCE else [(request,) for request in scenario.requests]
    state, costs = scenario.before, []
    served: tuple[ErasureRequest, ...] = ()
    for asked in steps:
        result = scenario.forget(spec.method, spec.preset, spec.overrides, state=state, requests=asked, served=served)
        state, served = result.state, (*served, *asked)
        costs.append(result.cost)
    return state, Cost.total(costs).to_json()


def bd_acc_by_request(scenario: Scenario, state: State, when: str = "") -> dict[str, dict[str, float | None]]:
    """BD Acc of each target, and how often its images get the flipped label without the trigger, under the request in
    words."""
    return {
        f"{name}_by_request{when}": {r.describe(): figure(state, r) for r in scenario.requests}
        for name, figure in (("bd_acc", scenario.bd_acc), ("bd_acc_plain", scenario.bd_acc_plain))
    }


def _ways(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each method in each of its ways, in so far as they left a model."""
    whole = [row for row in rows if "test_acc_later" in row]
    return {
        name if own[0]["method"] == RETRAIN else f"{name}, {way}": rows_of_way
        for name, own in by_method(whole).items()
        for way, rows_of_way in by_setting(own).items()
    }


def tables(rows: Sequence[Row]) -> list[Table]:
    ways = _ways(rows)
    served = {
        "BD Acc (%), all targets": mean("bd_acc"), "Test Acc (%)": mean("test_acc"),
        f"Test Acc after {FURTHER} rounds": mean("test_acc_later"),
        "gradient evaluations": mean("gradient_evaluations"),
    }  # fmt: skip
    beside: list[Line] = []
    for way, own in ways.items():
        pairs = paired(own, rows, alike=("class", "seed"))
        if own[0]["method"] != RETRAIN and pairs:
            apart = [
                Entry.of(mine[name] - theirs[name] for mine, theirs in pairs) for name in ("test_acc", "test_acc_later")
            ]  # fmt: skip
            beside.append([way, *apart, *(Entry.of(_farthest(pairs, name)) for name in WHEN)])
    heads = ("", "Test Acc", f"Test Acc after {FURTHER} rounds", "BD Acc, the farthest target",
             f"the farthest after {FURTHER} rounds")  # fmt: skip
    title = "Method minus Retrain without all ten, in points; BD Acc: of the target whose distance is largest"
    summary = table("Ten requests served", ways, served, notes_of(rows))
    return [summary, Table(title, heads, beside, wide=True), *_by_request(ways)]


def _farthest(pairs: Sequence[tuple[Row, Row]], name: str) -> list[float]:
    """In each trial, by how much the target lies above Retrain that is farthest from it: above or below, on average."""
    differences = {
        request: [
            mine[name][request] - theirs[name][request]
            for mine, theirs in pairs
            if mine[name].get(request) is not None and theirs[name].get(request) is not None
        ]
        for request in pairs[0][0][name]
    }
    return max(differences.values(), key=lambda each: sum(map(abs, each)) / max(len(each), 1))


WHEN = {"bd_acc_by_request": "at once", "bd_acc_by_request_later": f"{FURTHER} rounds later"}
SHOWN = {name: f"BD Acc (%) of each target, {when}" for name, when in WHEN.items()} | {
    "bd_acc_plain_by_request_later": f"That label (%) on its images without the trigger, {FURTHER} rounds later"
}


def _each(ways: Mapping[str, Sequence[Row]], name: str) -> dict[str, list[Entry]]:
    """For each request, what each way left of its target."""
    requests = dict.fromkeys(request for own in ways.values() for row in own for request in row.get(name, ()))
    return {
        request: [Entry.of(row.get(name, {}).get(request) for row in own) for own in ways.values()]
        for request in requests
    }  # fmt: skip


def _by_request(ways: Mapping[str, Sequence[Row]]) -> list[Table]:
    made: dict[str, list[Line]] = {
        title: [[request, *line] for request, line in _each(ways, name).items()] for name, title in SHOWN.items()
    }  # fmt: skip
    return [Table(title, ("", *ways), body, wide=True) for title, body in made.items() if body]


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """BD Acc of each target, when all are served and some rounds later."""
    ways, panels = _ways(rows), []
    for name, when in WHEN.items():
        each = _each(ways, name)
        series = {way: [line[place] for line in each.values()] for place, way in enumerate(ways)}
        panels.append(Bars(f"BD Acc of each target, {when}", list(each), series, "BD Acc (%)"))
    return bar_charts(stem, f"Ten requests, {rows[0]['dataset']}", rows, panels)


REQUESTS = Experiment(
    name="requests",
    title="Ten requests, one after another and at once",
    specs=specs,
    run=run,
    tables=tables,
    figures=figures,
)
