"""Is a ridge head exact, and what does it cost? One client of ten withdraws a poisoned class, half of its samples, all
of its data, or a feature; with masks and without (no table of the paper).

    bits       forgetting is compared with a training on data that never held the target, tensor by tensor
    cost       the seconds of forgetting beside those of solving the head from scratch, passes over all data included:
               one after the other, five times, and the median; the process's own seconds, which other work on the
               machine does not lengthen much
    arrivals   each client keeps a tenth of its data back, which arrives in five parts after forgetting
    audit      eight oracles with random features of their own; of a backbone from a file, the head solved eight times.
               The samples with a trigger are like nothing that models with other features know, so these differ in
               what they say of them, and three tell too little of how much (docs/results/ridge-mnist-ten.md)

CIFAR-10's backbone is trained on other people's classes: the clients hold the first 10,000 training images of all ten
classes, the backbone has seen those of the last 30,000 that are of the classes 5 to 9, and nothing else. The class
that is withdrawn, 3, is none of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any

import torch
from torch import Tensor

from fedforget.audit.case import Case
from fedforget.audit.examine import examine, examine_oracles, judge
from fedforget.audit.measures import measure
from fedforget.data import load_dataset
from fedforget.errors import FedForgetError
from fedforget.experiments.columns import Columns, counted, mean, notes_of, table
from fedforget.experiments.engine import DEFAULT_CLASS, CellSpec, Experiment, Row
from fedforget.experiments.options import Options
from fedforget.experiments.scenario import Scenario, ScenarioSpec
from fedforget.experiments.summaries import grouped, values
from fedforget.experiments.tables import Entry, Table
from fedforget.federation.local import LocalFederation
from fedforget.federation.ridge import Ridge, random_ridge, ridge_on
from fedforget.federation.rounds import Schedule, further_round, run_round, train
from fedforget.methods import forget
from fedforget.models import build_model
from fedforget.params import State, digest, distance, state_of
from fedforget.requests import ErasureRequest, joint_mask
from fedforget.seeds import derive_seed

FEATURES = {"mnist": 1024, "digits": 512, "breast_cancer": 128}
"""How many random features; the other data set has a backbone."""
WITHDRAWN = {"mnist": (11, 11, 6, 6), "cifar10": (12, 12, 8, 8), "digits": (3, 3, 2, 2), "breast_cancer": (20,)}
TARGETS = ("class", "samples", "client", "feature")
PUBLIC_FROM, PUBLIC_CLASSES = 20_000, 5
PUBLIC = Schedule(rounds=8, lr=0.02, batch_size=64, decay=0.05)
ARRIVALS = 5
ORACLES = 8
TIMES = 5


def specs(options: Options) -> list[CellSpec]:
    label = DEFAULT_CLASS if options.settings.classes > DEFAULT_CLASS else 1
    found = []
    for trial in options.chosen_trials():
        for target in TARGETS[:2] if options.quick else TARGETS:
            labels = (label,) if target == "class" else ()
            feature = WITHDRAWN[options.dataset] if target == "feature" else None
            poisoned = target == "class" and len(options.settings.shape) == 3
            kind = {"samples": "half", "client": "client"}.get(target)
            scenario = ScenarioSpec(labels, options.seed + trial, poisoned, kind, feature=feature)
            for masked in ("open", "masked"):
                found.append(CellSpec(scenario, trial, None, "ridge", masked, target))
    return found


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    try:
        return _run(spec, scenario)
    except FedForgetError as error:
        return {"note": str(error)}


def _run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    schedule = Schedule(rounds=1, seed=spec.scenario.seed, threads=scenario.options.threads)
    model = network(scenario, masked=spec.preset == "masked")
    early = [part[: len(part) - len(part) // 10] for part in scenario.parts]
    federation = of(scenario, early, model)
    requests = tuple(_own(request, early) for request in scenario.requests)
    before = train(federation, state_of(model), schedule)
    made = forget(federation, before, requests, schedule, "retrain")
    never = without(scenario, early, requests, model)
    expected = train(never, state_of(model), schedule)
    figures: dict[str, Any] = {
        f"{name}_before": value for name, value in _figures(scenario, federation, before, requests).items()
    }
    figures |= _figures(scenario, federation, made.state, requests) | made.cost.to_json()
    figures |= _times(lambda: of(scenario, early, model), before, requests, schedule)
    figures |= {
        "same_bits": digest(made.state) == digest(expected), "features": len(
            made.state["head.weight"][0]
        ),
        "masks_relative": _beside_masks(federation, model, made.state, requests, schedule),
    }  # fmt: skip
    if spec.preset == "open":
        figures |= _arrivals(scenario, model, made.state, requests, schedule)
        if spec.setting == "class":
            figures |= _audited(scenario, federation, before, made.state, requests, schedule)
            tested = measure(scenario.federation, scenario.before, requests, scenario.dataset.test, threads=1)
            figures |= {"network_acc": tested.test_acc}
    return figures


def network(scenario: Scenario, masked: bool, number: int = 0) -> Ridge:
    """The head of this scenario; another `number` has random features of its own."""
    data, seed = scenario.dataset, derive_seed(scenario.spec.seed, "ridge", number)
    classes, name = len(data.classes), scenario.options.dataset
    if name in FEATURES:
        return random_ridge(data.shape, classes, FEATURES[name], seed, masked=masked)
    origin = "trained on images of the classes 5 to 9 that no client holds"
    own = build_model("cnn", data.shape, PUBLIC_CLASSES, 0)
    weights = backbone(name, scenario.options.quick, scenario.options.threads)
    return ridge_on(own, classes, origin=origin, weights=weights, masked=masked)


@cache
def backbone(name: str, quick: bool, threads: int) -> State:
    """The weights that other people's images and classes taught."""
    data = load_dataset(name)
    chosen = torch.arange(PUBLIC_FROM, len(data.train))
    public = data.train.select(chosen[data.train.labels[chosen] >= PUBLIC_CLASSES][: 1000 if quick else None])
    moved = replace(public, labels=public.labels - PUBLIC_CLASSES, true_labels=public.true_labels - PUBLIC_CLASSES)
    other = replace(data, train=moved, test=moved, classes=data.classes[PUBLIC_CLASSES:])
    federation = LocalFederation(
        other, [torch.arange(len(moved))], build_model("cnn", data.shape, PUBLIC_CLASSES, 0)
    )  # fmt: skip
    return train(federation, state_of(federation.model), replace(PUBLIC, threads=threads))


