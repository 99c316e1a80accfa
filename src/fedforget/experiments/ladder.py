"""The ladder against Retrain: where does a request end that names no method? (no table of the paper)

    caught      the untouched model, which an audit with three oracles calls `not forgotten`
    the model   where the ladder ended: the same audit, the figures beside the mean of the oracles, the bill
    the check   what it said of each rung, beside what the audit says of that rung's model

A configuration of this experiment holds out samples of its own at the clients: the ladder steers and judges by them,
the audit attacks with them, and the test part gives the figures alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from fedforget.audit.check import CheckWord
from fedforget.errors import FedForgetError, InputError
from fedforget.experiments.audited import judged, oracles_of
from fedforget.experiments.calibration import CALIBRATION
from fedforget.experiments.configurations import CONFIGURATIONS
from fedforget.experiments.durability import curve
from fedforget.experiments.engine import CellSpec, Experiment, Row
from fedforget.experiments.options import Options
from fedforget.experiments.pages import command, provenance_of, rows_in, write_block
from fedforget.experiments.scenario import Scenario, ScenarioSpec
from fedforget.experiments.stops import against_the_truth, said_in_climbs, said_of_models
from fedforget.experiments.summaries import by_setting
from fedforget.experiments.tables import DASH, Entry, Table
from fedforget.methods import LADDER
from fedforget.params import State
from fedforget.runs.climb import SCOUT_RUNG, Climb
from fedforget.runs.ladder import climb

SEEDS = 5
ROUNDS = (0, 5)
TARGETS = {
    "digits": ("clean-class", "class"),
    "cifar10": ("clean-samples", "clean-class", "clean-client", "class"),
    "mnist": ("clean-samples", "clean-class", "clean-client", "class"),
}
ASKERS = {"digits": (0, 1)}
"""Who asks, one after another; elsewhere client 0."""
TENTH = 10
"""Honest samples: a tenth of all, or `MOST` of them."""
MOST = 500
INTRODUCTION = """\
A request that names no method climbs: overwrite, rebuild, retrain ([the ladder](../decisions/ladder.md)). An audit
against three Retrains says where it ended, and first whether the untouched model can be told from a Retrain at all:
these are the *caught* cells. Figures stand beside the mean of the three."""


def specs(options: Options) -> list[CellSpec]:
    """Digits: every class of two clients, honest and poisoned. Else a target of each kind, another class each time."""
    configuration = options.settings
    if not configuration.held_out or options.dataset not in TARGETS:
        raise InputError(
            "Experiment 'ladder' needs a configuration in which the clients hold out training samples: "
            f"{_with_held_out()}."
        )
    count = min(MOST, (configuration.samples or (MOST * TENTH, 0))[0] // TENTH)
    every = options.dataset in ASKERS
    found = []
    for trial in range(options.trials or (1 if every or options.quick else SEEDS)):
        seed = options.seed + trial
        for target in options.targets or TARGETS[options.dataset]:
            kind, poisoned = target.removeprefix("clean-"), not target.startswith("clean-")
            chosen = options.chosen_classes()
            for label in (chosen if every else (chosen[seed % len(chosen)],)) if kind == "class" else (None,):
                for client in ASKERS.get(options.dataset, (0,)):
                    labels, name = (() if label is None else (label,)), {"samples": f"samples{count}"}.get(kind, kind)
                    scenario = ScenarioSpec(
                        labels, seed, poisoned, None if kind == "class" else name, client=client if every else None
                    )
                    found.append(CellSpec(scenario, trial, label, LADDER, "default", target))
    return found


def _with_held_out() -> str:
    """Which data set can be run in which configuration."""
    pairs = [(data, c.name) for data in TARGETS for c in CONFIGURATIONS[data].values() if c.held_out]
    return ", ".join(f"{data} with {name}" for data, name in pairs)


class KeptInMemory:
    """The rungs of one climb, for the audit."""

    def __init__(self) -> None:
        self.models: dict[str, State] = {}

    def load(self, name: str) -> None:
        return None

    def save(self, name: str, state: State, note: Mapping[str, Any]) -> None:
        self.models[name] = state


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    figures = scenario.figures_before() | {"target": spec.setting}
    kept = KeptInMemory()
    try:
        made = climb(scenario.federation, scenario.before, scenario.requests, scenario.schedule, kept=kept)
        return figures | scenario.measure(made.state) | made.cost.to_json() | _beside(scenario, made, kept.models)
    except FedForgetError as error:
        return figures | {"note": str(error)}


def _beside(scenario: Scenario, made: Climb, models: Mapping[str, State]) -> dict[str, Any]:
    """The verdicts, the figures later on, and the share of the bill."""
    oracles = oracles_of(scenario)
    later = {name: _later(scenario, state) for name, state in (("before", scenario.before), (LADDER, made.state))}
    of_rungs = {name: judged(scenario, state) for name, state in models.items() if name != SCOUT_RUNG}
    return {
        "word": made.word,
        "rungs": [rung.to_json() | {"truth": of_rungs.get(rung.name)} for rung in made.rungs],
        "untouched": judged(scenario, scenario.before),
        "verdict": judged(scenario, made.state),
        "share": made.cost.gradient_evaluations / made.retrain,
        "checking": made.checking.gradient_evaluations / made.retrain,
        "later": later | {"retrain": [_later(scenario, oracle) for oracle in oracles]},
    }


def _later(scenario: Scenario, state: State) -> dict[str, dict[str, float | None]]:
    return curve(scenario, state, scenario.measure(state), ROUNDS)


def caught(row: Row) -> bool:
    """Whether the audit tells the untouched model from a Retrain."""
    return row["untouched"]["word"] == "not forgotten"


def accused(verdict: Mapping[str, Any]) -> list[str]:
    """The measures that lie outside what three Retrains differ by."""
    return [f["name"] for f in verdict["findings"] if f["says"] in ("remembers", "over-forgotten")]


def good(row: Row) -> bool:
    """Where the untouched model is caught: the audit's `forgotten`, or exact. Elsewhere: no measure accuses."""
    if row["word"] == "exact":
        return True
    return row["verdict"]["word"] == "forgotten" if caught(row) else not accused(row["verdict"])


