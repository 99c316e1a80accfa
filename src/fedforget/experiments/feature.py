"""Is a feature forgotten? How much models listen to it, beside Retrain's, when one client or all of them withdraw it.

`audit.feature_sensitivity` says what is measured. Retrain is not deaf to a feature that it never saw, and no two
Retrains listen alike; so a second one, from another initialisation, shows how near to a Retrain anybody can come. Test
Acc is taken with the feature, as the data are, and without it, as they come once nobody may use it (no table of the
paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from fedforget.audit.case import Case
from fedforget.audit.feature_sensitivity import measure_sensitivity
from fedforget.errors import FedForgetError, InputError
from fedforget.experiments.columns import Columns, Line, counted, mean, notes_of, table
from fedforget.experiments.drawing import Bars, bar_charts
from fedforget.experiments.engine import UNTOUCHED, CellSpec, Experiment, Row, model_of
from fedforget.experiments.options import Options
from fedforget.experiments.pairs import RETRAIN, difference, paired
from fedforget.experiments.scenario import Scenario, ScenarioSpec
from fedforget.experiments.summaries import by_method, by_setting, values
from fedforget.experiments.tables import Entry, Table
from fedforget.requests import Feature, describe_feature

FEATURES: dict[str, tuple[Feature, ...]] = {
    "breast_cancer": ((20,), (27,)),
    "mnist": ((11, 11, 6, 6),),
    "digits": ((3, 3, 2, 2),),
}
"""Worst radius and worst concave points, the columns that tell the classes apart best; the middle of an image."""
AGAIN = ("retrain again", "default")


def specs(options: Options) -> list[CellSpec]:
    if options.dataset not in FEATURES:
        raise InputError(f"No feature of '{options.dataset}' is chosen here; use one of {', '.join(FEATURES)}.")
    return [
        CellSpec(
            ScenarioSpec((), options.seed + trial, False, feature=feature, askers=askers),
            trial,
            None,
            method,
            preset,
            f"{describe_feature(feature)}, {who}",
        )
        for trial in options.chosen_trials()
        for feature in FEATURES[options.dataset]
        for askers, who in ((1, "one client"), (options.settings.clients, "all clients"))
        for method, preset in (UNTOUCHED, *(options.methods or ()), AGAIN)
    ]


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    try:
        again = (spec.method, spec.preset) == AGAIN
        served = replace(spec, method=RETRAIN, overrides={"oracle": 1}) if again else spec
        state, cost = model_of(served, scenario)
        case = Case(scenario.federation, scenario.requests, scenario.schedule)
        heard = {
            name: measure_sensitivity(case, model).to_json()
            for name, model in (("now", state), ("before", scenario.before))
        }
        return scenario.measure(state) | cost | {
            "sensitivity": heard["now"]["unseen"], "sensitivity_at_client": heard["now"]["target"],
            "sensitivity_before": heard["before"]["unseen"], "test_acc_without": heard["now"]["unseen_acc_without"],
        }  # fmt: skip
    except FedForgetError as error:
        return {"note": str(error)}


def tables(rows: Sequence[Row]) -> list[Table]:
    return [
        made for setting, own in by_setting(rows).items() for made in (_models(setting, own), _beside(setting, own))
    ]


def _models(setting: str, rows: Sequence[Row]) -> Table:
    """Retrain's cost is the first of Retrain's own."""
    whole = [row["gradient_evaluations"] for row in rows if row["method"] == RETRAIN and row["note"] is None]

    def share(own: Sequence[Row]) -> Entry:
        spent = [cost for cost in values(own, "gradient_evaluations") if cost is not None]
        return Entry.of([100.0 * cost / fmean(whole) for cost in spent] if whole else (), digits=1)

    columns: Columns = {
        "sensitivity": mean("sensitivity", digits=4),
        "at the clients that ask": mean("sensitivity_at_client", digits=4),
        "Test Acc (%)": mean("test_acc"),
        "without the feature": mean("test_acc_without"),
        "cost, % of Retrain's": share,
        "cells": counted,
    }
    return table(f"Withdrawn: {setting}", by_method(rows), columns, notes_of(rows), first="model")


def gaps(pairs: Sequence[tuple[Row, Row]]) -> tuple[float, float, float]:
    """In percent: |mean S - mean S_r| / mean S_r, the same over mean S_before, and the mean over single pairs of
    |S - S_r| / S_r, which contains Retrain's own scatter."""
    mine, theirs = ([pair[place]["sensitivity"] for pair in pairs] for place in (0, 1))
    before = [pair[0]["sensitivity_before"] for pair in pairs]
    apart = abs(fmean(mine) - fmean(theirs))
    single = fmean(abs(a - b) / b for a, b in zip(mine, theirs, strict=True))
    return 100.0 * apart / fmean(theirs), 100.0 * apart / fmean(before), 100.0 * single


def _beside(setting: str, rows: Sequence[Row]) -> Table:
    body: list[Line] = []
    for name, own in by_method(rows).items():
        pairs = paired(own, rows)
        if own[0]["method"] != RETRAIN and pairs:
            accuracies = [difference(pairs, column) for column in ("test_acc", "test_acc_without")]
            body.append([name, *(Entry.of([gap], digits=1) for gap in gaps(pairs)), *accuracies])
    columns = (
        "model", "of the means, % of Retrain's S", "% of S before", "of single models, % of Retrain's S",
        "Test Acc, points", "without the feature, points",
    )  # fmt: skip
    return Table(f"Distance from Retrain's sensitivity S, and accuracy minus Retrain's: {setting}", columns, body)


def remarks(rows: Sequence[Row]) -> list[str]:
    """What the tables say of each method, in a sentence."""
    sentences = []
    for setting, own in by_setting(rows).items():
        for name, mine in by_method(own).items():
            pairs = paired(mine, own)
            if not pairs or mine[0]["method"] in (RETRAIN, AGAIN[0], UNTOUCHED[0]):
                continue
            of_retrain, of_before, _ = gaps(pairs)
            before, retrain = (
                fmean(pair[place][column] for pair in pairs)
                for place, column in ((0, "sensitivity_before"), (1, "sensitivity"))
            )
            now = fmean(row["sensitivity"] for row, _ in pairs)
            known = [row["sensitivity"] for row in own if row["method"] in (RETRAIN, AGAIN[0]) and row["note"] is None]
            of_both = 100.0 * abs(now - fmean(known)) / fmean(known)
            sentences.append(
                f"{setting}: {name} takes the sensitivity from {before:.4f} to {now:.4f}, Retrain is at {retrain:.4f}; "
                f"that is {of_retrain:.1f} % from Retrain's, {of_before:.1f} % of what it was before ({len(pairs)} "
                f"pairs). From the mean of all {len(known)} Retrains, {fmean(known):.4f}, it is {of_both:.1f} % away."
            )
    return sentences


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """A group of bars for what is withdrawn and by whom, a bar for each model."""
    settings = {setting: setting for setting in by_setting(rows)}
    title = "Sensitivity to the withdrawn feature, on unseen data"
    panel = Bars.of(title, "sensitivity", by_method(rows), "setting", settings, mean("sensitivity"))
    return bar_charts(stem, f"Is a feature forgotten? {rows[0]['dataset']}", rows, [panel])


FEATURE = Experiment(
    name="feature",
    title="Is a feature forgotten?",
    specs=specs,
    run=run,
    tables=tables,
    figures=figures,
    remarks=remarks,
    methods="retrain,overwrite:default",
)
