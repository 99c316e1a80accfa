"""Ten requests of mixed kinds by four clients: served one after another, and all at once (no table of the paper).

Every target is poisoned from the start, each with a wrong label of its own. A request served on the model that the one
before left must not undo what that one did, nor wear the model down; and when training goes on, nothing may come back.
So BD Acc of each target is measured when all ten are served, and after `FURTHER` ordinary rounds without any of
the targets, beside one Retrain without all ten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedforget.audit.measures import measure
from fedforget.errors import FedForgetError, InputError
from fedforget.experiments.drawing import Bars, bar_charts
from fedforget.experiments.engine import CellSpec, Experiment, Row
from fedforget.experiments.options import Options
from fedforget.experiments.scenario import MIXED, Scenario, ScenarioSpec
from fedforget.experiments.summaries import RETRAIN, by_method, by_setting, notes_of, paired_with_retrain, where
from fedforget.experiments.tables import Entry, Table
from fedforget.federation.rounds import further_rounds
from fedforget.params import State

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
        state, cost, steps = _served(spec, scenario)
        figures |= cost | {"test_acc_by_step": steps} | scenario.measure(state)
        schedule, exclude = scenario.schedule, scenario.requests
        for done, later in further_rounds(scenario.federation, state, schedule, exclude, FURTHER):
            if done == 0:
                figures |= bd_acc_by_request(scenario, state)
            if done == FURTHER:
                figures |= bd_acc_by_request(scenario, later, "_later")
                figures["test_acc_later"] = scenario.measure(later)["test_acc"]
    except FedForgetError as error:
        return figures | {"note": str(error)}
    return figures


def _served(spec: CellSpec, scenario: Scenario) -> tuple[State, dict[str, Any], list[float | None]]:
    """(the model without all the targets, what that cost together, Test Acc after each step)."""
    if spec.setting == AT_ONCE:
        result = scenario.forget(spec.method, spec.preset, spec.overrides)
        return result.state, result.cost.to_json(), []
    state, steps, total = scenario.before, [], {"seconds": 0.0, "gradient_evaluations": 0.0, "bytes": 0}
    for number, request in enumerate(scenario.requests):
        result = scenario.forget(
            spec.method, spec.preset, spec.overrides,
            state=state, requests=[request], served=scenario.requests[:number],
        )  # fmt: skip
        state, cost = result.state, result.cost.to_json()
        total = {name: total[name] + cost[name] for name in total}
        test = measure(
            scenario.federation, state, [request], scenario.dataset.test,
            seed=scenario.spec.seed, threads=scenario.options.threads,
        )  # fmt: skip
        steps.append(test.test_acc)
    return state, total, steps


def bd_acc_by_request(scenario: Scenario, state: State, when: str = "") -> dict[str, dict[str, float | None]]:
    """BD Acc of each target, and how often its images get the flipped label without the trigger, under the request in
    words."""
    return {
        f"{name}_by_request{when}": {r.describe(): figure(state, r) for r in scenario.requests}
        for name, figure in (("bd_acc", scenario.bd_acc), ("bd_acc_plain", scenario.bd_acc_plain))
    }


def _ways(rows: Sequence[Row]) -> list[tuple[str, Sequence[Row]]]:
    """Each method in each of its ways."""
    found: list[tuple[str, Sequence[Row]]] = []
    for name, own in by_method(rows).items():
        for way, rows_of_way in by_setting(own).items():
            found.append((name if own[0]["method"] == RETRAIN else f"{name}, {way}", rows_of_way))
    return found


def tables(rows: Sequence[Row]) -> list[Table]:
    ways = _ways([row for row in rows if "test_acc_later" in row])
    retrained = where(rows, "method", RETRAIN)
    after: list[list[str | Entry]] = []
    for shown, own in ways:
        after.append([
            shown,
            *(Entry.of(row[name] for row in own) for name in ("bd_acc", "test_acc", "test_acc_later")),
            Entry.of(row["gradient_evaluations"] for row in own),
        ])  # fmt: skip
    heads = ("", "BD Acc (%), all targets", "Test Acc (%)", f"Test Acc after {FURTHER} rounds", "gradient evaluations")
    summary = Table("Ten requests served", heads, after, notes_of(rows))
    beside: list[list[str | Entry]] = []
    for shown, own in ways:
        pairs = paired_with_retrain(own, retrained, alike=("class", "seed"))
        if own[0]["method"] == RETRAIN or not pairs:
            continue
        beside.append([
            shown,
            Entry.of(mine["test_acc"] - theirs["test_acc"] for mine, theirs in pairs),
            Entry.of(mine["test_acc_later"] - theirs["test_acc_later"] for mine, theirs in pairs),
            *(Entry.of(_farthest(pairs, name)) for name in ("bd_acc_by_request", "bd_acc_by_request_later")),
        ])  # fmt: skip
    heads = ("", "Test Acc", f"Test Acc after {FURTHER} rounds", "BD Acc, the farthest target",
             f"the farthest after {FURTHER} rounds")  # fmt: skip
    title = "Method minus Retrain without all ten, in points; BD Acc: of the target whose distance is largest"
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


def _requests(ways: Sequence[tuple[str, Sequence[Row]]], name: str) -> list[str]:
    return list(dict.fromkeys(request for _, own in ways for row in own for request in row.get(name, ())))


def _by_request(ways: Sequence[tuple[str, Sequence[Row]]]) -> list[Table]:
    found = []
    for name, title in SHOWN.items():
        shown = _requests(ways, name)
        if not shown:
            continue
        body: list[list[str | Entry]] = [
            [request, *(Entry.of(row.get(name, {}).get(request) for row in own) for _, own in ways)]
            for request in shown
        ]
        found.append(Table(title, ("", *(way for way, _ in ways)), body, wide=True))
    return found


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """BD Acc of each target, when all are served and some rounds later."""
    ways = _ways([row for row in rows if "test_acc_later" in row])
    panels = [
        Bars(
            f"BD Acc of each target, {when}",
            _requests(ways, name),
            {way: [Entry.of(row[name].get(r) for row in own) for r in _requests(ways, name)] for way, own in ways},
            "BD Acc (%)",
        )
        for name, when in WHEN.items()
    ]
    return bar_charts(stem, f"Ten requests, {rows[0]['dataset']}", rows, panels)


REQUESTS = Experiment(
    name="requests",
    title="Ten requests, one after another and at once",
    label="",
    specs=specs,
    run=run,
    tables=tables,
    figures=figures,
)
