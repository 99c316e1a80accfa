"""Ablation: `overwrite` with one thing changed at a time. The paper's own ablations are among them: the labels
(sec:overlap), no preserver (FedAF-C), and its claim that a sketch needs less work than PCA for a small error.

A cell's `setting` names what was changed. The preserver is taken away by `strength=0`: the sketch is still made, since
the step length comes from it, so nothing else changes. `penalty=gradient` takes the penalty's step as the paper does;
beside it stands the same for lambda 1, where such a step can be stable. `recovery_share` is also the share of the
reminder round that makes the memories. Where the Jacobian of the sketched samples fits into memory, `sketch_error` is
the eps of Theorem 1 that the preserver's rows really have (see `principal.spectral_error`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedforget.errors import InputError
from fedforget.experiments.columns import beside_paper, counted, entry, mean, table
from fedforget.experiments.configurations import ASKING_CLIENT
from fedforget.experiments.drawing import Bars, bar_charts
from fedforget.experiments.engine import CellSpec, Experiment, Row, request_specs, serve_requests, settings_of
from fedforget.experiments.options import Options
from fedforget.experiments.scenario import Scenario
from fedforget.experiments.summaries import where
from fedforget.experiments.tables import Entry, Table
from fedforget.federation.seam import thread_count
from fedforget.methods.fedaf.extensions.principal import all_rows, samples_that_fit, spectral_error
from fedforget.methods.fedaf.forgetting import Forget
from fedforget.methods.fedaf.settings import OVERWRITE, FullSettings
from fedforget.methods.fedaf.sketch import Jacobian
from fedforget.methods.fedaf.sketching import sketch_at_client, sketch_samples
from fedforget.seeds import derive_seed

BASE = "default"
LARGEST_GRAM = 5000
"""Samples up to which the sketch's error is measured: it takes the eigenvalues of a matrix of that size."""
FACTORS: dict[str, tuple[dict[str, Any], ...]] = {
    "preserver": (
        {"strength": 0.0}, {"preserver": "diagonal"}, {"preserver": "pca"},
    ),
    "penalty's step": (
        {"penalty": "gradient"}, {"strength": 1.0}, {"penalty": "gradient", "strength": 1.0},
    ),
    "rows s": tuple(
        {"preserver": kind, "sketch_rows": rows} for rows in (10, 25, 75, 150, 300) for kind in ("sketch", "pca")
    ),
    "memory": tuple({"memory": m} for m in ("uniform", "random", "teacher", "debiased", "suppressed", "reminded")),
    "rows' labels": tuple({"sketch_labels": kind} for kind in ("data", "sampled", "mas")),
    "sketched data": ({"sketch_data": "retained"}, {"sketch_data": "all"}),
    "recovery": (
        {"recovery_rounds": 0}, {"recovery_guard": False},
        *({"recovery_share": share} for share in (0.02, 0.06, 0.2, 1.0)),
    ),
    "aggregation": tuple({"aggregation": m} for m in ("replace", "scaled", "average-idle", "average-training")),
}  # fmt: skip
QUICK_FACTORS = ("preserver", "penalty's step", "memory", "aggregation")
COLUMNS = {"bd_acc": "BD Acc", "test_acc": "Test Acc", "true_acc": "target as its true class",
           "retained_acc": "retained data"}  # fmt: skip


