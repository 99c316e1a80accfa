"""U-LiRA and KLoM: can models that forgot be told from models that never saw? (No table of the paper.)

A shadow is one federation in a regime that memorises, with initial weights and batch orders from its own seed; the
partition and the target R, half of client 0's samples, are the same in all of them: poisoned (`samples`, a backdoor) or
as they are (`clean-samples`). Over the shadows every x in R has margins phi_u(x) under models that were trained on it
and then served the request, and phi_r(x) under oracles, models that never had it:

    U-LiRA   "unlearned" if log N(phi; mu_u, s_u^2) - log N(phi; mu_r, s_r^2) > 0    (Hayes et al., arXiv 2403.01218)
    KLoM     D_KL(phi_u || phi_r), the unlearned first                         (Georgiev et al., arXiv 2410.23232)

Two subjects are known beforehand: `before`, the untouched model, which must be told apart, and `retrain`, a second set
of retrained models with seeds of their own, which must not. `oracle` is the set that all are compared with. Both
measures see any difference, R remembered or forgotten too far, or a model that changed as a whole; so the same is asked
of as many test samples, which no model ever saw. A row's `setting` is the seed of the partition. Cells hold a margin
for each sample of R, which no real client would send."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedforget.audit.attacks import FEWEST_MODELS, ULira, u_lira
from fedforget.audit.distributions import Estimate, klom
from fedforget.audit.oracles import oracle_schedule
from fedforget.audit.scores import margin
from fedforget.data.samples import Samples
from fedforget.errors import FedForgetError, InputError
from fedforget.experiments.columns import Line, counted, entry, notes_of
from fedforget.experiments.configurations import ASKING_CLIENT, CONFIGURATIONS, find_configuration
from fedforget.experiments.drawing import Bars, bar_charts
from fedforget.experiments.engine import CellSpec, Experiment, Row, model_of
from fedforget.experiments.options import Options
from fedforget.experiments.scenario import Scenario, ScenarioSpec
from fedforget.experiments.summaries import by_method, grouped, where
from fedforget.experiments.tables import DASH, Entry, Table
from fedforget.federation.evaluation import predict
from fedforget.federation.local import LocalFederation
from fedforget.federation.seam import thread_count
from fedforget.methods import forget
from fedforget.params import State

BEFORE, ORACLE, RETRAIN = "before", "oracle", "retrain"
KNOWN = tuple((name, "default") for name in (BEFORE, ORACLE, RETRAIN))
TARGETS = POISONED, CLEAN = "samples", "clean-samples"
SHADOWS, QUICK_SHADOWS = 16, 8
MEMORISED = "memorised"
"""The configuration: its clients and the target are the same for all shadows."""


def specs(options: Options) -> list[CellSpec]:
    """A trial is a shadow; the known subjects come first in each."""
    targets = options.targets or TARGETS
    shadows = options.trials or (QUICK_SHADOWS if options.quick else SHADOWS)
    worlds = [name for name, versions in CONFIGURATIONS.items() if MEMORISED in versions]
    if options.dataset not in worlds or options.configuration != "default":
        known = " and ".join(worlds)
        raise InputError(f"Experiment 'ulira' has federations of its own, for {known} in the configuration default.")
    if not set(targets) <= set(TARGETS):
        raise InputError(f"Experiment 'ulira' takes the targets {' and '.join(TARGETS)}.")
    if shadows < FEWEST_MODELS:
        raise InputError(f"U-LiRA needs {FEWEST_MODELS} models of each kind, so --trials must be that or larger.")
    return [
        CellSpec(
            ScenarioSpec((), options.seed + shadow, target == POISONED, "half", MEMORISED, options.seed),
            shadow, None, method, preset, options.seed,
        )
        for shadow in range(shadows)
        for target in targets
        for method, preset in dict.fromkeys((*KNOWN, *(options.methods or ())))
    ]  # fmt: skip


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    """The margins of R under the subject's model of one shadow."""
    federation, schedule, (request,) = scenario.federation, scenario.schedule, scenario.requests
    figures: dict[str, Any] = {
        "target": POISONED if spec.scenario.poisoned else CLEAN,
        "rounds": schedule.rounds, "lr": schedule.lr, "batch_size": schedule.batch_size,
    }  # fmt: skip
    try:
        state, cost = oracle_of(scenario) if spec.method == ORACLE else model_of(spec, scenario)
        target = federation.client(request.client).target([request])
        unseen = scenario.dataset.test.select(torch.arange(min(len(target), len(scenario.dataset.test))))
        phi, unseen_phi = (margins(federation, samples, state, schedule.threads) for samples in (target, unseen))
        measured = scenario.measure(state)
    except FedForgetError as error:
        return figures | {"note": str(error)}
    figures |= {name: measured[name] for name in ("test_acc", "bd_acc", "retained_acc")}
    return figures | cost | {"margins": phi, "unseen_margins": unseen_phi}