def of(scenario: Scenario, parts: Sequence[Tensor], model: Ridge) -> LocalFederation:
    return LocalFederation(scenario.dataset, parts, model, backdoors=scenario.backdoors)


def without(
    scenario: Scenario, parts: Sequence[Tensor], requests: Sequence[ErasureRequest], model: Ridge
) -> LocalFederation:
    """A federation whose data never held the target: its samples are not there, a feature is blank."""
    data, kept = scenario.dataset, list(parts)
    for request in requests:
        own = data.train.select(parts[request.client])
        if request.kind == "feature":
            blank = data.normalisation.blanked(own.features, joint_mask([request.feature], data.shape))
            features = data.train.features.clone()
            features[parts[request.client]] = blank
            data = replace(data, train=data.train.with_features(features))
        else:
            kept[request.client] = parts[request.client][~request.matches(own)]
    return LocalFederation(data, kept, model)


def _own(request: ErasureRequest, parts: Sequence[Tensor]) -> ErasureRequest:
    """Half of the samples that have arrived, where the request names samples."""
    if request.kind != "samples":
        return request
    here = parts[request.client]
    return ErasureRequest.of_samples(request.client, here[: len(here) // 2].tolist())


def _figures(
    scenario: Scenario, federation: LocalFederation, state: State, requests: Sequence[ErasureRequest]
) -> dict[str, Any]:
    found = measure(federation, state, requests, scenario.dataset.test, threads=scenario.options.threads)
    return {name: getattr(found, name) for name in ("bd_acc", "test_acc", "true_acc", "retained_acc")}


def _beside_masks(
    federation: LocalFederation, model: Ridge, state: State, requests: Sequence[ErasureRequest], schedule: Schedule
) -> float:
    """How far the same head without masks (or with them) is, as a part of its length."""
    model.masked = not model.masked
    other = run_round(federation, state, schedule.train_task(0, requests))
    model.masked = not model.masked
    return distance(other, state) / float(state["head.weight"].norm())


def _arrivals(
    scenario: Scenario, model: Ridge, state: State, requests: Sequence[ErasureRequest], schedule: Schedule
) -> dict[str, Any]:
    """What is known of the target after each arrival of new data, and whether at last the bits are those without it."""
    known = []
    for turn in range(1, ARRIVALS + 1):
        parts = [part[: len(part) - len(part) // 10 * (ARRIVALS - turn) // ARRIVALS] for part in scenario.parts]
        grown = of(scenario, parts, model)
        state = run_round(grown, state, further_round(schedule, turn, requests))
        known.append(_figures(scenario, grown, state, requests)["bd_acc"])
    expected = train(without(scenario, scenario.parts, requests, model), state_of(model), schedule)
    same = digest(state) == digest(expected)
    return {"bd_acc_later": known[-1], "later": known, "same_bits_later": same}


def _audited(
    scenario: Scenario,
    federation: LocalFederation,
    before: State,
    state: State,
    requests: tuple[ErasureRequest, ...],
    schedule: Schedule,
) -> dict[str, Any]:
    """What the measures say of the model before and of ours, as if nobody knew how it was made."""
    case = Case(federation, requests, schedule, "quick")
    task = schedule.train_task(0, requests)

    def solved_anew(number: int) -> State:
        return run_round(federation, state_of(network(scenario, masked=False, number=number)), task)

    oracles = [solved_anew(1 + k) for k in range(ORACLES)]
    references = examine_oracles(case, oracles, lambda *_: None)
    untouched, ours = examine(case, before, oracles), examine(case, state, oracles)
    fresh = examine(case, solved_anew(1 + ORACLES), oracles)
    subjects = {"audit_before": untouched, "audit_after": ours, "audit_fresh": fresh}
    return {name: judge(subject, untouched, references)[1].word for name, subject in subjects.items()}


def _times(
    make: Callable[[], LocalFederation], before: State, requests: Sequence[ErasureRequest], schedule: Schedule
) -> dict[str, Any]:
    """The seconds of a training from scratch, of the request after it, and of this as a part of that."""
    pairs = []
    for _ in range(TIMES):
        federation, start = make(), time.process_time()
        train(federation, state_of(federation.model), schedule)
        trained = time.process_time()
        forget(federation, before, requests, schedule, "retrain")
        pairs.append((trained - start, time.process_time() - trained))
    return {
        "training_seconds": median(training for training, _ in pairs), "seconds": median(own for _, own in pairs),
        "time_share": median(own / training for training, own in pairs),
    }  # fmt: skip


def _share(rows: Sequence[Row]) -> Entry:
    """Older cells were timed once."""
    shares = [row.get("time_share") or row["seconds"] / row["training_seconds"] for row in rows if row["note"] is None]
    return Entry.of([100.0 * share for share in shares], digits=1)


def _yes(column: str) -> Any:
    """`5 of 5`: in how many rows it is so, of those that say."""

    def said(rows: Sequence[Row]) -> str:
        told = [value for value in values(rows, column) if value is not None]
        return f"{sum(map(bool, told))} of {len(told)}" if told else "–"

    return said


def _word(column: str, wanted: frozenset[str]) -> Any:
    def said(rows: Sequence[Row]) -> str:
        told = [value for value in values(rows, column) if value is not None]
        return f"{sum(word in wanted for word in told)} of {len(told)}" if told else "–"

    return said


NOT_TOLD = frozenset({"forgotten", "not enough evidence"})


def _largest(rows: Sequence[Row]) -> str:
    found = [value for value in values(rows, "masks_relative") if value is not None]
    return f"{max(found):.0e}" if found else "–"


def tables(rows: Sequence[Row]) -> list[Table]:
    groups = grouped(rows, lambda row: f"{row['setting']}, {row['preset']}")
    exact: Columns = {
        "bits of a training without it": _yes("same_bits"),
        "the same after 5 arrivals": _yes("same_bits_later"),
        "with masks beside without, largest": _largest,
        "forgetting, s": mean("seconds"),
        "from scratch, s": mean("training_seconds"),
        "forgetting, % of that": _share,
        "cells": counted,
    }
    known: Columns = {
        "target as trained, before": mean("bd_acc_before"),
        "after": mean("bd_acc"),
        "after 5 arrivals": mean("bd_acc_later"),
        "Test Acc before": mean("test_acc_before"),
        "Test Acc after": mean("test_acc"),
        "the full network": mean("network_acc"),
        "untouched: not forgotten": _word("audit_before", frozenset({"not forgotten"})),
        "fresh Retrain: not told from others": _word("audit_fresh", NOT_TOLD),
        "ours: not told from them": _word("audit_after", NOT_TOLD),
    }
    return [
        table("Exact, and at what price", groups, exact, notes_of(rows), first="withdrawn", wide=True),
        table("What is known of the target, and of the rest (%)", groups, known, first="withdrawn", wide=True),
    ]


def remarks(rows: Sequence[Row]) -> list[str]:
    whole = [row for row in rows if row["note"] is None]
    same = sum(row["same_bits"] for row in whole)
    return [f"{same} of {len(whole)} cells have the bits of a training that never held the target."]


EXPERIMENT = Experiment(
    name="ridge",
    title="A ridge head: is forgetting exact, and what does it cost?",
    specs=specs,
    run=run,
    tables=tables,
    remarks=remarks,
    methods=None,
    needs_before=False,
    federation="A ridge head on a frozen backbone is solved from the clients' sums; the full network is the "
    "configuration's.",
)
