"""U-LiRA and KLoM: can models that forgot be told from models that never saw? (No table of the paper.)

A shadow is one federation in a regime that memorises, with initial weights and batch orders from its own seed; the
partition and the target R, half of client 0's samples, are the same in all of them. Over the shadows every x in R has
margins phi_u(x) under models that were trained on it and then served the request, and phi_r(x) under oracles, models
that never had it:

    U-LiRA   "unlearned" if log N(phi; mu_u, s_u^2) - log N(phi; mu_r, s_r^2) > 0    (Hayes et al., arXiv 2403.01218)
    KLoM     D_KL(phi_u || phi_r), the unlearned first                         (Georgiev et al., arXiv 2410.23232)

Two subjects are known beforehand: `before`, the untouched model, which must be told apart, and `retrain`, a second set
of retrained models with seeds of their own, which must not. `oracle` is the set that all are compared with. A row's
`setting` is the seed of the partition. Cells hold a margin for each sample of R, which no real client would send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedforget.audit.attacks import FEWEST_MODELS, ULira, u_lira
from fedforget.audit.distributions import Estimate, klom
from fedforget.audit.measures import measure
from fedforget.audit.oracles import oracle_schedule
from fedforget.audit.scores import margin
from fedforget.data.partition import partition
from fedforget.errors import FedForgetError, InputError
from fedforget.experiments.configurations import ASKING_CLIENT
from fedforget.experiments.drawing import Bars, bar_charts
from fedforget.experiments.engine import CellSpec, Experiment, Row
from fedforget.experiments.options import Options
from fedforget.experiments.scenario import Scenario, ScenarioSpec
from fedforget.experiments.summaries import by_method, counted, entry, notes_of
from fedforget.experiments.tables import DASH, Entry, Table
from fedforget.federation.evaluation import predict
from fedforget.federation.local import LocalFederation, thread_count
from fedforget.federation.rounds import Schedule, train
from fedforget.methods import forget
from fedforget.models import build_model
from fedforget.params import State, state_of
from fedforget.requests import ErasureRequest

BEFORE, ORACLE, RETRAIN = "before", "oracle", "retrain"
KNOWN = tuple((name, "default") for name in (BEFORE, ORACLE, RETRAIN))
SHADOWS, QUICK_SHADOWS = 16, 8
CLIENTS = 4


@dataclass(frozen=True)
class World:
    """So few samples, trained for so long, that the model knows them by heart."""

    samples: int
    schedule: Schedule


WORLDS = {
    "mnist": World(2000, Schedule(rounds=40, lr=0.01, batch_size=16)),
    "digits": World(800, Schedule(rounds=30, lr=0.05, batch_size=16)),
}


def specs(options: Options) -> list[CellSpec]:
    """A trial is a shadow; the known subjects come first in each."""
    shadows = options.trials or (QUICK_SHADOWS if options.quick else SHADOWS)
    if options.dataset not in WORLDS or options.configuration != "default":
        known = " and ".join(WORLDS)
        raise InputError(f"Experiment 'ulira' has federations of its own, for {known} in the configuration default.")
    if shadows < FEWEST_MODELS:
        raise InputError(f"U-LiRA needs {FEWEST_MODELS} models of each kind, so --trials must be that or larger.")
    return [
        CellSpec(
            ScenarioSpec((), options.seed + shadow, poisoned=False, target="half"),
            shadow, None, method, preset, options.seed,
        )
        for shadow in range(shadows)
        for method, preset in dict.fromkeys((*KNOWN, *(options.methods or ())))
    ]  # fmt: skip


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    """The margins of R under the subject's model of one shadow."""
    world = WORLDS[scenario.options.dataset]
    schedule = replace(world.schedule, seed=spec.scenario.seed, threads=scenario.options.threads)
    federation, request = federation_of(scenario, world, int(spec.setting or 0))
    figures: dict[str, Any] = {"rounds": schedule.rounds, "lr": schedule.lr, "batch_size": schedule.batch_size}
    try:
        if BEFORE not in scenario.kept:
            scenario.kept[BEFORE] = trained(scenario, federation, schedule)
        state, cost = scenario.kept[BEFORE], {}
        if spec.method != BEFORE:
            of_reference = spec.method == ORACLE
            result = forget(
                federation, state, request, oracle_schedule(schedule, 1) if of_reference else schedule,
                RETRAIN if of_reference else spec.method, spec.preset, history=scenario.history,
                **scenario.overrides(spec.method, spec.preset),
            )  # fmt: skip
            state, cost = result.state, result.cost.to_json()
        phi = margins(federation, request, state, schedule.threads)
        measured = measure(federation, state, [request], scenario.dataset.test, threads=schedule.threads)
    except FedForgetError as error:
        return figures | {"note": str(error)}
    figures |= {"test_acc": measured.test_acc, "bd_acc": measured.bd_acc, "retained_acc": measured.retained_acc}
    return figures | cost | {"margins": [round(value, 4) for value in phi.tolist()]}


