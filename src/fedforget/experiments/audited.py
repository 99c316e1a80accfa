"""Every method before the audit: what an informed attacker says of the models that forgot (no table of the paper).

For each target a federation is trained, every method serves the request, and each model is judged at the level `quick`,
against three oracles. Two more models are judged whose truth is known: `before`, which remembers, and `retrain`, here a
fresh oracle that is none of the three. A row's `target` says what was asked for: one class of the client, 500 random
samples of it, or all it has, with a backdoor or `clean-`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedforget.audit.case import Case, Level
from fedforget.audit.examine import ORACLES, Examination, examine, examine_oracles, judge
from fedforget.audit.oracles import oracle_models, oracle_schedule
from fedforget.errors import FedForgetError
from fedforget.experiments.columns import Columns, Line, beside_paper, mean, notes_of, table
from fedforget.experiments.drawing import word_grid
from fedforget.experiments.engine import CellSpec, Experiment, Row, model_of, target_specs
from fedforget.experiments.pages import command, provenance_of
from fedforget.experiments.pairs import RETRAIN
from fedforget.experiments.scenario import Scenario
from fedforget.experiments.summaries import by_method, by_setting, method_name, where
from fedforget.experiments.tables import DASH, Table
from fedforget.federation.rounds import train
from fedforget.methods.retrain import RetrainSettings, fresh_start
from fedforget.params import State

DEFAULT_TARGETS = ("class", "samples", "client")
VERDICTS = "Verdicts against three oracles"
ACCURACIES = {"bd_acc": "BD Acc", "true_acc": "target as its true class", "test_acc": "Test Acc"}
COLOURS = {
    "forgotten": "#b7e0c2",
    "not forgotten": "#f2b8b0",
    "over-forgotten": "#f6dca8",
    "not enough evidence": "#e3e3e3",
}
INTRODUCTION = """\
Every model is judged against three oracles: could it be one more model that never saw the target? Two whose truth
is known stand among them: `before`, which remembers, and `retrain`, a fresh oracle that is none of the three. What a
verdict means is in docs/decisions/audit.md; how often it is right, in [calibration.md](calibration.md); the per-example
attack with many shadow models, in [ulira-mnist.md](ulira-mnist.md)."""
WORST = 3
"""So many of the measures that accuse are named."""


def run(spec: CellSpec, scenario: Scenario) -> dict[str, Any]:
    figures = scenario.figures_before() | {"target": spec.setting}
    try:
        state, cost = (fresh_oracle(scenario), {}) if spec.method == RETRAIN else model_of(spec, scenario)
        measured = scenario.measure(state)
    except FedForgetError as error:
        return figures | {"note": str(error)}
    return figures | measured | cost | {"verdict": judged(scenario, state)}


def oracles_of(scenario: Scenario, level: Level = "quick") -> list[State]:
    """As many as the level takes; a scenario is looked at with one level."""
    if "oracles" not in scenario.kept:
        scenario.kept["oracles"] = oracle_models(
            scenario.federation, scenario.requests, scenario.schedule, ORACLES[level], data=scenario.bench.digest
        )
    return scenario.kept["oracles"]


def fresh_oracle(scenario: Scenario, level: Level = "quick") -> State:
    """One more, which no verdict is held against."""
    if "fresh oracle" not in scenario.kept:
        schedule = oracle_schedule(scenario.schedule, ORACLES[level])
        start = fresh_start(scenario.federation.model, schedule, RetrainSettings())
        scenario.kept["fresh oracle"] = train(scenario.federation, start, schedule, exclude=scenario.requests)
    return scenario.kept["fresh oracle"]


def judged(scenario: Scenario, state: State, level: Level = "quick") -> dict[str, Any]:
    """The verdict on a model; what is read from the oracles and from the model before is read once."""
    case = Case(scenario.federation, scenario.requests, scenario.schedule, level)
    references = oracles_of(scenario, level)
    if "examined" not in scenario.kept:
        examined = examine_oracles(case, references, lambda *_: None)
        scenario.kept["examined"] = (examined, examine(case, scenario.before, references))
    others, before = scenario.kept["examined"]
    subject: Examination = before if state is scenario.before else examine(case, state, references)
    return judge(subject, before, others)[1].to_json()


def tables(rows: Sequence[Row]) -> list[Table]:
    """The words; then for each target the accuracies and the measures."""
    targets = by_setting(rows)
    judged = f"{sum(bool(row.get('verdict')) for row in rows)} of {len(rows)} models judged."
    words = {target: _words(target) for target in targets}
    found = [table(VERDICTS, by_method(rows), words, (judged, *notes_of(rows)), first="model")]
    figures = {shown: beside_paper(column) for column, shown in ACCURACIES.items()}
    for target, own in targets.items():
        columns: Columns = {**figures, "what told": _reasons}
        found.append(table(f"Accuracy (%), target {target}", by_method(own), columns, first="model"))
        found.append(_measures(target, own))
    return found


def _words(target: str) -> Callable[[Sequence[Row]], str]:
    """What was said of a model for this target: `forgotten`, or `forgotten 2, over-forgotten 1` over several trials."""

    def tally(rows: Sequence[Row]) -> str:
        own = where(rows, "setting", target)
        words = Counter(row["verdict"]["word"] if row.get("verdict") else "no model" for row in own)
        if len(own) == 1:
            return next(iter(words))
        return ", ".join(f"{word} {count}" for word, count in words.most_common()) or DASH

    return tally


def _reasons(rows: Sequence[Row]) -> str:
    """The measures that were beyond an oracle's interval, and in how many of the cells."""
    told = Counter(
        f"{finding['name']} ({finding['says']})"
        for row in rows
        for finding in (row.get("verdict") or {}).get("findings", ())
        if finding["says"] in ("remembers", "over-forgotten", "missing")
    )
    several = len(rows) > 1
    return "; ".join(f"{what}{f' {count} of {len(rows)}' if several else ''}" for what, count in told.items()) or DASH


