"""The evidence's curves as plots, for the report: the model that forgot, the one before, and the oracles.

A curve that is not there gives a sentence that says so in place of its plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedforget.audit.membership import RANGE
from fedforget.report.charts import AFTER, BEFORE, GRID, RETRAIN, Chart, blank_figure, inline_svg
from fedforget.report.numbers import DASH, number, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Sequence[float]

WIDTH = 3.3  # inches: three stand side by side, and their letters stay readable


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
    first, last = np.searchsorted(np.cumsum(counts), [0.25 * sum(counts), 0.75 * sum(counts)])
    return f"{number(edges[first], 'g')} to {number(edges[last + 1], 'g')}"


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
    scale(axes, 1, ["0", "0.5", "1"])
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


def draw_return(pictures: Mapping[str, Any], name: str) -> Chart | str:
    """What the models know of the target after further rounds without it, each oracle a line of its own."""
    after, before, oracles = models_of(pictures, "comes back")
    if not after:
        return "No curve of further rounds: none could be run."
    figure, (axes,) = blank_figure(WIDTH, [2.3])
    drawn = [(before, BEFORE, 1.7), *((oracle, RETRAIN, 0.8) for oracle in oracles), (after, AFTER, 1.7)]
    for curve, colour, thickness in drawn:
        if curve:
            axes.plot(
                curve["rounds"], curve["bd_acc"], color=colour, linewidth=thickness, marker="o", markersize=3.5,
                clip_on=False,
            )  # fmt: skip
    rounds = after["rounds"]
    axes.set_xlim(0, rounds[-1])
    axes.set_xticks(rounds)
    axes.set_xlabel("further rounds without the target")
    axes.set_ylabel("as trained")
    scale(axes, 100, ["0", "50", "100 %"])
    told = [("after", after), ("before", before), *((f"oracle {i}", oracle) for i, oracle in enumerate(oracles, 1))]
    words = ", ".join(f"{who} {lasting(curve)}" for who, curve in told if curve)
    words = f"Share as trained, now and after {rounds[-1]} further round{'s' * (rounds[-1] > 1)}: {words}."
    return Chart("What comes back", words, inline_svg(figure, name), 72 * WIDTH)


def lasting(curve: Mapping[str, Any]) -> str:
    """`2.1 %, then 3.4 % (accuracy on it 4.0 points above unseen data, attack 0.53)`."""
    gap, auc = ((curve.get(figure) or [None])[-1] for figure in ("memory_gap", "auc"))
    beside = [] if gap is None else [f"accuracy on it {number(gap, '+.1f')} points beside unseen data"]
    beside += [] if auc is None else [f"attack by loss {auc:.3f}"]
    first, last = curve["bd_acc"][0], curve["bd_acc"][-1]
    return f"{percent(first)}, then {percent(last)}" + (f" ({', '.join(beside)})" if beside else "")


def draw_sensitivity(readings: Sequence[Mapping[str, Any]], name: str) -> Chart | str:
    """How much the models listen to the withdrawn feature, each oracle a mark of its own."""
    kinds = {"to the feature": "asking clients", "on unseen data": "unseen data", "comes back": "further rounds"}
    taken = {r["name"].removeprefix("sensitivity "): r for r in readings if r["subject"] is not None}
    shown = {label: taken[kind] for kind, label in kinds.items() if kind in taken}
    if not shown:
        return "No sensitivity to the feature: it could not be measured."
    figure, (axes,) = blank_figure(WIDTH, [2.3])
    told = []
    for place, (label, reading) in enumerate(shown.items()):
        oracles = [oracle["value"] for oracle in reading["oracles"]]
        for value in oracles:
            axes.plot([place - 0.2, place + 0.2], [value, value], color=RETRAIN, linewidth=1.3)
        for model, colour in ((reading["before"], BEFORE), (reading["subject"], AFTER)):
            if model is not None:
                axes.plot(place, model["value"], color=colour, marker="o", markersize=5)
        before = None if reading["before"] is None else reading["before"]["value"]
        mean_of_oracles = sum(oracles) / len(oracles) if oracles else None
        values = (before, reading["subject"]["value"], mean_of_oracles)
        told.append("{}: before {}, after {}, oracles {}".format(label, *(number(value, ".4f") for value in values)))
    axes.set_xticks(range(len(shown)), list(shown))
    axes.set_xlim(-0.6, len(shown) - 0.4)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("sensitivity")
    words = f"Sensitivity to the withdrawn feature: {'; '.join(told)}."
    return Chart("Sensitivity to the feature", words, inline_svg(figure, name), 72 * WIDTH)


def scale(axes: Axes, top: float, ticks: Sequence[str]) -> None:
    axes.set_ylim(0, top)
    axes.set_yticks([0, top / 2, top], list(ticks))
