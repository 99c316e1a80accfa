"""Shards against one federation: what they cost in accuracy, and what a request costs then (no table of the paper).

    one        S = 1: one federation, and Retrain
    S          S federations of disjoint clients; the shard that holds the target is retrained
    twin       the same training, with a target that was never there: its bits must be those of what forgot
    Retrain    an ensemble from other draws that never saw the target, beside which the rest is measured

On digits an audit with three oracles judges the untouched ensemble, a fresh Retrain, and what forgot, as if nobody knew
how that was made. With S = 4 the other members outvote a poisoned class of 36 samples; there a further cell has half of
the client's samples poisoned, and eight oracles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedforget.audit.case import Level
from fedforget.errors import FedForgetError
from fedforget.experiments.audited import fresh_oracle, judged
from fedforget.experiments.columns import Columns, Figure, mean, notes_of, table
from fedforget.experiments.configurations import find_configuration
from fedforget.experiments.durability import curve
from fedforget.experiments.engine import DEFAULT_CLASS, CellSpec, Experiment, Row
from fedforget.experiments.options import Options
from fedforget.experiments.pages import command, provenance_of
from fedforget.experiments.scenario import Scenario, ScenarioSpec
from fedforget.experiments.summaries import by_setting, where
from fedforget.experiments.tables import DASH, Entry, Table
from fedforget.federation.rounds import train
from fedforget.federation.sight import Left
from fedforget.params import State, digest

NUMBERS = (1, 2, 4)
JUDGED = ("digits",)
"""Where an audit is quick."""
HALF, MOST = "half", NUMBERS[-1]
ROUNDS = (0, 5)
INTRODUCTION = """\
S federations of disjoint clients, served as the mean of their probabilities; a request retrains the shard that holds
the target ([why so](../decisions/shards.md)). S = 1 is one federation and Retrain. The target is a class of client 0,
with a trigger and a wrong label. *Same bits* counts the seeds in which the model that forgot is, bit for bit, that of a
training in which the target was never there. `Retrain` in the second table is an ensemble from other draws. The
verdicts are made as if nobody knew how a model was made."""


def specs(options: Options) -> list[CellSpec]:
    found = []
    for trial in options.chosen_trials():
        for label in options.classes or (DEFAULT_CLASS,):
            for shards in NUMBERS[1:2] if options.quick else NUMBERS:
                scenario = ScenarioSpec((label,), options.seed + trial, shards=shards)
                found.append(CellSpec(scenario, trial, label, "shards", "default", shards))
        if options.dataset in JUDGED and not options.quick:
            scenario = ScenarioSpec((), options.seed + trial, target=HALF, shards=MOST)
            found.append(CellSpec(scenario, trial, None, "shards", "default", HALF))
    return found


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    figures = scenario.figures_before()
    try:
        made = scenario.forget("retrain", "default")
        schedule = scenario.schedule
        left = Left.count(scenario.federation, scenario.requests, (), schedule)
        share = made.cost.gradient_evaluations / (left.kept * schedule.rounds * schedule.epochs)
        figures |= scenario.measure(made.state) | made.cost.to_json() | {"share": share, "exact": made.exact}
        return figures | _beside(scenario, made.state)
    except FedForgetError as error:
        return figures | {"note": str(error)}


def _beside(scenario: Scenario, ours: State) -> dict[str, Any]:
    """The twin, the further rounds, and what the audit says."""
    found: dict[str, Any] = {}
    if scenario.spec.shards > 1:
        twin = train(scenario.federation, scenario.initial, scenario.schedule, exclude=scenario.requests)
        found["same_bits"] = digest(twin) == digest(ours)
    level: Level = "full" if scenario.spec.target == HALF else "quick"
    models = {"before": scenario.before, "retrained": fresh_oracle(scenario, level), "ours": ours}
    found["later"] = {name: curve(scenario, model, scenario.measure(model), ROUNDS) for name, model in models.items()}
    if scenario.options.dataset in JUDGED:
        found["verdicts"] = {name: judged(scenario, model, level) for name, model in models.items()}
    return found


def tables(rows: Sequence[Row]) -> list[Table]:
    halves = where(rows, "setting", HALF)
    rows = [row for row in rows if row["setting"] != HALF]
    by_shards = {f"S = {shards}": own for shards, own in by_setting(rows).items()}
    first = {row["seed"]: row for row in rows if row["setting"] == 1}

    def beside_one(name: str, as_part: bool) -> Figure:
        def figure(own: Sequence[Row]) -> Entry:
            pairs = [(row[name], first[row["seed"]][name]) for row in own if row["seed"] in first and not row["note"]]
            found = [100.0 * mine / one if as_part else mine - one for mine, one in pairs]
            return Entry.of(found, digits=1)

        return figure

    columns: Columns = {
        "Test Acc before": mean("test_acc_before", digits=1),
        "beside S = 1, points": beside_one("test_acc_before", as_part=False),
        "Test Acc after": mean("test_acc", digits=1),
        "cost, % of Retrain's": mean("share", digits=1, unit=0.01),
        "seconds, % of Retrain's": beside_one("seconds", as_part=True),
        "same bits": _same_bits,
    }
    further: Columns = {
        "before": _later("before", "0"), "at once": _later("ours", "0"), "after 5": _later("ours", "5"),
        "Retrain at once": _later("retrained", "0"), "Retrain after 5": _later("retrained", "5"),
    }  # fmt: skip
    found = [
        table("Accuracy (%), and the cost of a request", by_shards, columns, notes_of(rows)),
        table("BD Acc (%), at once and after five further rounds", by_shards, further),
    ]
    if any(row.get("verdicts") for row in rows):
        said: Columns = {"untouched": _said("before"), "fresh Retrain": _said("retrained"), "ours": _said("ours")}
        found.append(table("Verdicts against three oracles", by_shards, said))
        if halves:
            title = "Verdicts against eight oracles, where half of the client's samples are poisoned and withdrawn"
            found.append(table(title, {f"S = {MOST}": halves}, {**said, "same bits": _same_bits}))
    return found


def _same_bits(rows: Sequence[Row]) -> str:
    told = [row["same_bits"] for row in rows if row.get("same_bits") is not None]
    return f"{sum(told)} of {len(told)}" if told else DASH


def _later(model: str, done: str) -> Figure:
    return lambda rows: Entry.of((row["later"][model][done]["bd_acc"] for row in rows if row.get("later")), digits=1)


def _said(model: str) -> Callable[[Sequence[Row]], str]:
    def tally(rows: Sequence[Row]) -> str:
        words = Counter(row["verdicts"][model]["word"] for row in rows if row.get("verdicts"))
        return ", ".join(f"{word} {count}" for word, count in words.most_common()) or DASH

    return tally


def overview(cells: Mapping[str, Sequence[Row]], folder: Path) -> list[str]:
    """All data sets on one page."""
    parts = ["# Shards", INTRODUCTION]
    for name, rows in cells.items():
        parts += [f"## {name}", *(table.to_markdown() for table in tables(rows))]
        parts.append(f"{find_configuration(rows[0]['dataset'], rows[0]['configuration']).describe()}")
        parts.append(f"{command(SHARDS, rows)} {provenance_of(rows)}")
    return parts


SHARDS = Experiment(
    name="shards",
    title="Shards",
    specs=specs,
    run=run,
    tables=tables,
    overview=overview,
    has_pages=False,
    methods=None,
)
