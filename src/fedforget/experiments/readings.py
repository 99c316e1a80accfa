"""The readings of the paper's text, each run as the method `fedaf`, beside the printed row (tab:complete).

The text leaves open (docs/decisions/paper-ambiguities.md) whether n stays in the penalty, how the client's model
becomes the global one, the learning rate, batch and momentum of the forgetting, and whose normalisation statistics it
uses. The grid is every combination of these. Around the preset `paper`, as it is for the data set, everything is varied
one at a time, with the size of the sketch, sigma and the anchor. A cell's `setting` names its reading.

How far a reading is from the printed row: the larger of |BD Acc - printed| and |Test Acc - printed|, in points."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedforget.errors import InputError
from fedforget.experiments.columns import Columns, Line, beside_paper, counted, notes_of, table
from fedforget.experiments.configurations import Configuration, find_configuration
from fedforget.experiments.engine import CellSpec, Experiment, Row, request_specs
from fedforget.experiments.options import Options
from fedforget.experiments.pages import command, provenance_of
from fedforget.experiments.paper_numbers import completeness
from fedforget.experiments.summaries import by_setting
from fedforget.experiments.tables import Entry, Table
from fedforget.methods import method_settings
from fedforget.models import BATCH_NORMS, build_model

Reading = dict[str, Any]
WORDS: dict[str, Mapping[Any, str]] = {
    "normalise": {True: "1/n kept", False: "1/n dropped"},
    "aggregation": {"replace": "replaces", "average-idle": "averaged, peers idle", "average-training": "averaged"},
    "lr": {}, "batch_size": {}, "momentum": {},
    "freeze_normalisation": {True: "statistics frozen", False: "statistics of R"},
    "sketch_rows": {}, "sigma": {}, "anchor": {},
}  # fmt: skip
GRID: dict[str, tuple[Any, ...]] = {
    "normalise": (True, False), "aggregation": ("replace", "average-training"), "lr": (0.001, 0.01),
    "batch_size": (10, 64), "momentum": (0.0, 0.9), "freeze_normalisation": (False, True),
}  # fmt: skip
ALONE: dict[str, tuple[Any, ...]] = {
    "normalise": (False,), "aggregation": ("replace", "average-idle"), "lr": (0.0001, 0.001, 0.01),
    "batch_size": (10, 64), "momentum": (0.0,), "freeze_normalisation": (True,), "sketch_rows": (150,),
    "sigma": ("literal",), "anchor": ("client",),
}  # fmt: skip
NEAREST = 5
"""So many readings are shown of each data set in the overview."""


def readings(options: Options) -> dict[str, Reading]:
    """Every reading by its name, a quick run's those around the preset. A network without running statistics has one
    reading of them."""
    preset = preset_of(options.settings)
    grid = {name: values for name, values in GRID.items() if name in preset}
    found = [preset]
    if not options.quick:
        found += [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    for name, values in ALONE.items():
        found += [preset | {name: value} for value in values if name in grid or name not in GRID]
    return {reading_name(reading): reading for reading in found}


def preset_of(chosen: Configuration) -> Reading:
    """How the preset `paper` reads the text in this configuration."""
    network = build_model(chosen.model, chosen.shape, chosen.classes, seed=0)
    has_statistics = any(isinstance(module, BATCH_NORMS) for module in network.modules())
    settings = method_settings("fedaf", "paper", **chosen.overrides_of("fedaf", "paper"))[1]
    return {name: getattr(settings, name) for name in GRID if has_statistics or name != "freeze_normalisation"}


def reading_name(reading: Reading) -> str:
    return ", ".join(WORDS[name].get(value, f"{name} {value}") for name, value in reading.items())


def specs(options: Options) -> list[CellSpec]:
    if options.methods != (("fedaf", "paper"),):
        raise InputError("Experiment 'readings' is about the paper's method alone; leave --methods out.")
    return request_specs(options, tuple(readings(options).items()), classes=(0,))


def distance(row: Row) -> float | None:
    """How far from the printed row, in points; None where there is no model or nothing is printed."""
    printed = row["paper"]
    if printed is None or row["note"]:
        return None
    return max(abs(row[name] - printed[name]) for name in ("bd_acc", "test_acc"))


def farthest(rows: Sequence[Row]) -> Entry:
    return Entry.of(map(distance, rows))


def tables(rows: Sequence[Row]) -> list[Table]:
    """All readings, the nearest first; those that left no model last."""
    columns: Columns = {"BD Acc": beside_paper("bd_acc"), "Test Acc": beside_paper("test_acc"), "distance": farthest,
               "cells": counted}  # fmt: skip
    title = f"Readings of the text on {rows[0]['dataset']}, the nearest first (in % and points)"
    return [table(title, nearest_first(rows), columns, notes_of(rows), first="reading")]


def nearest_first(rows: Sequence[Row]) -> dict[str, list[Row]]:
    def rank(item: tuple[str, list[Row]]) -> tuple[bool, float]:
        broken, mean = any(row["note"] for row in item[1]), farthest(item[1]).mean
        return broken, float("inf") if mean is None else mean

    return dict(sorted(by_setting(rows).items(), key=rank))


def overview(cells: Mapping[str, Sequence[Row]], folder: Path) -> list[str]:
    """Which reading comes nearest on each data set, and which over all of them."""
    parts = ["# Which reading of the text gives the printed rows", __doc__.split("\n\n", 1)[1]]
    for name, rows in cells.items():
        whole = tables(rows)[0]
        parts += [f"## {name}", f"{command(READINGS, rows)} {provenance_of(rows)} Every reading: "
                  f"[readings-{name}.md](readings-{name}.md)."]  # fmt: skip
        parts.append(Table(whole.title, whole.columns, whole.rows[:NEAREST]).to_markdown())
    return [*parts, over_all(cells).to_markdown()]


def over_all(cells: Mapping[str, Sequence[Row]]) -> Table:
    """How far the preset `paper` is, with each data set's own learning rate and batch, and below it the readings that
    left a model everywhere with one learning rate and batch, by the largest of their distances. Where a network has no
    running statistics, its reading stands beside both readings of them."""
    groups = {name: by_setting(rows) for name, rows in cells.items()}

    def distances(names: Mapping[str, str]) -> list[Entry]:
        found = [group.get(names[name], ()) for name, group in groups.items()]
        return [Entry() if any(row["note"] for row in rows) else farthest(rows) for rows in found]

    presets = {name: preset_of(find_configuration(rows[0]["dataset"], rows[0]["configuration"]))
               for name, rows in cells.items()}  # fmt: skip
    own = {name: reading_name(preset) for name, preset in presets.items()}
    lines: dict[str, list[Entry]] = {}
    for reading in {setting: None for group in groups.values() for setting in group}:
        short = reading.removesuffix(", statistics frozen").removesuffix(", statistics of R")
        entries = distances({name: reading if reading in group else short for name, group in groups.items()})
        if all(entry.mean is not None for entry in entries):
            lines[reading] = entries
    ranked = sorted(lines.items(), key=lambda line: max(entry.mean or 0.0 for entry in line[1]))
    none = () if lines else ("No reading with one learning rate and batch leaves a model on all of them.",)
    preset: Line = ["the preset `paper`", *distances(own)]
    others: list[Line] = [[name, *entries] for name, entries in ranked[:NEAREST]]
    return Table("Distance from the printed rows over all data sets", ("reading", *groups), [preset, *others], none)


READINGS = Experiment(
    name="readings",
    title="Readings of the paper's text",
    specs=specs,
    tables=tables,
    paper=lambda row: completeness(row["dataset"], row["class"], "fedaf"),
    overview=overview,
    methods="fedaf:paper",
)
