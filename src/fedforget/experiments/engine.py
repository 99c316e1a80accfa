"""The engine behind `fedforget reproduce NAME`: an experiment is a list of cells, worked off one by one.

Cells of one scenario follow each other, so that its federation is trained once. A cell is written down when it is done;
a run that was stopped, however it was stopped, goes on with the first cell that is missing."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.experiments.cells import Cell, CellFile, alone, provenance
from fedforget.experiments.options import Options, parse_methods
from fedforget.experiments.scenario import Bench, Scenario, ScenarioSpec
from fedforget.experiments.tables import Table
from fedforget.methods import METHODS, method_settings
from fedforget.methods.fedaf.settings import LEFT, FullSettings, OverwriteSettings
from fedforget.params import State

Row = dict[str, Any]
DEFAULT_CLASS = 3
UNTOUCHED = ("before", "default")
"""The model before unlearning, where it stands among the methods."""
FIGURES = (
    "bd_acc_before", "bd_acc", "test_acc_before", "test_acc", "true_acc", "retained_acc", "target_class_test_acc",
    "seconds", "gradient_evaluations", "bytes", "stored_bytes", "peak_bytes",
)  # fmt: skip
"""What every row has a value for, or None where it was not measured."""


@dataclass(frozen=True)
class CellSpec:
    """One thing to compute: a method serves a scenario's requests, with the varied `setting` if something is varied."""

    scenario: ScenarioSpec
    trial: int
    label: int | str | None
    """The row's `class`."""
    method: str
    preset: str
    setting: int | float | str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What `setting` stands for in the method's own settings."""

    @property
    def name(self) -> str:
        """Within its experiment, data set and configuration."""
        setting = "" if self.setting is None else f"/{self.setting}"
        return f"{self.scenario.name}/{self.method}:{self.preset}{setting}"

    @property
    def kind(self) -> str:
        """Cells of one kind take about the same time."""
        return f"{self.method}:{self.preset}"


def request_specs(
    options: Options,
    settings: Sequence[tuple[Any, Mapping[str, Any]]] = ((None, {}),),
    classes: tuple[int, ...] | None = None,
) -> list[CellSpec]:
    """One class of one client at a time, for every method and every (setting, overrides): where the user names no
    class, each of `classes`. In order of value: one trial of everything first, then more trials."""
    return [
        CellSpec(ScenarioSpec((label,), options.seed + trial), trial, label, method, preset, value, overrides)
        for trial in options.chosen_trials()
        for label in options.classes or classes or options.chosen_classes()
        for method, preset in options.methods or ()
        for value, overrides in settings
    ]


def target_specs(options: Options, targets: Sequence[str]) -> list[CellSpec]:
    """One trial of every kind of target for every method first, the untouched model in front; where the user names
    none, these `targets`, and class-wise the class DEFAULT_CLASS. A cell's setting is its target."""
    found = []
    for trial in options.chosen_trials():
        for target in options.targets or targets:
            kind, poisoned = target.removeprefix("clean-"), not target.startswith("clean-")
            for chosen in (options.classes or (DEFAULT_CLASS,)) if kind == "class" else (None,):
                labels = () if chosen is None else (chosen,)
                seed, other = options.seed + trial, {"samples": "samples500", "client": "client"}.get(kind)
                scenario = ScenarioSpec(labels, seed, poisoned, other)
                for method, preset in (UNTOUCHED, *(options.methods or ())):
                    found.append(CellSpec(scenario, trial, chosen, method, preset, target))
    return found


def model_of(spec: CellSpec, scenario: Scenario) -> tuple[State, dict[str, Any]]:
    """(the model of a cell, what it cost with its notes): the untouched model costs nothing."""
    if spec.method == UNTOUCHED[0]:
        return scenario.before, {"notes": []}
    result = scenario.forget(spec.method, spec.preset, spec.overrides)
    return result.state, result.cost.to_json() | {"notes": list(result.notes)}


