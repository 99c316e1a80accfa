"""Does it last? What a model that forgot knows of the target after 0, 1, 3 and 5 further ordinary rounds without it.

`audit.durability` says what is measured: BD Acc (poisoned targets), the memory gap and the membership AUC (clean ones);
Test Acc beside them. All stand beside Retrain after the same rounds, and beside the cost as a share of Retrain's
gradient evaluations: the price list (no table of the paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from fedforget.audit.case import Case
from fedforget.audit.durability import ROUNDS, beside_unseen
from fedforget.audit.membership import attack_membership
from fedforget.errors import FedForgetError
from fedforget.experiments.columns import Figure, Line, notes_of, table
from fedforget.experiments.drawing import Points, scatter_plots
from fedforget.experiments.engine import CellSpec, Experiment, Row, model_of, target_specs
from fedforget.experiments.pages import provenance_of
from fedforget.experiments.pairs import RETRAIN, paired
from fedforget.experiments.scenario import Scenario
from fedforget.experiments.summaries import by_method, by_setting, method_name
from fedforget.experiments.tables import Entry, Table
from fedforget.federation.rounds import further_rounds
from fedforget.methods import RUNGS
from fedforget.params import State

QUICK_ROUNDS = (1, 3)
DEFAULT_TARGETS = ("class", "clean-class", "clean-samples", "clean-client")
PLAIN = "bd_acc_plain"
KEPT = ("bd_acc", "bd_acc_test", PLAIN, "true_acc", "target_loss", "test_acc")
FIGURES = {
    "bd_acc": "BD Acc",
    PLAIN: "That label on unseen images without the trigger",
    "memory_gap": "memory gap",
    "auc": "membership AUC",
    "test_acc": "Test Acc",
}
INTRODUCTION = f"""\
A rung is picked with one option: `fedforget forget --effort {"|".join(RUNGS)}`; without it the ladder
picks one. Each line is a method minus Retrain after the same further ordinary rounds, none of which sees the target:
0 is as if it had never been there. For poisoned targets BD Acc tells; for clean ones the memory gap (accuracy on the
target minus accuracy on unseen samples of the same kind) and the AUC of a membership attack. What else was tried:
[rebuilding](../decisions/rebuilding.md)."""
AFTER = ("3", "5")
DIGITS = {"auc": 3}


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    figures = scenario.figures_before() | {"target": spec.setting}
    try:
        state, cost = model_of(spec, scenario)
        measured = scenario.measure(state)
        rounds = (0, *(QUICK_ROUNDS if scenario.options.quick else ROUNDS))
        return figures | measured | cost | {"later": curve(scenario, state, measured, rounds)}
    except FedForgetError as error:
        return figures | {"note": str(error)}


def curve(
    scenario: Scenario, before: State, now: Mapping[str, Any], rounds: Sequence[int]
) -> dict[str, dict[str, float | None]]:
    """The figures after each of `rounds`, by their number as a word (they go through JSON). `now`: what was measured
    before any of them."""
    case, found = Case(scenario.federation, scenario.requests, scenario.schedule), {}
    for done, state in further_rounds(case.federation, before, case.schedule, case.exclude, max(rounds)):
        if done in rounds:
            measured = scenario.measure(state) if done else now
            attacked = attack_membership(case, state, keep=False)
            found[str(done)] = {name: measured[name] for name in KEPT} | beside_unseen(attacked)
    return found


def tables(rows: Sequence[Row]) -> list[Table]:
    found = []
    for target, own in by_setting(rows).items():
        accuracy = ("bd_acc",) if target.startswith("clean-") else ()
        found += [_curves(target, figure, own) for figure in (*accuracy, *shown_for(target))]
        if any(value is not None for done in _rounds(own) for value in _values(own, done, PLAIN)):
            found.append(_curves(target, PLAIN, own))
        found.append(_prices(target, own))
    return found


def shown_for(target: str) -> tuple[str, ...]:
    return ("memory_gap", "auc", "test_acc") if target.startswith("clean-") else ("bd_acc", "test_acc")


def _rounds(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(done for row in rows for done in row.get("later") or ()))


def _values(rows: Sequence[Row], done: str, figure: str) -> list[float | None]:
    return [row["later"][done].get(figure) for row in rows if done in (row.get("later") or {})]


def _curves(target: str, figure: str, rows: Sequence[Row]) -> Table:
    def after(done: str) -> Figure:
        return lambda own: Entry.of(_values(own, done, figure), digits=DIGITS.get(figure, 2))

    columns = {f"after {done}" if done != "0" else "at once": after(done) for done in _rounds(rows)}
    unit = "" if figure == "auc" else ", points" if figure == "memory_gap" else " (%)"
    name = "accuracy on the target" if figure == "bd_acc" and target.startswith("clean-") else FIGURES[figure]
    title = f"{name}{unit}, target {target}, after further rounds"
    return table(title, by_method(rows), columns, notes_of(rows), first="model")


def beside_retrain(rows: Sequence[Row], done: str, figure: str) -> dict[str, list[float]]:
    """For each method: its figure minus Retrain's after the same rounds, scenario by scenario."""
    found: dict[str, list[float]] = {}
    for row, retrain in paired(rows, rows):
        mine, theirs = (r["later"].get(done, {}).get(figure) for r in (row, retrain))
        if mine is not None and theirs is not None:
            found.setdefault(method_name(row), []).append(mine - theirs)
    return found