def behind(row: Row, done: str, figure: str) -> float | None:
    """The ladder's figure minus the mean of three Retrains, so many rounds on."""
    mine = row["later"][LADDER][done][figure]
    theirs = [one[done][figure] for one in row["later"]["retrain"]]
    return None if mine is None or None in theirs else mine - fmean(theirs)


def tables(rows: Sequence[Row]) -> list[Table]:
    return [ended(rows), _figures(rows), checked(rows), _single(rows)]


def ended(rows: Sequence[Row]) -> Table:
    """Where the requests ended, by target."""
    body: list[list[str | Entry]] = []
    for target, own in [*by_setting(rows).items(), ("all", list(rows))]:
        whole = [row for row in own if row["note"] is None]
        told = [row for row in whole if caught(row)]
        rest = [row for row in whole if not caught(row)]
        top = [row["rungs"][-1]["name"] for row in whole]
        body.append([
            str(target), str(len(own)),
            f"{sum(map(good, told))} of {len(told)}", f"{sum(map(good, rest))} of {len(rest)}",
            *(str(top.count(name)) for name in ("overwrite", "rebuild", "retrain")),
            Entry.of([100 * row["share"] for row in whole], digits=1),
            Entry.of([100 * row["checking"] for row in whole], digits=1),
        ])  # fmt: skip
    columns = (
        "target", "cells", "caught: `forgotten` or exact", "not caught: within three Retrains", "ended at overwrite",
        "rebuild", "retrain", "cost, % of Retrain's", "of it scout and checks",
    )  # fmt: skip
    return Table("Where the ladder ended", columns, body, _broken(rows))


def _broken(rows: Sequence[Row]) -> list[str]:
    return [f"{row['setting']}, seed {row['seed']}: {row['note']}" for row in rows if row["note"]]


def _figures(rows: Sequence[Row]) -> Table:
    """Beside the mean of three Retrains, at once and five rounds on."""
    body: list[list[str | Entry]] = []
    for target, own in by_setting(rows).items():
        whole = [row for row in own if row["note"] is None]
        memory = ("memory_gap", "auc") if str(target).startswith("clean-") else ("bd_acc",)
        for figure in ("test_acc", *memory):
            digits = 3 if figure == "auc" else 1
            body.append([
                str(target), NAMES[figure],
                *(Entry.of([behind(row, str(done), figure) for row in whole], digits=digits) for done in ROUNDS),
            ])  # fmt: skip
        limit = LIMITS.get(rows[0]["dataset"], 1.0)
        low = [row for row in whole if (behind(row, "0", "test_acc") or 0.0) < -limit]
        retrains = [one - fmean(others) for row in whole for one, others in _each_beside_the_others(row)]
        some = f"{sum(lost < -limit for lost in retrains)} of {len(retrains)}"
        body.append([str(target), f"cells that lose more than {limit:g} points of Test Acc", str(len(low)), DASH])
        body.append([str(target), "Retrains that do, beside the mean of the two others", some, DASH])
    return Table("The ladder minus the mean of three Retrains", ("target", "figure", "at once", "after 5 rounds"), body)


