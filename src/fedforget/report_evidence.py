"""The evidence behind the verdicts, for the report: each method's findings in words, and its attacks as plots.

The verdicts come with the audit; the curves lie in the evidence files beside the report. A file or a curve that is not
there leaves a sentence that says so, never a hole."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedforget.audit.membership import RANGE
from fedforget.audit.verdict import LEVEL
from fedforget.report import AFTER, BEFORE, DASH, GRID, RETRAIN, Chart, Row, blank_figure, inline_svg, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Sequence[float]

TONES = {"forgotten": "forgot", "not forgotten": "kept", "over-forgotten": "beyond", "not enough evidence": "unclear"}
NO_FILE = "No plot: the evidence file is not beside this report as the audit wrote it."
WIDTH = 3.3  # inches: three stand side by side, and their letters stay readable


@dataclass(frozen=True)
class Measured:
    """One finding, as the table shows it."""

    name: str
    unit: str
    value: str
    before: str
    expected: str
    says: str
    remark: str
    accuses: bool


@dataclass(frozen=True)
class Near:
    """One figure of `audit.closeness`, as the table shows it."""

    name: str
    value: str
    before: str
    oracles: str
    ratio: str


@dataclass(frozen=True)
class Judged:
    """A method that has a verdict, with what the page shows of the evidence for it; `missing` says what it cannot."""

    row: Row
    findings: list[Measured]
    closeness: list[Near]
    charts: list[Chart]
    missing: list[str]
    notes: list[str]

    @property
    def with_oracle(self) -> bool:
        return bool(self.row["verdict"]["with_oracle"])

    @property
    def command(self) -> str:
        """That checks the evidence, for a shell."""
        return shlex.join(["fedforget", "verify", self.row["evidence"]["file"]])


def judged_methods(folder: Path, rows: Sequence[Row], classes: Sequence[str]) -> list[Judged]:
    """Every method that has a verdict; `folder` is where the report is, and the evidence files' names start there."""
    before: Row = next((row for row in rows if row["method"] == "before"), {})
    found = [(row, read_record(folder, row)) for row in rows if row.get("verdict") and row["method"] != "before"]
    bins = shown_bins([record for _, record in found if record])
    return [judged(row, before, classes, record, bins, f"evidence{place}") for place, (row, record) in enumerate(found)]


def judged(
    row: Row,
    before: Row,
    classes: Sequence[str],
    record: Mapping[str, Any] | None,
    bins: tuple[int, int],
    prefix: str,
) -> Judged:
    verdict = row["verdict"]
    findings = [in_words(finding, verdict) for finding in verdict["findings"]]
    drawn: list[Chart | str] = [NO_FILE]
    if record is not None:
        pictures = record["pictures"]
        drawn = [
            draw_margins(pictures, bins, f"{prefix}margin"),
            draw_roc(pictures, verdict, f"{prefix}roc"),
            draw_relearning(pictures, verdict, f"{prefix}relearning"),
        ]
    if row.get("class_gaps"):
        drawn.append(draw_gaps(row["class_gaps"], classes, f"{prefix}gaps"))
    charts = [chart for chart in drawn if isinstance(chart, Chart)]
    missing = [words for words in drawn if isinstance(words, str)]
    notes = [] if record is None else list(record.get("notes") or ())
    return Judged(row, findings, nearness(row, before), charts, missing, notes)


def read_record(folder: Path, row: Row) -> dict[str, Any] | None:
    """The evidence file of a row; None where it is not there, or not the very bytes that the audit wrote."""
    where = row.get("evidence")
    if not where:
        return None
    try:
        data = (folder / where["file"]).read_bytes()
    except OSError:
        return None
    return json.loads(data) if hashlib.sha256(data).hexdigest() == where["sha256"] else None


def compared_with(verdict: Mapping[str, Any]) -> str:
    return f"against {verdict['oracles']} oracles" if verdict["with_oracle"] else "without oracle"


