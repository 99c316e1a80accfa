"""The core result: FedAF beside Retrain on full MNIST, poisoned and clean, four networks, three kinds of target.

A cell is a model, measured at once and after one further ordinary round without the target. Its `setting` is the
target ("class", "clean-class", "samples", "client"), or the configuration of another federation with a class request.
core.md and the README's table show the cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedforget.errors import FedForgetError
from fedforget.experiments.configurations import CONFIGURATIONS
from fedforget.experiments.engine import UNTOUCHED, CellSpec, Experiment, Row, model_of, target_specs
from fedforget.experiments.options import Options
from fedforget.experiments.pages import command, provenance_of, rows_in
from fedforget.experiments.scenario import Scenario
from fedforget.experiments.summaries import (
    RETRAIN,
    by_method,
    by_setting,
    difference,
    notes_of,
    paired_with_retrain,
    values,
)
from fedforget.experiments.tables import Entry, Table
from fedforget.federation.rounds import further_rounds

CLASSES = (0, 3, 7)
POISONED, CLEAN = "class", "clean-class"
TARGETS = (POISONED, CLEAN, "samples", "client")
ZERO = f"{CLEAN}, to zero"
ELSEWHERE = ("mlp", "vit", "own", "paper")
"""Configurations of other networks, and of the paper's learning rate."""
TITLES = {
    POISONED: "Poisoned targets: one class of one client",
    CLEAN: "Clean targets: the same classes and seeds, true labels, no trigger",
    "samples": "500 samples, poisoned",
    "client": "A whole client, half of it poisoned",
    **{name: f"Configuration `{name}`, class 3, poisoned" for name in ELSEWHERE},
}
OURS = ("overwrite", "default")
TO_ZERO: dict[str, Any] = {
    "memory": "suppressed", "ascent": "capped", "lr": 0.005, "epochs": 2, "stop_below": None, "recovery_rounds": 0
}  # fmt: skip
"""Forgetting to zero: suppress the trained label and never recover. A clean target must not end here."""
COLUMNS = {
    "test_acc": "Test Acc",
    "bd_acc": "R as trained",
    "true_acc": "R as true class",
    "target_loss": "loss on R",
    "target_class_test_acc": "class's test images",
    "bd_acc_after_round": "R as trained, + 1 round",
    "seconds": "seconds",
    "gradient_evaluations": "gradient evaluations",
}
README_COLUMNS = ("test_acc", "bd_acc", "bd_acc_after_round", "true_acc", "seconds", "gradient_evaluations")


