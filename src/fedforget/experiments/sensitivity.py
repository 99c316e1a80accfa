"""Parameter sensitivity (sec:para): EWC epochs (fig:epoch), lambda (fig:lam), and the number of teachers Q (sec:hyper).

The paper's "target data" is the poisoned target R, whose accuracy is BD Acc; its "non-target data" is everything else:
here the test set, with the retained data beside it. It does not say which class its figures show: the first one, if no
other is asked for. The paper's FedAF and ours are run. In `fedaf` the knob is the paper's own. In `overwrite` it is

    epochs    passes over the target, without the stopping rule and without a least number of steps (`stop_below` none,
              `min_steps` 0): with them the number of epochs would hardly matter
    lambda    without the 1/n (`normalise` false); over 1,000 sketched samples the preset's own strength of 1e5 is 100
    Q         with `debiased` memories: the preset's `reminded` ones have no untrained teachers"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedforget.errors import InputError
from fedforget.experiments.columns import beside_paper, counted, entry, notes_of, table
from fedforget.experiments.drawing import Panel, box_plots
from fedforget.experiments.engine import CellSpec, Experiment, Row, request_specs
from fedforget.experiments.options import Options
from fedforget.experiments.paper_numbers import STATED
from fedforget.experiments.summaries import by_method, by_setting, values
from fedforget.experiments.tables import Table
from fedforget.methods import METHODS
from fedforget.methods.fedaf.settings import FullSettings, OverwriteSettings

COLUMNS = {"bd_acc": "target (BD Acc)", "test_acc": "non-target (Test Acc)", "retained_acc": "retained data",
           "true_acc": "target as its true class"}  # fmt: skip
PANELS = {"bd_acc": "Target Data", "test_acc": "Non-target Data"}


@dataclass(frozen=True)
class Knob:
    """What is varied: the setting, its values, and what else must be set in `overwrite` so that it alone decides."""

    experiment: str
    word: str
    setting: str
    values: tuple[int | float, ...]
    stated: str
    along: Mapping[str, Any] = field(default_factory=dict)
    had_by: Callable[[FullSettings], bool] = lambda settings: True

    def overrides(self, method: str, value: int | float) -> dict[str, Any]:
        return {self.setting: value, **(self.along if method == "overwrite" else {})}


EPOCH = Knob("epochs", "EWC epochs", "epochs", (1, 2, 3, 4, 5), "fig:epoch", {"stop_below": None, "min_steps": 0})
LAM = Knob(
    "lambda", "lambda", "strength", (0.1, 0.5, 1.0, 10.0, 50.0), "fig:lam", {"normalise": False},
    lambda settings: settings.preserver != "none",
)  # fmt: skip
Q = Knob("teachers", "teachers Q", "teachers", (5, 10, 15, 20), "sec:hyper", {"memory": "debiased"})


def specs(knob: Knob, options: Options) -> list[CellSpec]:
    for method, preset in options.methods or ():
        settings = METHODS[method].presets[preset]
        if not isinstance(settings, OverwriteSettings) or not knob.had_by(settings.opened()):
            raise InputError(
                f"Method '{method}' has no {knob.word} to vary; experiment '{knob.experiment}' takes fedaf:paper and "
                "overwrite:default."
            )
    found: list[CellSpec] = []
    for pair in options.methods or ():
        varied = [(value, knob.overrides(pair[0], value)) for value in knob.values]
        found += request_specs(replace(options, methods=(pair,)), varied, classes=(0,))
    return sorted(found, key=lambda spec: spec.trial)


def _by_value(rows: Sequence[Row]) -> dict[Any, list[Row]]:
    return dict(sorted(by_setting(rows).items()))


def tables(knob: Knob, rows: Sequence[Row]) -> list[Table]:
    found = []
    for name, own in by_method(rows).items():
        set_along = {k: v for k, v in (own[0].get("overrides") or {}).items() if k != knob.setting}
        also = ", ".join(f"{k} {'none' if v is None else str(v).lower()}" for k, v in sorted(set_along.items()))
        before = entry(next(iter(_by_value(own).values())), "bd_acc_before").text()
        beside = f"Beside the varied setting: {also}. " if also else ""
        notes = (f"{beside}Before unlearning, BD Acc {before}.", *notes_of(own))
        title = f"Accuracy (%) over {knob.word}: {name}"
        lines = {f"{value:g}": at for value, at in _by_value(own).items()}
        columns = {shown: beside_paper(column) for column, shown in COLUMNS.items()}
        found.append(table(title, lines, {**columns, "cells": counted}, notes, first=knob.word))
    return found


def remarks(knob: Knob, rows: Sequence[Row]) -> list[str]:
    """What the text says of the figure, and the range we see."""
    sentences = [f"The paper prints no numbers here; its text says: {STATED[knob.stated]}"]
    for name, own in by_method(rows).items():
        means = {v: {c: entry(at, c).mean for c in PANELS} for v, at in _by_value(own).items()}
        seen = {v: m for v, m in means.items() if m["bd_acc"] is not None and m["test_acc"] is not None}
        if not seen:
            sentences.append(f"{name}: no value of {knob.word} left a model.")
            continue
        first, last = min(seen), max(seen)
        sentences.append(
            f"{name}: from {knob.word} {first:g} to {last:g}, target {seen[first]['bd_acc']:.2f} to "
            f"{seen[last]['bd_acc']:.2f} %, non-target {seen[first]['test_acc']:.2f} to {seen[last]['test_acc']:.2f} %."
        )
    return sentences


def figures(knob: Knob, rows: Sequence[Row], stem: Path) -> list[Path]:
    """The paper's layout: target data on the left, the rest on the right; a line of panels for each preset."""
    groups = {name: _by_value(own) for name, own in by_method(rows).items()}
    panels = [
        Panel(f"{name}: {what}", {v: values(at, column) for v, at in by_value.items()}, knob.word, column == "bd_acc")
        for name, by_value in groups.items()
        for column, what in PANELS.items()
    ]
    return box_plots(stem, f"Accuracy with different {knob.word}, {rows[0]['dataset']}", rows, panels, columns=2)


def _experiment(knob: Knob, title: str) -> Experiment:
    return Experiment(
        name=knob.experiment,
        title=title,
        label=knob.stated,
        specs=partial(specs, knob),
        tables=partial(tables, knob),
        remarks=partial(remarks, knob),
        figures=partial(figures, knob),
        methods="fedaf:paper,overwrite:default",
    )


EPOCHS = _experiment(EPOCH, "Accuracy with different EWC training epochs")
LAMBDA = _experiment(LAM, "Accuracy with different lambda")
TEACHERS = _experiment(Q, "Accuracy with different numbers of teachers")