def mounted(methods: Sequence[Judged]) -> str:
    """The attacks that were made, in words; nothing if none was."""
    taken = {finding.name for method in methods for finding in method.findings if finding.says != "missing"}
    made = {
        "membership attacks": any(name.startswith("membership") for name in taken),
        "relearning": "relearning" in taken,
        "further rounds": any(name == "comes back" or name.endswith("one round later") for name in taken),
        "a linear probe": "linear probe" in taken,
    }
    *others, last = [name for name, there in made.items() if there] or [""]
    return f"{', '.join(others)} and {last}" if others else last


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def in_words(finding: Mapping[str, Any], verdict: Mapping[str, Any]) -> Measured:
    name, oracle = finding["name"], verdict["with_oracle"]
    unit, bounds, shown = scale_of(name, oracle)
    low, high = (None if v is None else min(max(v, bounds[0]), bounds[1]) for v in (finding["low"], finding["high"]))
    than = "an oracle" if oracle else "before" if finding["rest"] else "if never seen"
    told = {
        "remembers": "remembers",
        "over-forgotten": f"worse than {than}",
        "missing": "missing",
    }
    return Measured(
        name=name,
        unit=unit,
        value=shown(finding["value"]),
        before=shown(finding["before"]),
        expected=DASH if low is None or high is None else f"{shown(low)} to {shown(high)}",
        says=told.get(finding["says"], finding["says"]),
        remark=remark(finding, verdict["findings"]),
        accuses=finding["says"] in ("remembers", "over-forgotten"),
    )


UNITS = {"ToW": "1 is as an oracle does", "prediction divergence": "nats"}


def nearness(row: Row, before: Row) -> list[Near]:
    """How near the model is to the oracles; nothing where there were none."""
    then = before.get("closeness") or {}
    return [
        Near(
            name=f"{name} ({UNITS[name]})" if name in UNITS else name,
            value=number(figure["to_oracles"], ".3g"),
            before=number((then.get(name) or {}).get("to_oracles"), ".3g"),
            oracles=number(figure["between_oracles"], ".3g"),
            ratio=number(figure["ratio"], ".2f"),
        )
        for name, figure in (row.get("closeness") or {}).items()
    ]


def remark(finding: Mapping[str, Any], findings: Sequence[Mapping[str, Any]]) -> str:
    """Why a value outside its interval accuses nobody; else nothing."""
    value, low, high = finding["value"], finding["low"], finding["high"]
    if finding["says"] != "as if never seen" or None in (value, low, high) or low <= value <= high:
        return ""
    for end in ("p_remembers", "p_over"):
        if finding[end] is not None and finding[end] <= LEVEL:
            return f"outside, as one of {sum(f[end] is not None for f in findings)} measures may be by chance"
    return "outside, at the end that does not count"


def scale_of(name: str, with_oracle: bool) -> tuple[str, tuple[float, float], Callable[[float | None], str]]:
    """(unit, least and most possible, how it is written) of a measure; without oracle it is a difference."""
    if name.startswith("membership"):
        if with_oracle:
            return "area", (0.0, 1.0), lambda value: number(value, ".3f")
        return "area above 0.5", (-0.5, 0.5), lambda value: number(value, "+.3f")
    if name.startswith("loss"):
        if with_oracle and not name.startswith("loss spared"):  # which is a difference in any case
            return "nats", (0.0, math.inf), lambda value: number(value, ".3g")
        return "nats", (-math.inf, math.inf), lambda value: number(value, "+.3g")
    if with_oracle:
        return "", (0.0, 100.0), percent
    return "points", (-100.0, 100.0), lambda value: number(value, "+.1f")


def number(value: float | None, form: str) -> str:
    return DASH if value is None else format(value, form).replace("-", "\N{MINUS SIGN}")


def models_of(pictures: Mapping[str, Any], name: str) -> tuple[Any, Any, list[Any]]:
    """One picture of the model after, of the one before, and of the oracles that have it."""
    after, before = ((pictures.get(who) or {}).get(name) for who in ("subject", "before"))
    return after, before, [oracle[name] for oracle in pictures.get("oracles") or () if oracle.get(name)]


def mean(curves: Sequence[Curve]) -> list[float]:
    return [sum(values) / len(curves) for values in zip(*curves, strict=True)]