def oracle_of(scenario: Scenario) -> tuple[State, dict[str, Any]]:
    """(a model that never had R, from a seed of its own; what it cost)."""
    schedule = oracle_schedule(scenario.schedule, 1)
    result = forget(scenario.federation, scenario.before, scenario.requests, schedule, RETRAIN)
    return result.state, result.cost.to_json()


def margins(federation: LocalFederation, samples: Samples, state: State, threads: int) -> list[float]:
    """phi of every sample."""
    network = federation.model
    network.load_state_dict(state)
    with thread_count(threads):
        logits = predict(network, samples.features, federation.normalisation, federation.device)
    return [round(value, 4) for value in margin(logits, samples.labels).tolist()]


@dataclass(frozen=True)
class Told:
    """How well a subject's models are told from the oracles on some samples. `klom`: 95th percentile over them of
    D_KL(subject || oracle). `beyond`: the mean margin minus the oracles', above 0 where the subject is surer."""

    lira: ULira
    klom: float
    beyond: float


def compare(subject: Sequence[Row], oracles: Sequence[Row], samples: str = "margins") -> Told | None:
    """None where a side has too few models."""
    phi_u, phi_r = (tuple(tuple(row[samples]) for row in rows if row.get(samples)) for rows in (subject, oracles))
    return _compare(phi_u, phi_r) if min(len(phi_u), len(phi_r)) >= FEWEST_MODELS else None


@functools.lru_cache(maxsize=128)  # tables, remarks and figures of one page all need it
def _compare(phi_u: tuple[tuple[float, ...], ...], phi_r: tuple[tuple[float, ...], ...]) -> Told | None:
    unlearned, retrained = torch.tensor(phi_u, dtype=torch.float64), torch.tensor(phi_r, dtype=torch.float64)
    lira, divergence = u_lira(unlearned, retrained), klom(unlearned, retrained)
    if lira is None or divergence is None:
        return None
    return Told(lira, float(divergence.quantile(0.95)), float(unlearned.mean() - retrained.mean()))


@dataclass(frozen=True)
class Subject:
    """A subject's rows, and how it is told on R and on samples that no model saw."""

    rows: list[Row]
    on_target: Told | None
    on_unseen: Told | None


def subjects(rows: Sequence[Row]) -> dict[str, Subject]:
    """Every subject but the oracles, the known ones first."""
    groups = by_method(rows)
    oracles = groups.pop(ORACLE, [])
    known = [name for name in (BEFORE, RETRAIN) if name in groups]
    return {
        name: Subject(groups[name], compare(groups[name], oracles), compare(groups[name], oracles, "unseen_margins"))
        for name in dict.fromkeys((*known, *groups))
    }


