"""Is the audit right? Models of which the truth is known, examined and judged, over many seeds.

    untouched     the model before: it remembers                                   must never be called forgotten
    retrained     a fresh oracle that is none of those it is judged against        must be called forgotten
    noisy head    the untouched model with noise on its output layer               must be caught
    masked        the untouched model with the trained class's logit masked        must be caught
    last layer    the untouched model, its last layer fine-tuned on retained data  must be caught
    ascent        gradient ascent on the target, run too far                       must be called over-forgotten

Two worlds: a backdoored class (digits), and half of a client's clean samples in a federation that memorises (4 x 500 of
MNIST, 40 rounds)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch.nn import functional as F

from fedforget.audit.check import CheckWord
from fedforget.errors import FedForgetError, InputError
from fedforget.experiments.audited import fresh_oracle, judged
from fedforget.experiments.columns import Columns, mean, table
from fedforget.experiments.engine import CellSpec, Experiment, Row
from fedforget.experiments.options import Options
from fedforget.experiments.pages import command, provenance_of
from fedforget.experiments.scenario import Scenario, ScenarioSpec
from fedforget.experiments.summaries import grouped, method_name
from fedforget.experiments.tables import Table
from fedforget.federation.cost import Meter
from fedforget.federation.training import minibatches
from fedforget.methods import METHODS, LadderSettings
from fedforget.params import State, copy_state, state_of, trainable
from fedforget.runs.forecast import Forecast
from fedforget.runs.reference import Eyes
from fedforget.seeds import derive_generator

SUBJECTS = ("untouched", "retrained", "noisy head", "masked", "last layer", "ascent")
SEEDS = 10
WORDS = ("forgotten", "not forgotten", "over-forgotten", "not enough evidence")
CHECK_WORDS = [word for word in get_args(CheckWord) if word != "exact"]
WORLDS = {
    "digits": "A backdoored class (digits: class 3 of client 0, 20 rounds)",
    "mnist": "Clean samples that are memorised (4 x 500 of MNIST, 40 rounds; half of client 0's)",
}
INTRODUCTION = """\
Models of which the truth is known, judged with three oracles (level `quick`). A number counts seeds. `untouched`
remembers, `retrained` is a fresh oracle; the next three hide the memory; `ascent` climbed the target's loss too far.
Below them are methods, of which the audit is to find out. Cells of later seeds say what the ladder's
[check](../decisions/check.md) says of the same models; both together are on [the ladder's page](ladder.md)."""


def specs(options: Options) -> list[CellSpec]:
    if options.dataset not in WORLDS or options.configuration != "default":
        raise InputError(f"Experiment 'calibration' knows {' and '.join(WORLDS)} in the configuration default.")
    poisoned = options.dataset == "digits"
    return [
        CellSpec(
            ScenarioSpec((3,), seed) if poisoned else ScenarioSpec((), seed, False, "half", "memorised"),
            trial, 3 if poisoned else None, method, preset,
        )
        for trial in range(options.trials or (1 if options.quick else SEEDS))
        for seed in [options.seed + trial]
        for method, preset in (*((name, "default") for name in SUBJECTS), *(options.methods or ()))
    ]  # fmt: skip


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    """The verdict on one model, with three oracles."""
    try:
        state = subject(spec, scenario)
        figures = scenario.measure(state)
    except FedForgetError as error:
        return {"note": str(error)}
    verdict, check = judged(scenario, state), checked(scenario, state, begins_before=spec.method in METHODS)
    return {name: figures[name] for name in ("test_acc", "bd_acc")} | {"verdict": verdict, "check": check}


def checked(scenario: Scenario, state: State, *, begins_before: bool) -> dict[str, Any]:
    """What the ladder's check says of a model; of one that begins from the model before, as of one overwritten."""
    eyes = Eyes(Meter(scenario.federation), scenario.requests, (), scenario.schedule)
    if "reference" not in scenario.kept:
        forecast = Forecast.of(eyes.meter, scenario.requests, (), scenario.schedule)
        found = eyes.reference(scenario.before, forecast.left, forecast.retrain, None, needs_held_out=False)
        scenario.kept["reference"] = (found, forecast.left)
    reference, left = scenario.kept["reference"]
    limit = LadderSettings().limit + left.loss(reference.untouched.accuracy)
    return eyes.check(reference, state, limit, overwritten=begins_before)[0].to_json()


def subject(spec: CellSpec, scenario: Scenario) -> State:
    """A model of which the truth is known, or what a method makes."""
    before, federation, (request,) = scenario.before, scenario.federation, scenario.requests
    weight, bias = list(before)[-2:]
    if spec.method in METHODS:
        return scenario.forget(spec.method, spec.preset).state
    if spec.method == "retrained":
        return fresh_oracle(scenario)
    if spec.method == "last layer":
        return tuned_last_layer(scenario, (weight, bias))
    if spec.method == "ascent":
        return scenario.forget("sga", "plain", {"lr": 0.05, "epochs": 30}).state
    if spec.method == "untouched":
        return before
    changed = copy_state(before)
    if spec.method == "masked":
        target = federation.client(request.client).target([request])
        changed[bias][target.labels.mode().values] -= 1e3
    else:
        generator = derive_generator(scenario.spec.seed, "calibration", "noise")
        for name in (weight, bias):
            changed[name] += before[name].std() * torch.randn(before[name].shape, generator=generator)
    return changed


def tuned_last_layer(scenario: Scenario, names: Sequence[str]) -> State:
    """Three epochs over everybody's retained data that move the last layer alone."""
    federation, schedule = scenario.federation, scenario.schedule
    network = federation.model
    network.load_state_dict(dict(scenario.before))
    network.eval()
    moved = [parameter for name, parameter in trainable(network).items() if name in names]
    for epoch in range(3):
        for k in federation.clients:
            client = federation.client(k)
            retained = client.retained(scenario.requests)
            generator = derive_generator(schedule.seed, "calibration", "last layer", epoch, "client", k)
            for batch in minibatches(len(retained), schedule.batch_size, generator, torch.device("cpu")):
                samples = retained.select(batch)
                loss = F.cross_entropy(network(client.inputs(samples.features)), samples.labels)
                for parameter, gradient in zip(moved, torch.autograd.grad(loss, moved), strict=True):
                    parameter.data.sub_(gradient, alpha=schedule.lr)
    return state_of(network)


def tables(rows: Sequence[Row]) -> list[Table]:
    def said(word: str) -> Callable[[Sequence[Row]], str]:
        return lambda own: str(sum(row["verdict"]["word"] == word for row in own if row.get("verdict")) or "")

    def check_said(word: str) -> Callable[[Sequence[Row]], str]:
        return lambda own: str(sum(row["check"]["word"] == word for row in own) or "")

    columns: Columns = {
        "Test Acc": mean("test_acc", digits=1), "R as trained": mean("bd_acc", digits=1),
        **{word: said(word) for word in WORDS},
    }  # fmt: skip
    told: Columns = {word: check_said(word) for word in CHECK_WORDS}
    asked = [row for row in rows if row.get("check")]
    second = [table("What the ladder's check says of them", _models(asked), told, first="model")] if asked else []
    return [table(WORLDS[rows[0]["dataset"]], _models(rows), columns, first="model"), *second]


def _models(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each model, those of which the truth is known first."""
    return grouped(sorted(rows, key=lambda row: (*SUBJECTS, row["method"]).index(row["method"])), method_name)


def _accusers(rows: Sequence[Row]) -> Table:
    """Which measures accuse whom, with oracles."""

    def findings(own: Sequence[Row]) -> list[dict[str, Any]]:
        return [finding for row in own for finding in (row.get("verdict") or {}).get("findings", ())]

    def told(name: str) -> Callable[[Sequence[Row]], str]:
        def count(own: Sequence[Row]) -> str:
            said = Counter(finding["says"] for finding in findings(own) if finding["name"] == name)
            return f"{said['remembers'] or '·'} / {said['over-forgotten'] or '·'}"

        return count

    models = _models(rows)
    names = dict.fromkeys(finding["name"] for own in models.values() for finding in findings(own))
    title = "Seeds in which a measure says `remembers` / `over-forgotten`, both worlds"
    return table(title, models, {name: told(name) for name in names}, first="model")


def overview(cells: Mapping[str, Sequence[Row]], folder: Path) -> list[str]:
    parts = ["# Is the audit right?", INTRODUCTION]
    for rows in cells.values():
        parts += [
            *(table.to_markdown() for table in tables(rows)),
            f"{command(CALIBRATION, rows)} {provenance_of(rows)}",
        ]
    return [*parts, _accusers([row for rows in cells.values() for row in rows]).to_markdown()]


CALIBRATION = Experiment(
    name="calibration",
    title="Is the audit right?",
    specs=specs,
    run=run,
    tables=tables,
    overview=overview,
    has_pages=False,
    methods="overwrite:default,fedquit,not,sga:ewc",
)