def shares(counts: Curve) -> list[float]:
    return [100.0 * count / (sum(counts) or 1.0) for count in counts]


MARGINS = ("margin/target", "margin/outside")


def shown_bins(records: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """The bins that hold anything of any model, and one on each side: one range for all, so that plots compare."""
    used: set[int] = set()
    bins = 0
    for record in records:
        for side in MARGINS:
            after, before, oracles = models_of(record["pictures"], side)
            for counts in filter(None, (after, before, *oracles)):
                bins = len(counts)
                used |= {place for place, count in enumerate(counts) if count}
    return (max(0, min(used) - 1), min(bins, max(used) + 2)) if used else (0, bins)


def draw_margins(pictures: Mapping[str, Any], shown: tuple[int, int], name: str) -> Chart | str:
    """How the margin is distributed over the target, and below it over held-out samples of the same kind."""
    sides = [models_of(pictures, side) for side in MARGINS]
    if not all(after for after, _, _ in sides):
        return "No distribution of margins: there were too few samples of the target or of its kind to attack."
    figure, stacked = blank_figure(WIDTH, [1.15, 1.15])
    bins = len(sides[0][0])
    edges = [RANGE[0] + (RANGE[1] - RANGE[0]) * place / bins for place in range(bins + 1)]
    for axes, label, (after, before, oracles) in zip(stacked, ("target", "held-out"), sides, strict=True):
        axes.stairs(shares(after), edges, fill=True, color=AFTER, alpha=0.75)
        if before:
            axes.stairs(shares(before), edges, color=BEFORE, linewidth=1.6)
        if oracles:
            axes.stairs(mean([shares(counts) for counts in oracles]), edges, color=RETRAIN, linewidth=1.3)
        axes.set_ylabel(label)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.set_xlim(edges[shown[0]], edges[shown[1]])
    top = max(axes.get_ylim()[1] for axes in stacked)
    for axes in stacked:
        axes.set_ylim(0, top)
        axes.locator_params(axis="y", nbins=3)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    stacked[-1].set_xlabel("lead of the trained label, in logits")
    figure.align_ylabels()
    sides_told = [("target after", sides[0][0]), ("held-out after", sides[1][0]), ("target before", sides[0][1])]
    words = ", ".join(f"{who} {typical(counts, edges)}" for who, counts in sides_told)
    words = f"Margins, middle half of the samples: {words}."
    return Chart("Margins, target and held-out", words, inline_svg(figure, name), 72 * WIDTH)


def typical(counts: Curve | None, edges: Curve) -> str:
    """The bins between which the middle half of the samples lies, in words."""
    if not counts or not any(counts):
        return DASH
    total, seen, found = sum(counts), 0.0, []
    for place, count in enumerate(counts):
        for quarter in (0.25, 0.75):
            if seen < quarter * total <= seen + count:
                found.append(edges[place] if quarter < 0.5 else edges[place + 1])
        seen += count
    return f"{number(found[0], 'g')} to {number(found[-1], 'g')}"


ATTACKS = {"calibrated": "membership by calibrated margin", "loss": "membership by loss"}


def draw_roc(pictures: Mapping[str, Any], verdict: Mapping[str, Any], name: str) -> Chart | str:
    """The attack that knows most: how many of the target it finds for how many others that it wrongly calls members."""
    attack = next((attack for attack in ATTACKS if models_of(pictures, f"{attack}/roc")[0]), None)
    if attack is None:
        return "No ROC curve: no membership attack could be made."
    after, before, oracles = models_of(pictures, f"{attack}/roc")
    figure, (axes,) = blank_figure(WIDTH, [2.3])
    axes.plot([0, 1], [0, 1], color=GRID, linewidth=1.6, linestyle="--")
    for curve, colour in [(before, BEFORE), (mean(oracles) if oracles else None, RETRAIN), (after, AFTER)]:
        if curve:
            false = [place / (len(curve) - 1) for place in range(len(curve))]
            axes.plot(false, curve, color=colour, linewidth=1.7, clip_on=False)
    tidy(axes, 1, ["0", "0.5", "1"])
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_xlabel("others called members")
    axes.set_ylabel("target found")
    finding: Mapping[str, Any] = next((f for f in verdict["findings"] if f["name"] == ATTACKS[attack]), {})
    start = 0.0 if verdict["with_oracle"] else 0.5  # without oracle the finding is the area above guessing
    areas = [number(None if v is None else v + start, ".3f") for v in map(finding.get, ("value", "before", "expected"))]
    compared = f", oracles {areas[2]}" if oracles else ""
    words = f"ROC of the {attack} attack, area after {areas[0]}, before {areas[1]}{compared}; 0.5 is guessing."
    return Chart(f"Membership attack ({attack})", words, inline_svg(figure, name), 72 * WIDTH)


def draw_relearning(pictures: Mapping[str, Any], verdict: Mapping[str, Any], name: str) -> Chart | str:
    """How fast the models learn the target again, each oracle a line of its own."""
    after, before, oracles = models_of(pictures, "relearning")
    if not after:
        if not verdict["with_oracle"]:
            return "No relearning curve: it means nothing without an oracle's; the levels quick and full have both."
        return "No relearning curve: it could not be taken."
    figure, (axes,) = blank_figure(WIDTH, [2.3])
    drawn = [(before, BEFORE, 1.7), *((oracle, RETRAIN, 0.8) for oracle in oracles), (after, AFTER, 1.7)]
    for curve, colour, thickness in drawn:
        if curve:
            axes.plot(curve["steps"], curve["accuracy"], color=colour, linewidth=thickness, clip_on=False)
    axes.set_xlim(0, after["steps"][-1])
    tidy(axes, 100, ["0", "50", "100 %"])
    axes.set_xlabel("steps of training on the target")
    axes.set_ylabel("as trained")
    told = [("after", after), ("before", before), *((f"oracle {i}", oracle) for i, oracle in enumerate(oracles, 1))]
    words = ", ".join(f"{who} {way(curve['accuracy'])}" for who, curve in told if curve)
    return Chart("Learning the target again", f"Share as trained: {words}.", inline_svg(figure, name), 72 * WIDTH)


def draw_gaps(gaps: Sequence[Mapping[str, float] | None], classes: Sequence[str], name: str) -> Chart | str:
    """The model's test accuracy on every class less the oracles' mean, with its interval."""
    known = [(place, gap) for place, gap in enumerate(gaps) if gap is not None]
    if not known:
        return "No gaps of single classes: there is no test sample, or there are fewer than two oracles."
    short = [text if len(text) <= 10 else text[:9] + "…" for text in classes]
    width = max(WIDTH, 0.3 * len(short))
    figure, (axes,) = blank_figure(width, [2.3])
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.axhline(0, color=RETRAIN, linewidth=1.3)
    for place, gap in known:
        axes.plot([place, place], [gap["low"], gap["high"]], color=AFTER, linewidth=1.7)
        axes.plot(place, gap["gap"], color=AFTER, marker="o", markersize=5)
    slant: dict[str, Any] = {"rotation": 40, "ha": "right"} if max(map(len, short)) > 3 else {}
    axes.set_xticks(range(len(short)), short, parse_math=False, **slant)
    axes.set_xlim(-0.6, len(short) - 0.4)
    axes.set_xlabel("class")
    axes.set_ylabel("points above the oracles")
    beyond = [(classes[place], gap["gap"]) for place, gap in known if gap["low"] > 0 or gap["high"] < 0]
    outside = [f"{label} {number(gap, '+.1f')}" for label, gap in beyond]
    told = f"{', '.join(outside)} beyond their intervals" if outside else "0 lies in every interval"
    words = f"Test accuracy of each class less the oracles’ mean, in points: {told}."
    return Chart("Class by class, beside the oracles", words, inline_svg(figure, name), 72 * width)


def way(accuracy: Curve) -> str:
    return f"from {percent(accuracy[0])} over {percent(accuracy[len(accuracy) // 2])} to {percent(accuracy[-1])}"


def tidy(axes: Axes, top: float, ticks: Sequence[str]) -> None:
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_ylim(0, top)
    axes.set_yticks([0, top / 2, top], list(ticks))