def by_world(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows of each target and partition: only they can be compared."""
    return grouped(rows, lambda row: f"{row['target']}, partition {row['setting']}")


def tables(rows: Sequence[Row]) -> list[Table]:
    found = []
    for world, own in by_world(rows).items():
        known = subjects(own)
        told: list[Line] = [[name, *_told(subject.on_target)] for name, subject in known.items()]
        columns = ("model", "U-LiRA accuracy (%)", "AUC", "TPR (%) at 1 % FPR", "KLoM (nats)", "margin - oracles'")
        found.append(Table(f"Told from oracles on R: {world}", columns, told, _notes(own)))
        everybody = known | {ORACLE: Subject(where(own, "method", ORACLE), None, None)}
        changed: list[Line] = [
            [name, *(_told(subject.on_unseen)[place] for place in (0, -1)), entry(subject.rows, "bd_acc"),
             entry(subject.rows, "test_acc"), counted(subject.rows)]
            for name, subject in everybody.items()
        ]  # fmt: skip
        columns = ("model", "U-LiRA accuracy (%)", "margin - oracles'", "R as trained (%)", "Test Acc (%)", "models")
        notes = (
            "The first two columns are of test samples, which no model saw: a model told there changed as a whole.",
        )
        found.append(Table(f"Told from oracles on unseen samples: {world}", columns, changed, notes))
    return found


def _told(told: Told | None) -> Line:
    if told is None:
        return [DASH] * 5
    tpr = DASH if told.lira.tpr is None else _interval(told.lira.tpr, 100, 1)
    accuracy, area = _interval(told.lira.accuracy, 100, 1), _interval(told.lira.auc, 1, 3)
    return [accuracy, area, tpr, f"{told.klom:.2f}", f"{told.beyond:+.2f}"]


def _interval(estimate: Estimate, unit: int, digits: int) -> str:
    value, low, high = (f"{unit * number:.{digits}f}" for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def _notes(rows: Sequence[Row]) -> list[str]:
    first = next((row for row in rows if row.get("margins")), rows[0])
    count = len(first.get("margins") or ())
    world = find_configuration(first["dataset"], MEMORISED)
    samples = world.samples[0] if world.samples else 0
    how = "with a trigger and one wrong label" if first["target"] == POISONED else "clean"
    return [
        f"Not the configuration's federation but one that memorises: {world.clients} clients, {samples} training "
        f"samples, {first['rounds']} rounds, learning rate {first['lr']:g}, batch {first['batch_size']}; R is {count} "
        f"of client {ASKING_CLIENT}'s samples, {how}.",
        "95 % intervals over models (jackknife). Chance is 50 %, AUC 0.5"
        + (f" and a TPR of {100 * (count // 100 + 1) / (count + 1):.1f} %." if count >= 100 else "."),
        "KLoM is D_KL(unlearned || oracle), its 95th percentile over R, at most 11.5. Retrain's is what equal "
        "distributions show with so few models, not 0.",
        *notes_of(rows),
    ]


def remarks(rows: Sequence[Row]) -> list[str]:
    """The order that was found, and whether the two known subjects are where they must be."""
    return [f"Target {world}. {_remark(subjects(own))}" for world, own in by_world(rows).items()]


def _remark(found: Mapping[str, Subject]) -> str:
    told = {name: subject.on_target for name, subject in found.items() if subject.on_target is not None}
    if BEFORE not in told or RETRAIN not in told:
        return "There are too few models of the known subjects to say anything."
    accuracy = {name: one.lira.accuracy for name, one in told.items()}
    order = sorted(told, key=lambda name: -accuracy[name].value)
    text = f"From the most to the least told: {', '.join(f'{n} {100 * accuracy[n].value:.1f} %' for n in order)}. "
    above = [name for name in order if accuracy[name].low > accuracy[BEFORE].value]
    if above:
        unseen = {name: found[name].on_unseen for name in above}
        shown = [f"{n} (on unseen samples {100 * t.lira.accuracy.value:.1f} %)" for n, t in unseen.items() if t]
        text += f"The untouched model is not the worst; above it, with the whole interval: {', '.join(shown)}. "
    else:
        alike = [name for name in order if name != BEFORE and accuracy[name].value >= accuracy[BEFORE].value]
        text += f"No model is worse than the untouched one{'; as bad: ' + ', '.join(alike) if alike else ''}. "
    for name in order:
        if name not in (BEFORE, RETRAIN) and accuracy[name].low <= 0.5 <= accuracy[name].high:
            tested = entry(found[name].rows, "test_acc").text()
            text += f"Not told beyond chance: {name} ({_interval(accuracy[name], 100, 1)}; test accuracy {tested}). "
    low, value, high = (100 * getattr(accuracy[RETRAIN], name) for name in ("low", "value", "high"))
    inside = "contains 50 %, as it must" if low <= 50 <= high else "does not contain 50 %, though it should"
    return f"{text}Retrain is at {value:.1f} %, and its interval, {low:.1f} to {high:.1f} %, {inside}."


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """U-LiRA's accuracy on R and on unseen samples; a line spans as much as the 95 % interval."""
    panels = []
    for world, own in by_world(rows).items():
        series: dict[str, list[Entry]] = {"R": [], "unseen": []}
        names = []
        for name, subject in subjects(own).items():
            if subject.on_target and subject.on_unseen:
                names.append(name.replace(" ", "\n"))
                for bar, told in zip(series.values(), (subject.on_target, subject.on_unseen), strict=True):
                    found = told.lira.accuracy
                    bar.append(Entry(100 * found.value, 50 * (found.high - found.low), 1))
        panels.append(Bars(f"target {world}", names, series, "U-LiRA accuracy (%)"))
    return bar_charts(stem, f"Told from models that never saw R, {rows[0]['dataset']}: chance is 50 %", rows, panels)


ULIRA = Experiment(
    name="ulira",
    title="U-LiRA: telling models that forgot from models that never saw",
    specs=specs,
    run=run,
    tables=tables,
    remarks=remarks,
    figures=figures,
    methods="overwrite:default,sga:ewc,fedquit,not,pgd,fedosd",
    federation="It trains a federation of its own that memorises; the note below the tables describes it.",
)
