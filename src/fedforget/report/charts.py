"""The charts of the report, as elements of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fedforget.report.comparison import Comparison, Row, row_name
from fedforget.report.numbers import DASH, percent, seconds

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STAGES = {
    "training": "#3d7dc4", "sketch": "#d98a1f", "memory": "#c4568f", "forgetting": "#cf4f3a",
    "aggregation": "#7d6bc9", "recovery": "#2f9e77", "rebuilding": "#1f7a8c", "server": "#8a919c",
}  # fmt: skip
# Matplotlib draws in these colours; the page's style decides what they are by day, by night and on paper.
INK, GRID, BEFORE, AFTER, RETRAIN = "#000001", "#000002", "#000003", "#000004", "#000005"
WIDTH = 4.3  # inches of a chart: its letters stay readable at a phone's width
CSS = {
    INK: "currentColor", GRID: "var(--grid)", BEFORE: "var(--before)", AFTER: "var(--after)", RETRAIN: "var(--retrain)"
}  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """A drawing with its caption and, for those who cannot see it, its content in words."""

    caption: str
    description: str
    svg: Markup
    width: float = 72 * WIDTH


def blank_figure(width: float, heights: Sequence[float], grid: Literal["x", "y"] = "y") -> tuple[Figure, list[Axes]]:
    """A figure `width` inches wide, with axes of these heights below one another: quiet frames, a light grid, and text
    in the page's ink."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    stacked = list(figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=list(heights))[:, 0])
    for axes in stacked:
        axes.tick_params(colors=INK, length=0, labelsize=9)
        axes.locator_params(nbins=6)
        axes.xaxis.label.set_color(INK)
        axes.yaxis.label.set_color(INK)
        axes.set_axisbelow(True)
        axes.grid(axis=grid, color=GRID, linewidth=0.6)
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(GRID)
    return figure, stacked


def inline_svg(figure: Figure, name: str) -> Markup:
    """The figure as an element of the page: no prolog, no metadata, ids of its own, colours from the style."""
    import matplotlib
    from markupsafe import Markup

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fedforget"}):
        figure.savefig(
            buffer, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.03, metadata={"Date": None}
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    head, body = svg.split(">", 1)
    svg = re.sub(r' (xmlns(:xlink)?|version|width|height)="[^"]*"', "", head) + ">" + body
    svg = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for colour, css in CSS.items():
        svg = svg.replace(colour, css)
    return Markup(svg.strip())


def draw_class_bars(against: Comparison, row: Row, name: str) -> Chart:
    """Test accuracy of every class before, after this method, and of Retrain."""
    width = max(WIDTH, 0.3 * len(against.classes))
    figure, (axes,) = blank_figure(width, [1.9])
    for offset, (colour, source) in enumerate([(BEFORE, against.before), (AFTER, row), (RETRAIN, against.retrain)]):
        for place, value in enumerate(source.get("per_class") or [None] * len(against.classes)):
            x = place + 0.27 * (offset - 1)
            if value is None:
                axes.text(x, 1, DASH, color=INK, ha="center", fontsize=9)
            else:
                axes.bar(x, value, width=0.25, color=colour)
    short = [name if len(name) <= 14 else name[:13] + "…" for name in against.classes]
    slant: dict[str, Any] = {"rotation": 40, "ha": "right"} if max(map(len, short)) > 3 else {}
    axes.set_xticks(range(len(short)), short, parse_math=False, **slant)
    axes.set_xlim(-0.6, len(short) - 0.4)
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
    words = f"Test accuracy per class before forgetting, after {row_name(row)} and of Retrain; the table below has it."
    return Chart(row_name(row), words, inline_svg(figure, name), 72 * width)


def draw_curves(row: Row, name: str) -> Chart:
    """Loss on the target and on its new memory, and the share still recognised, while the method forgets.

    Each point was seen on a batch before its step; the diamond is the final model, after aggregation and recovery."""
    curves = row["curves"]
    hits = [100.0 * hit for hit in curves["target_hits"]]
    seen = [sum(curves["samples"][:step]) for step in range(len(hits) + 1)]
    figure, (losses, shares) = blank_figure(WIDTH, [1.5, 1.3])
    for axes, values, colour, final in [
        (losses, curves["memory_loss"], STAGES["memory"], None),
        (losses, curves["target_loss"], AFTER, row.get("target_loss")),
        (shares, hits, AFTER, row.get("bd_acc")),
    ]:
        marker = "o" if len(hits) < 40 else None
        axes.plot(seen[:-1], values, color=colour, marker=marker, markersize=3.5, linewidth=1.6, clip_on=False)
        if final is not None:
            axes.plot(seen[-2:], [values[-1], final], color=colour, linewidth=1, linestyle=":", clip_on=False)
            axes.plot(seen[-1], final, color=colour, marker="D", markersize=6, markerfacecolor="none", clip_on=False)
    if max(*curves["memory_loss"], *curves["target_loss"], row.get("target_loss") or 0.0) > 30:
        losses.set_yscale("symlog", linthresh=1)
    losses.set_ylim(bottom=0)
    losses.set_ylabel("mean loss")
    shares.set_ylim(0, 100)
    shares.set_yticks([0, 50, 100], ["0", "50", "100 %"])
    shares.set_ylabel("as trained")
    shares.set_xlabel("target samples processed")
    figure.align_ylabels()
    words = (
        f"{row_name(row)}, {len(hits)} steps: the share of the target still recognised as trained goes from "
        f"{percent(hits[0])} to {percent(hits[-1])}; the final model is at {percent(row.get('bd_acc'))}."
    )
    return Chart(row_name(row), words, inline_svg(figure, name))


def used_stages(rows: Sequence[Row]) -> dict[str, str]:
    """Stages that took time worth seeing, each with its colour; the known ones first."""
    spent = {s for row in rows for s, t in (row.get("seconds_by_stage") or {}).items() if t > 0.005 * row["seconds"]}
    known = {stage: colour for stage, colour in STAGES.items() if stage in spent}
    return known | dict.fromkeys(sorted(spent - STAGES.keys()), "#5f9ea8")


def draw_seconds(rows: Sequence[Row]) -> list[Chart]:
    """Seconds by stage, stacked: first beside Retrain, then the methods alone, since Retrain dwarfs them."""
    timed = [row for row in rows if row.get("seconds_by_stage")]
    methods = [row for row in timed if row["method"] != "retrain"]
    charts: list[Chart] = []
    for caption, chosen in [("Beside Retrain", timed), ("The methods alone, enlarged", methods)]:
        if not chosen or (charts and len(methods) == len(timed)):
            continue
        figure, (axes,) = blank_figure(WIDTH, [0.55 + 0.3 * len(chosen)], grid="x")
        for place, row in enumerate(chosen):
            left = 0.0
            for stage, colour in used_stages(rows).items():
                taken = max(0.0, row["seconds_by_stage"].get(stage, 0.0))
                axes.barh(place, taken, left=left, height=0.6, color=colour)
                left += taken
            axes.annotate(
                seconds(row["seconds"]), (left, place), xytext=(4, 0), textcoords="offset points", va="center",
                color=INK, fontsize=9,
            )  # fmt: skip
        axes.set_yticks(range(len(chosen)), [row_name(row) for row in chosen], parse_math=False)
        axes.invert_yaxis()
        axes.margins(x=0.18)
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds")
        words = ", ".join(f"{row_name(row)} {seconds(row['seconds'])}" for row in chosen)
        charts.append(Chart(caption, words, inline_svg(figure, f"time{len(charts)}")))
    return charts
