"""Figures for the pages, as PNG and SVG: matplotlib without its global state, and the same bytes from the same rows.

matplotlib is imported where it is used: a machine without it makes no figures (see `pages.py`)."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedforget.data.files import write_bytes
from fedforget.experiments.pages import QUICK
from fedforget.experiments.tables import Entry

BLUE, RED, BLACK = "#1f4e9c", "#c0392b", "#222222"
OURS = ("overwrite", "rebuild")
"""Red among the blue."""


@dataclass(frozen=True)
class Panel:
    """One part of a figure: a box of figures at each place of the horizontal axis; None where there is none."""

    title: str
    groups: Mapping[float, Sequence[float | None]]
    across: str
    percent: bool = False
    """Whether the vertical axis goes from 0 to 100, so that panels can be compared."""


@dataclass(frozen=True)
class Bars:
    """One part of a figure: for each name on the horizontal axis a bar of each series, the paper's value across it."""

    title: str
    names: Sequence[str]
    series: Mapping[str, Sequence[Entry]]
    up: str
    logarithmic: bool = False

    @classmethod
    def of(
        cls, title: str, up: str, groups: Mapping[str, Sequence[Any]], column: str, values: Mapping[Any, str],
        figure: Callable[[Sequence[Any]], Entry],
    ) -> Bars:  # fmt: skip
        """A bar for each group of rows at each value of `column`; `values` are named on the horizontal axis."""
        series = {name: [figure([r for r in own if r[column] == v]) for v in values] for name, own in groups.items()}
        return cls(title, list(values.values()), series, up)


@dataclass(frozen=True)
class Points:
    """One panel of named points."""

    title: str
    points: Mapping[str, tuple[float, float]]
    across: str
    up: str


def new_figure(title: str, rows: Sequence[Mapping[str, Any]], width: float, height: float) -> Any:
    """An empty figure in inches; a quick run says so above it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
    lines = [title, *([QUICK] if any(row["quick"] for row in rows) else [])]
    figure.suptitle("\n".join(textwrap.fill(line, int(12 * width)) for line in lines), fontsize=10)
    return figure


def save(figure: Any, stem: Path) -> list[Path]:
    """The figure as stem.png and stem.svg; no date and no random names inside."""
    import matplotlib

    written = []
    for ending, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        buffer = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "fedforget", "svg.fonttype": "none"}):
            figure.savefig(buffer, format=ending, metadata=metadata)
        path = stem.with_name(f"{stem.name}.{ending}")
        write_bytes(path, buffer.getvalue())
        written.append(path)
    return written


def _name(axes: Any, title: str, up: str, across: str = "") -> None:
    axes.set_title(title, fontsize=8)
    axes.set_ylabel(up, fontsize=8)
    axes.set_xlabel(across, fontsize=8)


def box_plots(
    stem: Path, title: str, rows: Sequence[Mapping[str, Any]], panels: Sequence[Panel], columns: int
) -> list[Path]:
    """The paper's box plots: boxes in blue, averages in red, one panel beside the other."""
    lines = -(-len(panels) // columns)
    figure = new_figure(title, rows, 2.9 * columns, 0.6 + 2.3 * lines)
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(lines, columns, place)
        there = [[figure for figure in group if figure is not None] for group in panel.groups.values()]
        filled = {x: group for x, group in enumerate(there) if group}
        if filled:
            look = {"color": BLUE}
            axes.boxplot(
                list(filled.values()), positions=list(filled), widths=0.6, boxprops=look, whiskerprops=look,
                capprops=look, medianprops=look,
                flierprops={"marker": ".", "markersize": 4, "markeredgecolor": BLUE},
            )  # fmt: skip
            means = [sum(group) / len(group) for group in filled.values()]
            axes.plot(list(filled), means, color=RED, marker=".", linewidth=1)
        else:
            axes.text(0.5, 0.5, "no model", ha="center", va="center", transform=axes.transAxes, fontsize=8)
        axes.set_xticks(range(len(there)), [f"{value:g}" for value in panel.groups], fontsize=7)
        axes.set_xlim(-0.6, len(there) - 0.4)
        if panel.percent:
            axes.set_ylim(-3, 103)
        axes.tick_params(axis="y", labelsize=7)
        _name(axes, panel.title, "accuracy (%)", panel.across)
    return save(figure, stem)


def bar_charts(stem: Path, title: str, rows: Sequence[Mapping[str, Any]], panels: Sequence[Bars]) -> list[Path]:
    """Grouped bars with standard deviations, one panel above the other; a black line is the paper's mean. A lone
    series needs no legend: its names stand below it, aslant."""
    import matplotlib

    series = list(panels[0].series)
    colours = matplotlib.colormaps["tab20"]
    bar, alone = 0.8 / len(series), len(series) == 1
    places = max(len(panel.names) for panel in panels)
    width = max(6.5, min(14.0, 1.5 + (0.45 * places if alone else 0.13 * len(series) * places)))
    figure = new_figure(title, rows, width, 1.2 + (2.9 if alone else 2.3) * len(panels))
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(len(panels), 1, place)
        for index, name in enumerate(series):
            entries = panel.series[name]
            shown = [(x - 0.4 + (index + 0.5) * bar, entry) for x, entry in enumerate(entries)]
            ours = [(x, entry) for x, entry in shown if entry.mean is not None]
            axes.bar(
                [x for x, _ in ours], [entry.mean for _, entry in ours], 0.9 * bar,
                yerr=[entry.deviation or 0.0 for _, entry in ours], error_kw={"elinewidth": 0.6},
                color=colours(index % colours.N), label=name,
            )  # fmt: skip
            for x, entry in shown:
                if entry.paper is not None:
                    axes.plot([x - 0.5 * bar, x + 0.5 * bar], [entry.paper] * 2, color=BLACK, linewidth=1.2)
        if panel.logarithmic:
            axes.set_yscale("log")
        slant = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if alone else {}
        axes.set_xticks(range(len(panel.names)), panel.names, fontsize=7, **slant)
        axes.tick_params(axis="y", labelsize=7)
        _name(axes, panel.title, panel.up)
    if alone:
        return save(figure, stem)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=int(width / 1.6), fontsize=7)
    return save(figure, stem)