def _measures(target: str, rows: Sequence[Row]) -> Table:
    """Every measure of the first trial, beside where an oracle would lie."""
    first = [row for row in rows if row["seed"] == min(r["seed"] for r in rows) and row.get("verdict")]
    first = [row for row in first if row["class"] == first[0]["class"]]
    names = [finding["name"] for finding in first[0]["verdict"]["findings"]] if first else []
    body: list[Line] = []
    for place, name in enumerate(names):
        found = [row["verdict"]["findings"][place] for row in first]
        low, high = found[0]["low"], found[0]["high"]
        body.append([name, DASH if low is None else f"{low:.3g} to {high:.3g}", *(_marked(f) for f in found)])
    notes = ("! remembers, < over-forgotten; the interval is where 95 % of oracles lie, for the sampling error of "
             "the first model.",)  # fmt: skip
    return Table(
        f"Measures, target {target}, first trial", ("measure", "an oracle's", *by_method(first)), body, notes, wide=True
    )


def _marked(finding: dict[str, Any]) -> str:
    if finding["value"] is None:
        return "missing"
    mark = {"remembers": " !", "over-forgotten": " <"}.get(finding["says"], "")
    return f"{finding['value']:.3g}{mark}"


def figures(rows: Sequence[Row], stem: Path) -> list[Path]:
    """The verdicts as a field of colours: models down, targets across."""
    models = by_method(rows)
    columns = {target: list(map(_words(target), models.values())) for target in by_setting(rows)}
    return word_grid(stem, f"{VERDICTS}, {rows[0]['dataset']}", rows, list(models), columns, COLOURS)


def overview(cells: Mapping[str, Sequence[Row]], folder: Path) -> list[str]:
    """The verdicts on every method, over all data sets that were audited."""
    parts = ["# Verdicts on every method", INTRODUCTION]
    for name, rows in cells.items():
        whole = f"All measures: [audit-{name}.md](audit-{name}.md)."
        parts += [f"## {name}", f"{command(AUDIT, rows)} {provenance_of(rows)} {whole}"]
        parts += [verdicts(target, own).to_markdown() for target, own in by_setting(rows).items()]
    return parts


def verdicts(target: str, rows: Sequence[Row]) -> Table:
    """A line for each model: the verdict, and the measures that accuse it, beside where an oracle would lie."""
    body: list[Line] = []
    for row in rows:
        verdict = row.get("verdict") or {}
        figures = [mean(column)([row]) for column in ("bd_acc", "test_acc")]
        body.append([method_name(row), verdict.get("word", "no model"), *figures, accusations(verdict)])
    columns = ("model", "against three oracles", "BD Acc", "Test Acc", "what told")
    return Table(f"Target: {target}", columns, body)


def accusations(verdict: Mapping[str, Any]) -> str:
    """`comes back 66.1 (oracles -0.8 to 3.1)`, the clearest first."""
    told = [f for f in verdict.get("findings", ()) if f["says"] in ("remembers", "over-forgotten")]
    told.sort(key=lambda f: f["p_remembers"] if f["says"] == "remembers" else f["p_over"])
    shown = [f"{f['name']} {f['value']:.3g} (oracles {f['low']:.3g} to {f['high']:.3g})" for f in told[:WORST]]
    more = [f"{len(told) - WORST} more"] if len(told) > WORST else []
    return "; ".join([*shown, *more]) or DASH


AUDIT = Experiment(
    name="audit",
    title="Every method before the audit",
    specs=partial(target_specs, targets=DEFAULT_TARGETS),
    run=run,
    tables=tables,
    figures=figures,
    overview=overview,
)