def federation_of(scenario: Scenario, world: World, seed: int) -> tuple[LocalFederation, ErasureRequest]:
    """The same clients and the same target for all shadows. New for every cell, so that no client finds what it kept
    for the method before."""
    dataset = scenario.dataset.first(world.samples)
    parts = partition("iid", dataset.train.labels, CLIENTS, seed)
    own = dataset.train.ids[parts[ASKING_CLIENT]]
    request = ErasureRequest.of_samples(ASKING_CLIENT, own[: len(own) // 2].tolist())
    return LocalFederation(dataset, parts, scenario.bench.model, device=scenario.options.device), request


def trained(scenario: Scenario, federation: LocalFederation, schedule: Schedule) -> State:
    """The shadow before unlearning."""
    data = scenario.dataset
    initial = state_of(build_model(scenario.configuration.model, data.shape, len(data.classes), schedule.seed))
    return train(federation, initial, schedule, history=scenario.history)


def margins(federation: LocalFederation, request: ErasureRequest, state: State, threads: int) -> Tensor:
    """phi of every sample of R, in the client's order: [n]."""
    client = federation.client(request.client)
    target, _ = client.split([request])
    with thread_count(threads):
        logits = predict(client.load(state), target.features, client.normalisation, client.device)
    return margin(logits, target.labels)


@dataclass(frozen=True)
class Told:
    """How well a subject's models are told from the oracles. `klom`: 95th percentile over R of D_KL(subject || oracle).
    `beyond`: mean margin minus the oracles', above 0 where R is remembered and below where it is worse than unseen."""

    lira: ULira
    klom: float
    beyond: float


def compare(subject: Sequence[Row], oracles: Sequence[Row]) -> Told | None:
    """None where a side has too few models."""
    phi_u, phi_r = ([row["margins"] for row in rows if row.get("margins")] for rows in (subject, oracles))
    if min(len(phi_u), len(phi_r)) < FEWEST_MODELS:
        return None
    unlearned, retrained = torch.tensor(phi_u).double(), torch.tensor(phi_r).double()
    lira, divergence = u_lira(unlearned, retrained), klom(unlearned, retrained)
    if lira is None or divergence is None:
        return None
    return Told(lira, divergence.percentile_95, float(unlearned.mean() - retrained.mean()))


def subjects(rows: Sequence[Row]) -> dict[str, tuple[list[Row], Told | None]]:
    """Every subject's rows and what was found, the known ones first."""
    groups = by_method(rows)
    oracles = groups.pop(ORACLE, [])
    first = [name for name in (BEFORE, RETRAIN) if name in groups]
    return {
        name: (groups[name], compare(groups[name], oracles)) for name in dict.fromkeys((*first, *groups))
    }  # fmt: skip


def _partitions(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["setting"], []).append(row)
    return found


COLUMNS = (
    "model", "U-LiRA accuracy (%)", "AUC", "TPR (%) at 1 % FPR", "KLoM (nats)", "margin beyond oracles'",
    "R as trained (%)", "Test Acc (%)", "models",
)  # fmt: skip


def tables(rows: Sequence[Row]) -> list[Table]:
    found = []
    for seed, own in _partitions(rows).items():
        body: list[list[str | Entry]] = [
            [name, *_shown(told), entry(lines, "bd_acc"), entry(lines, "test_acc"), counted(lines)]
            for name, (lines, told) in subjects(own).items()
        ]
        oracles = [row for row in own if row["method"] == ORACLE]
        body.append([ORACLE, *[DASH] * 5, entry(oracles, "bd_acc"), entry(oracles, "test_acc"), counted(oracles)])
        found.append(Table(f"Told from models that never saw R, partition {seed}", COLUMNS, body, _notes(own)))
    return found


def _shown(told: Told | None) -> list[str | Entry]:
    if told is None:
        return [DASH] * 5
    lira = told.lira
    tpr = DASH if lira.tpr is None else _interval(lira.tpr, 100, 1)
    return [_interval(lira.accuracy, 100, 1), _interval(lira.auc, 1, 3), tpr, f"{told.klom:.2f}", f"{told.beyond:+.2f}"]


def _interval(estimate: Estimate, unit: int, digits: int) -> str:
    value, low, high = (f"{unit * number:.{digits}f}" for number in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def _notes(rows: Sequence[Row]) -> list[str]:
    first = next((row for row in rows if row.get("margins")), rows[0])
    count = len(first.get("margins") or ())
    return [
        f"Not the configuration's federation but one that memorises: {CLIENTS} clients, the first "
        f"{WORLDS[first['dataset']].samples} training samples, {first['rounds']} rounds, rate {first['lr']:g}, "
        f"batch {first['batch_size']}, no trigger; R is half of client {ASKING_CLIENT}'s samples ({count}).",
        "95 % intervals over models (jackknife). Chance is 50 %, AUC 0.5 and a TPR of "
        f"{100 * (count // 100 + 1) / (count + 1):.1f} %.",
        "KLoM is D_KL(unlearned || oracle), its 95th percentile over R, at most 11.5. Retrain's is what equal "
        "distributions show with so few models, and not 0.",
        *notes_of(rows),
    ]


def remarks(rows: Sequence[Row]) -> list[str]:
    """The order that was found, and whether the two known subjects are where they must be."""
    sentences = []
    for own in _partitions(rows).values():
        seen = {name: told for name, (_, told) in subjects(own).items() if told is not None}
        if BEFORE not in seen or RETRAIN not in seen:
            sentences.append("Too few models of the known subjects are here to say anything of the order.")
            continue
        order = sorted(seen, key=lambda name: -seen[name].lira.accuracy.value)
        listed = ", ".join(f"{name} {100 * seen[name].lira.accuracy.value:.1f} %" for name in order)
        sentences.append(f"Told from the oracles by U-LiRA, from the most to the least: {listed}.")
        worse = order[: order.index(BEFORE)]
        if worse:
            signs = ", ".join(f"{name} {seen[name].beyond:+.2f}" for name in worse)
            sentences.append(
                f"The untouched model is not the worst: {', '.join(worse)} told more easily. U-LiRA tells in both "
                f"directions; a margin below the oracles' is R forgotten too far ({signs})."
            )
        else:
            sentences.append("The untouched model is the worst, as it must be.")
        accuracy = seen[RETRAIN].lira.accuracy
        inside = accuracy.low <= 0.5 <= accuracy.high
        sentences.append(
            f"Retrain's interval, {100 * accuracy.low:.1f} to {100 * accuracy.high:.1f} %, "
            f"{'contains 50 %, as it must' if inside else 'does not contain 50 %, though it should'}."
        )
    return sentences


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """U-LiRA's accuracy and KLoM of every subject."""
    panels = []
    for seed, own in _partitions(rows).items():
        seen = {name: told for name, (_, told) in subjects(own).items() if told is not None}
        accuracy = [_bar(told.lira.accuracy) for told in seen.values()]
        divergence = [Entry(told.klom, count=1) for told in seen.values()]
        title = f"partition {seed}: U-LiRA accuracy with 95 % intervals, chance 50 %"
        panels.append(Bars(title, list(seen), {"all": accuracy}, "accuracy (%)"))
        panels.append(Bars(f"partition {seed}: D_KL(unlearned || oracle)", list(seen), {"all": divergence}, "nats"))
    return bar_charts(stem, f"Told from models that never saw R, {rows[0]['dataset']}", rows, panels)


def _bar(estimate: Estimate) -> Entry:
    return Entry(100 * estimate.value, 50 * (estimate.high - estimate.low), 1)


ULIRA = Experiment(
    name="ulira",
    title="U-LiRA: telling models that forgot from models that never saw",
    label="",
    specs=specs,
    run=run,
    tables=tables,
    remarks=remarks,
    figures=figures,
    methods="fedaf:recommended,sga:ewc,fedquit,not,pgd,fedosd",
    needs_before=False,
)