def cost_shares(rows: Sequence[Row]) -> dict[str, list[float]]:
    """For each method: its gradient evaluations as a share of Retrain's in the same scenario."""
    found: dict[str, list[float]] = {}
    for row, retrain in paired(rows, rows):
        if row["gradient_evaluations"] is not None:
            share = row["gradient_evaluations"] / retrain["gradient_evaluations"]
            found.setdefault(method_name(row), []).append(share)
    return found


def _prices(target: str, rows: Sequence[Row]) -> Table:
    """Quality and durability against cost: what a point of the plot is."""
    last = _rounds(rows)[-1] if _rounds(rows) else "0"
    columns = [(figure, last, f"{FIGURES[figure]} minus Retrain's") for figure in shown_for(target)]
    body: list[Line] = [[name, *line] for name, line in price_lines(rows, columns).items()]
    heads = ("model", "cost, % of Retrain's", *(head for *_, head in columns))
    return Table(f"The price list, target {target}, after {last} further rounds", heads, body)


def price_lines(rows: Sequence[Row], columns: Sequence[tuple[str, str, str]]) -> dict[str, list[Entry]]:
    """Each method's cost in percent of Retrain's, and its distance from Retrain for each (figure, rounds, head)."""
    shares = cost_shares(rows)
    gaps = [(beside_retrain(rows, done, figure), DIGITS.get(figure, 2)) for figure, done, _ in columns]
    return {
        name: [
            Entry.of([100.0 * share for share in shares.get(name, ())]),
            *(Entry.of(gap.get(name, ()), digits=digits) for gap, digits in gaps),
        ]
        for name in by_method(rows)
    }


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """The frontier: how far from Retrain after the last round, against the cost; one panel for each target."""
    panels = []
    for target, own in by_setting(rows).items():
        if not _rounds(own):
            continue
        last, figure = _rounds(own)[-1], shown_for(target)[0]
        gaps, shares = beside_retrain(own, last, figure), cost_shares(own)
        points: dict[str, tuple[float, float]] = {
            name: (fmean(shares[name]), fmean(gaps[name])) for name in gaps if name in shares and name != RETRAIN
        }
        up = f"{FIGURES[figure]} minus Retrain's, points"
        panels.append(Points(f"{target}, after {last} rounds", points, "cost, share of Retrain's", up))
    return scatter_plots(stem, f"The price of forgetting that lasts, {rows[0]['dataset']}", rows, panels)


def remarks(rows: Sequence[Row]) -> list[str]:
    """Which methods' memory comes back: those that gain more than Retrain does between the first and the last round."""
    sentences = []
    for target, own in by_setting(rows).items():
        if len(_rounds(own)) < 2:
            continue
        figure, last = shown_for(target)[0], _rounds(own)[-1]
        now, later = beside_retrain(own, "0", figure), beside_retrain(own, last, figure)
        gains: Mapping[str, float] = {
            name: fmean(later[name]) - fmean(now[name])
            for name in later
            if name in now and name not in (RETRAIN, "before")
        }
        listed = ", ".join(f"{name} {gain:+.1f}" for name, gain in sorted(gains.items(), key=lambda g: -g[1]))
        if listed:
            sentences.append(
                f"What comes back in {last} rounds, target {target} ({FIGURES[figure]} beyond what Retrain's changes, "
                f"points): {listed}."
            )
    return sentences


def overview(cells: Mapping[str, Sequence[Row]], folder: Path) -> list[str]:
    """The price list over all data sets: what each method's forgetting costs, and what is left of it later."""
    targets = list(dict.fromkeys(target for rows in cells.values() for target in by_setting(rows)))
    parts = ["# The price of forgetting that lasts", INTRODUCTION]
    parts += [prices(target, cells).to_markdown() for target in targets]
    for name, rows in cells.items():
        parts.append(f"**{name}**: [all curves](durability-{name}.md). {provenance_of(rows)}")
        if (folder / f"durability-{name}.png").exists():
            parts.append(f"![The frontier on {name}](durability-{name}.png)")
    return parts


def prices(target: str, cells: Mapping[str, Sequence[Row]]) -> Table:
    """A line for each data set and method that stands beside a Retrain."""
    columns = [
        (figure, done, f"{FIGURES[figure]}, {done} rounds") for figure in shown_for(target) for done in AFTER
    ]  # fmt: skip
    body: list[Line] = []
    for name, rows in cells.items():
        own = by_setting(rows).get(target, [])
        for method, line in price_lines(own, columns).items():
            if method != RETRAIN and line[1].count:
                body.append([name, method, *line, str(line[1].count)])
    heads = ("data", "model", "cost, % of Retrain's", *(head for *_, head in columns), "cells")
    return Table(f"Target {target}: minus Retrain", heads, body)


DURABILITY = Experiment(
    name="durability",
    title="Does it last?",
    specs=partial(target_specs, targets=DEFAULT_TARGETS),
    run=run,
    tables=tables,
    figures=figures,
    remarks=remarks,
    overview=overview,
)
