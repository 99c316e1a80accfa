"""Classes one after another: each step goes on from the one before, and what was served stays away."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fedforget.errors import DivergedError, InputError
from fedforget.experiments import EXPERIMENTS, scenario
from fedforget.experiments.engine import reproduce
from fedforget.experiments.options import Options, parse_methods
from fedforget.experiments.paper_numbers import COMPLETE_BD, SEQUENTIAL_BD
from fedforget.federation.local import LocalFederation
from fedforget.federation.tasks import Measure, Train
from fedforget.methods import METHODS, Method
from fedforget.methods.retrain import RetrainSettings
from fedforget.params import digest
from fedforget.requests import ErasureRequest

SEQUENTIAL = EXPERIMENTS["sequential"]
ZERO, ONE, TWO = (ErasureRequest.of_class(0, label) for label in range(3))


class Served:
    """One request as it was served: on which model, with what went before, and the model it left."""

    def __init__(self, before: Any, requests: Any, more: Any, result: Any) -> None:
        self.before, self.after = digest(before), digest(result.state)
        self.method, self.requests, self.served = result.method, tuple(requests), tuple(more["served"])


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Served]:
    found: list[Served] = []

    def watched(federation: Any, state: Any, requests: Any, *rest: Any, **more: Any) -> Any:
        result = real(federation, state, requests, *rest, **more)
        found.append(Served(state, requests, more, result))
        return result

    real = scenario.forget
    monkeypatch.setattr(scenario, "forget", watched)
    return found


def test_the_cells(options: Options):
    specs = SEQUENTIAL.specs(replace(options, quick=False, methods=parse_methods("all")))
    assert len(specs) == 3 * len(parse_methods("all")) * 3
    assert [(s.label, s.setting) for s in specs[:3]] == [("0", 1), ("0,1", 2), ("0,1,2", 3)]
    assert {s.scenario.labels for s in specs} == {(0, 1, 2)}
    own = SEQUENTIAL.specs(replace(options, classes=(4, 2)))
    assert [s.label for s in own[:2]] == ["4", "4,2"], "in the order they were named"


def test_every_class_has_a_trigger_and_a_wrong_label_of_its_own(options: Options):
    built = scenario.Bench(options).scenario(scenario.ScenarioSpec((0, 1, 2, 3), 0))
    assert len({backdoor.trigger.corner for backdoor in built.backdoors}) == 4
    assert built.backdoors[0].trigger == options.settings.trigger, "the first as where there is one class alone"
    alone = scenario.Bench(options).scenario(scenario.ScenarioSpec((0,), 0))
    assert alone.backdoors == built.backdoors[:1]
    with pytest.raises(InputError, match=r"^5 classes need 5 triggers, but an image has 4 corners; name fewer\.$"):
        scenario.Bench(options).scenario(scenario.ScenarioSpec((0, 1, 2, 3, 4), 0))


def test_the_papers_column_before_is_a_running_mean_of_its_single_classes():
    for (dataset, classes), printed in SEQUENTIAL_BD.items():
        single = [COMPLETE_BD[dataset, label]["before"] for label in classes.split(",")]
        assert abs(printed["before"] - sum(single) / len(single)) <= 0.00501


@pytest.mark.real
def test_each_step_goes_on_from_the_one_before(options: Options, log: list[Served]):
    rows = reproduce(SEQUENTIAL, replace(options, classes=(0, 1, 2), methods=parse_methods("overwrite,fedaf-c")))
    assert len(log) == 6, "every step is served once"
    for first, second, third in (log[:3], log[3:]):
        assert (first.requests, second.requests, third.requests) == ((ZERO,), (ONE,), (TWO,))
        assert (first.served, second.served, third.served) == ((), (ZERO,), (ZERO, ONE))
        assert second.before == first.after
        assert third.before == second.after
    assert log[0].before == log[3].before, "both methods begin with the model before unlearning"
    for row in rows:
        assert list(row["bd_acc_by_class"]) == row["class"].split(",")
        by_class = row["bd_acc_by_class"].values()
        assert min(by_class) - 1e-9 <= row["bd_acc"] <= max(by_class) + 1e-9
        assert row["bd_acc_before"] is not None
    assert [row["setting"] for row in rows] == [1, 2, 3, 1, 2, 3]
    table = SEQUENTIAL.tables(rows)[0]
    assert table.columns == ("", "after 0", "after 0,1", "after 0,1,2", "cells")


@pytest.mark.real
def test_no_method_trains_on_what_was_served(options: Options, monkeypatch: pytest.MonkeyPatch):
    trained: list[tuple[str, int, set[int]]] = []
    at_work: list[Any] = []

    def watched(federation: Any, task: Any, state: Any, to: Any = None) -> Any:
        real_to = list(to) if to is not None else None
        if at_work and not isinstance(task, Measure):
            method, requests, served = at_work[-1]
            withdrawn = {request.label for request in (*served, *requests)}
            if isinstance(task, Train):
                trained.append((method, len(served), {request.label for request in task.exclude}))
                assert {request.label for request in task.exclude} >= withdrawn, method
            elif hasattr(task, "served"):
                assert set(served) <= {*task.served, *getattr(task, "requests", ())}, (method, task)
        yield from ask(federation, task, state, real_to)

    def named(federation: Any, state: Any, requests: Any, schedule: Any, method: str, preset: str, **more: Any) -> Any:
        at_work.append((method, requests, more["served"]))
        try:
            return forget(federation, state, requests, schedule, method, preset, **more)
        finally:
            at_work.pop()

    ask, forget = LocalFederation.ask, scenario.forget
    monkeypatch.setattr(LocalFederation, "ask", watched)
    monkeypatch.setattr(scenario, "forget", named)
    rows = reproduce(SEQUENTIAL, replace(options, methods=parse_methods("retrain,overwrite,sga,cdp,not")))
    assert all(row["note"] is None for row in rows)
    assert {method for method, served, _ in trained if served} >= {"retrain", "overwrite", "cdp", "not"}


@pytest.mark.real
def test_a_step_takes_up_the_model_that_an_earlier_run_left(options: Options, log: list[Served]):
    chosen = replace(options, methods=parse_methods("overwrite"))
    reproduce(SEQUENTIAL, replace(chosen, classes=(0, 1)))
    whole = SEQUENTIAL.cell_file(chosen).read_text()
    SEQUENTIAL.cell_file(chosen).write_text(whole.split("\n")[0] + "\n")
    log.clear()
    rows = reproduce(SEQUENTIAL, replace(chosen, classes=(0, 1)))
    assert [(served.requests, served.served) for served in log] == [((ONE,), (ZERO,))], "step 1 is not served again"
    assert len(rows) == 2
    before = json.loads(whole.split("\n")[1])
    for name in ("bd_acc", "test_acc", "bd_acc_by_class", "gradient_evaluations"):
        assert rows[1][name] == before[name]


def test_after_a_step_without_a_model_there_is_none(options: Options, monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []

    def diverge(*_: Any, **__: Any) -> Any:
        calls.append(1)
        raise DivergedError("Method 'toy'", "it is gone.")

    monkeypatch.setitem(METHODS, "toy", Method(diverge, {"default": RetrainSettings()}, "diverges"))
    rows = reproduce(SEQUENTIAL, replace(options, classes=(0, 1, 2), methods=(("toy", "default"),)))
    assert rows[0]["note"] == "Method 'toy' diverged: it is gone."
    assert rows[1]["note"] == rows[2]["note"] == "Step 1 left no model: Method 'toy' diverged: it is gone."
    assert len(calls) == 1, "what failed is not tried again"
    assert all(row["bd_acc"] is None and row["bd_acc_before"] is not None for row in rows)


def test_the_printed_numbers():
    row = {"dataset": "mnist", "class": "0,1", "method": "fedaf"}
    assert EXPERIMENTS["sequential"].paper(row) == {
        "bd_acc_before": 81.35,
        "test_acc_before": 98.30,
        "bd_acc": 0.78,
        "test_acc": 92.25,
    }
    assert EXPERIMENTS["sequential"].paper(row | {"method": "pgd"}) == {
        "bd_acc_before": 81.35,
        "test_acc_before": 98.30,
    }
    assert EXPERIMENTS["sequential"].paper(row | {"class": "1,0"}) is None