def specs(options: Options) -> list[CellSpec]:
    """All trials of the class requests; of whatever else there is, the first trial alone."""
    chosen = replace(options, classes=options.classes or CLASSES)
    found = []
    for spec in target_specs(chosen, TARGETS):
        if spec.setting != CLEAN and (spec.label is not None or spec.trial == 0):
            found.append(spec)
        elif spec.setting == CLEAN and (spec.method, spec.preset) in (UNTOUCHED, (RETRAIN, "default"), OURS):
            found.append(spec)
            if (spec.method, spec.preset) == OURS:
                found.append(replace(spec, setting=ZERO, overrides=TO_ZERO))
    if POISONED in (options.targets or TARGETS):
        known = CONFIGURATIONS[options.dataset]
        one = target_specs(replace(options, trials=1, classes=None, targets=(POISONED,)), TARGETS)
        found += [
            replace(spec, setting=name, scenario=replace(spec.scenario, configuration=name))
            for name in ELSEWHERE
            for spec in one
            if name in known
        ]
    return sorted(found, key=lambda spec: spec.trial)


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    target = CLEAN if spec.setting == ZERO else spec.setting if spec.setting in TARGETS else POISONED
    figures: dict[str, Any] = {"target": target}
    try:
        state, cost = model_of(spec, scenario)
        figures |= scenario.measure(state) | cost
        *_, (_, later) = further_rounds(scenario.federation, state, scenario.schedule, scenario.requests, 1)
        measured = scenario.measure(later)
    except FedForgetError as error:
        return {"target": target, "note": str(error)}
    return figures | {f"{name}_after_round": measured[name] for name in ("bd_acc", "test_acc")}


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each setting; forgetting to zero stands among the clean targets as a preset. `before` comes first,
    then Retrain, then ours."""

    def place(row: Row) -> tuple[bool, bool, bool]:
        return row["method"] != UNTOUCHED[0], row["method"] != RETRAIN, (row["method"], row["preset"]) != OURS

    shown = [
        row | {"setting": CLEAN, "preset": "to-zero"} if row["setting"] == ZERO else row
        for row in sorted(rows, key=place)
    ]
    groups = by_setting(shown)
    return {setting: groups[setting] for setting in TITLES if setting in groups}


def tables(rows: Sequence[Row]) -> list[Table]:
    return [_table(setting, own) for setting, own in _groups(rows).items()]


def _table(setting: str, rows: Sequence[Row], columns: Sequence[str] = tuple(COLUMNS)) -> Table:
    body: list[list[str | Entry]] = [
        [name, *(_entry(own, column) for column in columns)] for name, own in by_method(rows).items()
    ]
    return Table(TITLES[setting], ("", *(COLUMNS[column] for column in columns)), body)


def _entry(rows: Sequence[Row], column: str) -> Entry:
    """Gradient evaluations are shown without their spread; a method that leaves no model says so once."""
    diverged = column == "test_acc" and all(row["note"] for row in rows)
    remark = f"diverged, {len(rows)} of {len(rows)}" if diverged else None
    found = Entry.of(values(rows, column), digits=3 if column == "target_loss" else 2, remark=remark)
    return replace(found, deviation=None, digits=0) if column == "gradient_evaluations" else found


def _beside_retrain(rows: Sequence[Row]) -> list[str]:
    """Ours on poisoned targets, in one sentence."""
    methods = by_method(rows)
    pairs = paired_with_retrain(methods.get(OURS[0], []), rows)
    if not pairs:
        return []
    before = methods[UNTOUCHED[0]]
    test, backdoor = (difference(pairs, figure).mean for figure in ("test_acc", "bd_acc"))
    cheaper = [theirs["seconds"] / ours["seconds"] for ours, theirs in pairs]
    work = [sum(pair[place]["gradient_evaluations"] for pair in pairs) for place in (0, 1)]
    return [
        f"Before unlearning: test accuracy at least {min(row['test_acc'] for row in before):.2f}, BD Acc at least "
        f"{min(row['bd_acc'] for row in before):.1f} in every cell. `overwrite` against Retrain: test accuracy "
        f"{test:+.2f} points, BD Acc {backdoor:+.2f} points on average. A whole request takes 1/{min(cheaper):.0f} to "
        f"1/{max(cheaper):.0f} of Retrain's seconds (mean 1/{sum(cheaper) / len(cheaper):.0f}), and "
        f"1/{work[1] / work[0]:.0f} of its gradient evaluations."
    ]


LIMITS = {"test_acc": (0.5, 0.0), "true_acc": (1.5, 2.0), "target_class_test_acc": (1.5, 2.0)}
"""How far a model may be from the mean of the Retrain models of clean targets: in points, or in their deviations."""


def _clean_lines(rows: Sequence[Row]) -> list[str]:
    """Which models keep within the limits, and have a loss on R that is nearer to Retrain's than to `before`'s."""
    means = {
        name: {column: Entry.of(values(own, column)) for column in (*LIMITS, "target_loss")}
        for name, own in by_method(rows).items()
        if not all(row["note"] for row in own)
    }
    if RETRAIN not in means or UNTOUCHED[0] not in means:
        return []

    def apart(name: str, column: str, other: str = RETRAIN) -> float:
        return abs((means[name][column].mean or 0.0) - (means[other][column].mean or 0.0))

    lines = []
    for name in means:
        failed = [
            f"{COLUMNS[column]} within {points} points"
            + (f" or {deviations:g} Retrain deviations" if deviations else "")
            for column, (points, deviations) in LIMITS.items()
            if apart(name, column) > max(points, deviations * (means[RETRAIN][column].deviation or 0.0))
        ]
        if apart(name, "target_loss") >= apart(name, "target_loss", UNTOUCHED[0]):
            failed.append("loss on R nearer to Retrain's than to the untouched model's")
        lines.append(f"- {name}: {'fails: ' + '; '.join(failed) if failed else 'meets every line'}.")
    return ["Against the mean of the Retrain models:", "\n".join(lines)]


def overview(cells: Mapping[str, Sequence[Row]], folder: Path) -> list[str]:
    parts = ["# FedAF against Retrain on MNIST: the core result"]
    for rows in cells.values():
        parts.append(f"{command(CORE, rows)} {provenance_of(rows)}")
        for setting, own in _groups(rows).items():
            parts.append(_table(setting, own).to_markdown())
            parts += _beside_retrain(own) if setting == POISONED else _clean_lines(own) if setting == CLEAN else []
        parts += notes_of(rows)
    return parts


def update_readme(folder: Path, readme: Path) -> None:
    """The README's table of methods against Retrain, between its markers; nothing where there are no cells."""
    for rows in rows_in(folder, CORE).values():
        poisoned = _groups(rows)[POISONED]
        table = _table(POISONED, poisoned, README_COLUMNS).to_markdown()
        said = f"{command(CORE, poisoned)} {provenance_of(poisoned)}"
        summary = f"{' '.join(_beside_retrain(poisoned))} `overwrite` was tuned on these same cells."
        ours = by_method(poisoned)[OURS[0]]
        now, later = values(ours, "bd_acc"), values(ours, "bd_acc_after_round")
        oracle = values(by_method(poisoned)[RETRAIN], "bd_acc_after_round")
        reversal = (
            f"Over the {len(ours)} cells: {_span(now)} % right after, {_span(later)} % one round later (Retrain "
            f"{_span(oracle)} %)."
        )
        text = readme.read_text()
        for marker, content in (
            ("core-table", f"\n{table}\n\n{said}\n\n{summary}\n"),
            ("reversal", f"\n  {reversal}\n  "),
        ):
            start, end = f"<!-- {marker} -->", f"<!-- /{marker} -->"
            head, rest = text.split(start, 1)
            text = head + start + content + end + rest.split(end, 1)[1]
        readme.write_text(text)


def _span(numbers: Sequence[float | None]) -> str:
    known = [number for number in numbers if number is not None]
    return f"{min(known):.1f} to {max(known):.1f}"


CORE = Experiment(
    name="core",
    title="FedAF against Retrain: the core result",
    label="",
    specs=specs,
    run=run,
    tables=tables,
    overview=overview,
    has_pages=False,
    methods="retrain,overwrite:default,fedaf:paper,fedaf-c",
)