def _each_beside_the_others(row: Row) -> list[tuple[float, list[float]]]:
    """The test accuracy of each Retrain, and of the others."""
    found = [one["0"]["test_acc"] for one in row["later"]["retrain"]]
    return [(one, [*found[:place], *found[place + 1 :]]) for place, one in enumerate(found)]


NAMES = {"test_acc": "Test Acc", "memory_gap": "memory gap", "auc": "membership AUC", "bd_acc": "BD Acc"}
LIMITS = {"cifar10": 1.5}
"""How many points of test accuracy a request may cost; 1 elsewhere."""


def checked(rows: Sequence[Row]) -> Table:
    """What the check said of each rung, beside what the audit says of the rung's model."""
    pairs = [
        (rung["name"], rung["word"], "remembers" if rung["truth"]["word"] == "not forgotten" else "as never seen")
        for row in rows
        if row["note"] is None
        for rung in row["rungs"]
        if rung["truth"] is not None and rung["check"] is not None and caught(row)
    ]
    body: list[list[str | Entry]] = []
    for name in ("overwrite", "rebuild"):
        for truth in ("as never seen", "remembers"):
            own = [word for rung, word, found in pairs if (rung, found) == (name, truth)]
            body.append([name, truth, *(str(own.count(word)) for word in get_args(CheckWord))])
    first, *rest = get_args(CheckWord)
    columns = ("rung", "the audit", f"the check: {first}", *rest)
    return Table("The check beside the audit, caught cells", columns, body)


def _single(rows: Sequence[Row]) -> Table:
    body: list[list[str | Entry]] = [
        [
            row["key"].split("/", 2)[-1] if "key" in row else str(row["setting"]), row["untouched"]["word"],
            " > ".join(f"{rung['name']}: {rung['word']}" for rung in row["rungs"]), row["verdict"]["word"],
            ", ".join(accused(row["verdict"])) or DASH, Entry.of([behind(row, "0", "test_acc")], digits=1),
            Entry.of([100 * row["share"]], digits=1),
        ]
        for row in rows
        if row["note"] is None
    ]  # fmt: skip
    columns = ("cell", "untouched", "climb", "the audit", "what told", "Test Acc", "cost, %")
    return Table("Every cell", columns, body, wide=True)


def overview(cells: Mapping[str, Sequence[Row]], folder: Path) -> list[str]:
    readme = folder.parents[1] / "README.md"
    if readme.exists() and f"<!-- {BLOCK} -->" in readme.read_text():
        write_block(readme, BLOCK, shortly(cells).to_markdown())
    parts = ["# The ladder against Retrain", INTRODUCTION]
    for name, rows in cells.items():
        parts += [f"## {name}", f"{command(EXPERIMENT, rows)} {provenance_of(rows)} Every cell: "
                  f"[ladder-{name}.md](ladder-{name}.md)."]  # fmt: skip
        parts += [table.to_markdown() for table in (ended(rows), _figures(rows), checked(rows))]
    models = {f"calibration, {name}": said_of_models(rows) for name, rows in rows_in(folder, CALIBRATION).items()}
    climbs = {name: said_in_climbs(rows) for name, rows in cells.items()}
    return [*parts, against_the_truth(climbs | {name: said for name, said in models.items() if said}).to_markdown()]


BLOCK = "ladder-table"
"""Where the README shows the whole shortly."""


def shortly(cells: Mapping[str, Sequence[Row]]) -> Table:
    """A line for each kind of target of each bench."""
    body: list[list[str | Entry]] = []
    for name, rows in cells.items():
        for target, own in by_setting(rows).items():
            whole = [row for row in own if row["note"] is None]
            told = [row for row in whole if caught(row)]
            top = [row["rungs"][-1]["name"] for row in whole]
            kind = str(target).removeprefix("clean-")
            body.append([
                name, f"{'honest' if kind != target else 'poisoned'} {kind}", str(len(own)),
                f"{sum(map(good, told))} of {len(told)}",
                " / ".join(str(top.count(rung)) for rung in ("overwrite", "rebuild", "retrain")),
                Entry.of([behind(row, "0", "test_acc") for row in whole], digits=1),
                Entry.of([100 * row["share"] for row in whole], digits=0),
            ])  # fmt: skip
    columns = (
        "data", "withdrawn", "requests", "caught before: `forgotten` or exact after", "ended at overwrite / rebuild / "
        "retrain", "Test Acc beside Retrain", "cost, % of Retrain's",
    )  # fmt: skip
    return Table("Where requests end beside Retrain, on seeds that nothing was tuned on", columns, body)


EXPERIMENT = Experiment(
    name=LADDER,
    title="The ladder against Retrain",
    label="",
    specs=specs,
    run=run,
    tables=tables,
    overview=overview,
    methods=None,
)