def scatter_plots(stem: Path, title: str, rows: Sequence[Mapping[str, Any]], panels: Sequence[Points]) -> list[Path]:
    """Named points, one panel beside the other; the horizontal axis is logarithmic, 0 is a line."""
    figure = new_figure(title, rows, max(5.0, 4.2 * len(panels)), 4.0)
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(1, len(panels), place)
        for name, (x, y) in panel.points.items():
            axes.plot([x], [y], marker="o", markersize=4, color=RED if name in OURS else BLUE)
            axes.annotate(name, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7)
        axes.axhline(0.0, color=BLACK, linewidth=0.6)
        axes.set_xscale("log")
        axes.margins(0.2)
        axes.tick_params(labelsize=7)
        _name(axes, panel.title, panel.up, panel.across)
    return save(figure, stem)


def word_grid(
    stem: Path, title: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str],
    columns: Mapping[str, Sequence[str]], colours: Mapping[str, str],
) -> list[Path]:  # fmt: skip
    """A field for each name and column, filled by its word's colour; the words stand in it."""
    figure = new_figure(title, rows, 2.2 + 1.9 * len(columns), 1.0 + 0.3 * len(names))
    axes = figure.add_subplot(1, 1, 1)
    for x, words in enumerate(columns.values()):
        for y, word in enumerate(words):
            axes.fill([x, x + 1, x + 1, x], [y, y, y + 1, y + 1], color=colours.get(word, "#dddddd"), linewidth=0)
            axes.text(x + 0.5, y + 0.5, word, ha="center", va="center", fontsize=7, color=BLACK)
    axes.set_xticks([x + 0.5 for x in range(len(columns))], list(columns), fontsize=8)
    axes.set_yticks([y + 0.5 for y in range(len(names))], list(names), fontsize=8)
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(names), 0)
    axes.tick_params(length=0)
    return save(figure, stem)