def serve_requests(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    """The figures of the standard cell. A method that diverges or refuses leaves a sentence and no numbers."""
    figures = scenario.figures_before()
    figures |= {"overrides": scenario.configuration.overrides_of(spec.method, spec.preset, spec.overrides)}
    try:
        state, cost = model_of(spec, scenario)
        return figures | scenario.measure(state) | cost
    except FedForgetError as error:
        return figures | {"note": str(error)}


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper: which cells it is made of, and how they are shown."""

    name: str
    title: str
    """What the paper calls it."""
    specs: Callable[[Options], list[CellSpec]]
    tables: Callable[[Sequence[Row]], list[Table]]
    label: str = ""
    """Its LaTeX label there; empty for one of our own."""
    run: Callable[[CellSpec, Scenario], dict[str, Any]] = serve_requests
    paper: Callable[[Mapping[str, Any]], dict[str, float] | None] = lambda row: None
    """The printed values for a row, where there are any."""
    figures: Callable[[Sequence[Row], Path], list[Path]] | None = None
    """Draws into files whose names begin with the given path; imports matplotlib itself."""
    remarks: Callable[[Sequence[Row]], list[str]] = lambda rows: []
    """Sentences about the rows, for the page."""
    overview: Callable[[Mapping[str, Sequence[Row]], Path], list[str]] | None = None
    """The paragraphs of NAME.md, one page over all data sets: from the rows of each, and the folder it will lie in."""
    has_pages: bool = True
    """False where the overview is the only page."""
    methods: str | None = "all"
    """Which ones if the user names none; None for an experiment that compares no methods."""
    needs_before: bool = True
    """False if no cell begins with the model before unlearning, so none is trained."""
    federation: str = ""
    """One sentence about what it trains, where that is not the configuration's federation."""
    shares: str | None = None
    """The experiment whose cells it shows: they are computed there or here, never twice."""

    @property
    def cells(self) -> str:
        return self.shares or self.name

    def cell_file(self, options: Options) -> Path:
        return options.out / f"{'-'.join([self.cells, *options.labels])}.jsonl"

    def key(self, spec: CellSpec, options: Options) -> str:
        return "/".join([self.cells, *options.labels, spec.name])


class Step(NamedTuple):
    """How far a run is."""

    what: str
    done: int
    total: int
    seconds_left: float | None


def reproduce(
    experiment: Experiment,
    options: Options,
    *,
    merge: Iterable[Path] = (),
    progress: Callable[[Step], None] = lambda step: None,
) -> list[Row]:
    """Compute what is missing; the rows of all that was asked for, in order. Folders to `merge` are taken in first."""
    if experiment.methods is not None:
        options = replace(options, methods=options.methods or parse_methods(experiment.methods))
    elif options.methods:
        raise InputError(f"Experiment '{experiment.name}' compares no methods; leave --methods out.")
    specs = {experiment.key(spec, options): spec for spec in experiment.specs(options)}
    path = experiment.cell_file(options)
    others = [folder / path.name for folder in merge]
    for other in others:
        if not other.exists():
            raise InputError(f"{other} does not exist, so there is nothing to merge from {other.parent}.")
    with alone(path) as file:
        file.merge(others)
        for key, spec in specs.items():
            if key in file.cells:
                check_settings(spec, options, file.cells[key], path)
        left = [spec for key, spec in specs.items() if key not in file.cells]
        if left:
            _compute(experiment, options, left, len(specs), file, progress)
        progress(Step("done", len(specs), len(specs), 0.0))
        return [as_row(experiment, file.cells[key]) for key in specs]


def settings_of(spec: CellSpec, options: Options) -> dict[str, Any] | None:
    """All settings the cell's method runs with on the configuration's network; None where a cell is no method's."""
    if spec.method not in METHODS:
        return None
    changed = options.settings.overrides_of(spec.method, spec.preset, spec.overrides)
    return asdict(_on_network(method_settings(spec.method, spec.preset, **changed)[1], options))


def _on_network(settings: Any, options: Options) -> Any:
    """The settings with a number for every `auto`, and with all that a preset of ours has settled."""
    own = isinstance(settings, OverwriteSettings)
    return settings.opened().for_network(options.settings.weights) if own else settings


def check_settings(spec: CellSpec, options: Options, cell: Cell, path: Path) -> None:
    """Refuse a cell that was computed with other settings: it would be shown as if it were of these. A setting that is
    newer than the cell must be at its default, which is how it was before there was one; one that has left must be at
    the value that is fixed now; one that changes nothing beside the others may differ."""
    now, then = settings_of(spec, options) or {}, cell["method_settings"] or {}
    idle: frozenset[str] = frozenset()
    if now and then:
        preset = METHODS[spec.method].presets[spec.preset]
        preset = preset.opened() if isinstance(preset, OverwriteSettings) else preset
        before = replace(preset, **{item.name: item.default for item in fields(preset) if item.name not in then})
        then = asdict(_on_network(before, options)) | then
        if isinstance(preset, FullSettings):
            then = {name: value for name, value in then.items() if name not in LEFT or value != LEFT[name]}
            idle = replace(preset, **now).idle
    changed = [
        f"{name} was {then.get(name)} and is {now.get(name)}"
        for name in sorted({*now, *then} - idle)
        if now.get(name) != then.get(name)
    ]
    if changed:
        raise InputError(
            f"{path} has a cell of {spec.kind} that was computed with other settings ({'; '.join(changed)}); "
            "delete such lines, or choose another --out."
        )


def _compute(
    experiment: Experiment,
    options: Options,
    left: Sequence[CellSpec],
    total: int,
    file: CellFile,
    progress: Callable[[Step], None],
) -> None:
    bench = Bench(options)
    taken: dict[str, list[float]] = defaultdict(list)
    groups: dict[ScenarioSpec, list[CellSpec]] = {}
    for spec in left:
        groups.setdefault(spec.scenario, []).append(spec)
    todo = [kind for group in groups.values() for kind in ("training", *(spec.kind for spec in group))]

    @contextmanager
    def next_piece(scenario: ScenarioSpec) -> Iterator[None]:
        done = total - sum(kind != "training" for kind in todo)
        progress(Step(f"{scenario.name}: {todo[0]}", done, total, seconds_left(taken, todo)))
        start = time.perf_counter()
        yield
        taken[todo.pop(0)].append(time.perf_counter() - start)

    for scenario_spec, group in groups.items():
        needs_history = any(METHODS[s.method].needs_history for s in group if s.method in METHODS)
        scenario = bench.scenario(scenario_spec, needs_history=needs_history)
        with next_piece(scenario_spec):
            broken = _train(scenario) if experiment.needs_before else None
        for spec in group:
            with next_piece(scenario_spec):
                figures = {"note": broken} if broken else _figures(experiment, spec, scenario)
            file.add(make_cell(experiment, spec, options, figures))


def _train(scenario: Scenario) -> str | None:
    """Why there is no model before unlearning, if there is none."""
    try:
        scenario.before  # noqa: B018 (trained and kept here, so that no cell has to pay for it)
        return None
    except DivergedError as error:
        return str(error)


def _figures(experiment: Experiment, spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    try:
        return experiment.run(spec, scenario)
    except DivergedError as error:
        return {"note": str(error)}


def make_cell(experiment: Experiment, spec: CellSpec, options: Options, figures: Mapping[str, Any]) -> Cell:
    """What is written down of a cell."""
    return {
        "key": experiment.key(spec, options), "experiment": experiment.cells, "dataset": options.dataset,
        "class": spec.label, "method": spec.method, "preset": spec.preset, "trial": spec.trial,
        "setting": spec.setting, "method_settings": settings_of(spec, options), **dict.fromkeys(FIGURES), "note": None,
        **figures,
        "seed": spec.scenario.seed, "configuration": options.configuration, "quick": options.quick,
        "device": options.device, "threads": options.threads, **provenance(options.device),
    }  # fmt: skip


def as_row(experiment: Experiment, cell: Mapping[str, Any]) -> Row:
    """A cell with the paper's values beside it."""
    first = {name: cell[name] for name in ("dataset", "class", "method", "preset", "trial", "setting", *FIGURES)}
    return first | {"paper": experiment.paper(cell)} | {k: v for k, v in cell.items() if k not in first}


def ordered_rows(experiment: Experiment, cells: Iterable[Mapping[str, Any]]) -> list[Row]:
    """All cells as rows, in an order that does not depend on when they were computed."""
    names = list(METHODS)

    def rank(cell: Mapping[str, Any]) -> tuple[Any, ...]:
        place = names.index(cell["method"]) if cell["method"] in names else len(names)
        return (_rank(cell["class"]), cell["seed"], place, cell["method"], cell["preset"], _rank(cell["setting"]))

    return [as_row(experiment, cell) for cell in sorted(cells, key=rank)]


def _rank(value: Any) -> tuple[int, float, str]:
    number = isinstance(value, int | float)
    return (0, float(value), "") if number else (1, 0.0, json.dumps(value))


def seconds_left(taken: Mapping[str, Sequence[float]], todo: Sequence[str]) -> float | None:
    """Seconds for `todo`, by the mean of what each kind of work has `taken`; a kind that was not met yet counts as the
    mean of those that were."""
    means = {kind: sum(times) / len(times) for kind, times in taken.items()}
    if not means:
        return None
    other = sum(means.values()) / len(means)
    return sum(means.get(kind, other) for kind in todo)