def variants(factors: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What is changed, by name; what `overwrite` has already is left out (but for what it has through `auto`)."""
    found: dict[str, dict[str, Any]] = {BASE: {}}
    for factor in factors:
        for changes in FACTORS[factor]:
            new = {name: value for name, value in changes.items() if getattr(OVERWRITE.opened(), name) != value}
            if new:
                found[variant_name(new)] = new
    return found


def variant_name(changes: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in changes.items())


def specs(options: Options) -> list[CellSpec]:
    for method, preset in options.methods or ():
        if (method, preset) != ("overwrite", "default"):
            raise InputError(
                f"Experiment 'ablation' takes overwrite:default apart; it cannot do that with '{method}:{preset}'."
            )
    chosen = variants(QUICK_FACTORS if options.quick else tuple(FACTORS))
    return request_specs(options, tuple(chosen.items()), classes=(0,))


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    settings = FullSettings(**(settings_of(spec, scenario.options) or {}))
    return {"sketch_error": sketch_error(settings, scenario)} | serve_requests(spec, scenario)


def sketch_error(settings: FullSettings, scenario: Scenario) -> float | None:
    """The eps of Theorem 1 for the rows that the preserver has at the target client; one for each kind of rows."""
    if settings.preserver not in ("sketch", "pca"):
        return None
    known: dict[Any, float | None] = scenario.kept.setdefault("sketch errors", {})
    if settings.sketch in known:
        return known[settings.sketch]
    client, schedule, error = scenario.federation.client(ASKING_CLIENT), scenario.schedule, None
    task = Forget(seed=schedule.seed, threads=schedule.threads, requests=scenario.requests, settings=settings)
    with thread_count(schedule.threads):
        client.load(scenario.before)
        samples = sketch_samples(client, task)
        if len(samples) <= min(samples_that_fit(client.model), LARGEST_GRAM):
            rows, seed = sketch_at_client(client, task).rows, derive_seed(task.seed, "sketch")
            j = all_rows(Jacobian(client.model, samples, client.inputs, labels=settings.sketch_labels, seed=seed))
            error = spectral_error(j, rows)
    return known.setdefault(settings.sketch, error)


def _of_factor(factor: str, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each of a factor's variants, whatever they were called when they were computed: a row belongs to the
    variant whose changes its settings have, if it differs from the base in nothing else. None if only the base is."""
    base: dict[str, Any] = next((row["method_settings"] for row in rows if row["setting"] == BASE), {})
    found: dict[str, list[Row]] = {}
    for changes in FACTORS[factor]:
        own: dict[tuple[Any, ...], Row] = {}
        for row in sorted(rows, key=lambda row: row["setting"] != BASE):
            if row["method_settings"] == base | changes:
                own.setdefault((row["class"], row["seed"]), row)
        if own:
            found[variant_name(changes)] = list(own.values())
    return {} if all(_is_base(own) for own in found.values()) else found


def tables(rows: Sequence[Row]) -> list[Table]:
    base = where(rows, "setting", BASE)
    columns = {shown: beside_paper(column) for column, shown in COLUMNS.items()} | {
        "seconds": beside_paper("seconds"), "sketch, s": sketch_seconds,
        "gradient evaluations": mean("gradient_evaluations", digits=0), "eps": mean("sketch_error", digits=4),
    }  # fmt: skip
    found = []
    for factor in FACTORS:
        groups = _of_factor(factor, rows)
        if groups:
            shown = any(_is_base(own) for own in groups.values())
            lines = {BASE: base} if base and not shown else {}
            lines |= {f"{name} (as it is)" if _is_base(own) else name: own for name, own in groups.items()}
            notes = [
                f"{name}, {counted(own)} cells with a model: {own[0]['note']}"
                for name, own in groups.items()
                if own[0]["note"]
            ]
            title = f"{factor}: overwrite with one thing changed (accuracies in %)"
            found.append(table(title, lines, {**columns, "cells": counted}, notes, wide=factor != "preserver"))
    return found


def _is_base(rows: Sequence[Row]) -> bool:
    return rows[0]["setting"] == BASE


def sketch_seconds(rows: Sequence[Row]) -> Entry:
    return Entry.of(((row.get("seconds_by_stage") or {}).get("sketch") for row in rows), digits=3)


def remarks(rows: Sequence[Row]) -> list[str]:
    """The paper's claim on PCA, from our rows."""
    groups = _of_factor("rows s", rows)
    sentences = []
    for s in sorted({c["sketch_rows"] for c in FACTORS["rows s"]}):
        sketch, pca = (groups.get(variant_name({"preserver": kind, "sketch_rows": s})) for kind in ("sketch", "pca"))
        if sketch and pca:
            said = [
                f"{name} eps {entry(own, 'sketch_error', 4).text()} in {sketch_seconds(own).text()} s, "
                f"BD Acc {entry(own, 'bd_acc').text()} %, Test Acc {entry(own, 'test_acc').text()} %"
                for name, own in (("sketch", sketch), ("PCA", pca))
            ]
            sentences.append(f"s = {s}: {'; '.join(said)}.")
    if sentences:
        sentences.insert(0, "The paper: compared with PCA, the sketch has a small error for little computation. Ours:")
    return sentences


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """BD Acc and Test Acc of every variant, a figure for each factor."""
    written = []
    for factor in FACTORS:
        groups = _of_factor(factor, rows)
        if groups:
            panels = [
                Bars(title, list(groups), {"ours": [entry(own, column) for own in groups.values()]}, f"{title} (%)")
                for column, title in (("bd_acc", "BD Acc"), ("test_acc", "Test Acc"))
            ]
            words = factor.replace("'", "").replace(" ", "-")
            title = f"Ablation, {factor}, {rows[0]['dataset']}"
            written += bar_charts(stem.with_name(f"{stem.name}-{words}"), title, rows, panels)
    return written


ABLATION = Experiment(
    name="ablation",
    title="Ablation of FedAF",
    label="sec:mg",
    specs=specs,
    run=run,
    tables=tables,
    remarks=remarks,
    figures=figures,
    methods="overwrite:default",
)
