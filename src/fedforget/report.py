"""The audit as one self-contained page: what was asked, what each method did against Retrain, and what it cost.

The words are in templates/report.html.j2; here are the comparison behind them, the charts and the pictures. The page
loads nothing, runs no script, and shows public test images only, never a client's data."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedforget.audit.verdict import LEVEL, compared_with
from fedforget.data.backdoor import Backdoor
from fedforget.data.samples import Dataset
from fedforget.methods.fedaf.settings import EFFORTS

if TYPE_CHECKING:  # loaded only when a report is written: a machine without them still imports the pipeline
    from jinja2 import Template
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]

DASH = "–"
NAMES = {
    "before": "Before forgetting", "retrain": "Retrain", "fedaf": "FedAF", "fedaf-c": "FedAF-C",
    "fedosd": "FedOSD", "federaser": "FedEraser", "fedquit": "FedQuit", "frr": "FRR", "sga": "SGA", "cdp": "CDP",
    "pgd": "PGD", "not": "NoT",
}  # fmt: skip
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


def write_report(path: Path, audit: dict[str, Any], dataset: Dataset, backdoor: Backdoor | None) -> None:
    """Write `audit` as one HTML file. The same audit gives the same bytes."""
    from fedforget.report_evidence import TONES, judged_methods, mounted, sentence
    from fedforget.runs import write_text

    comparison = Comparison(audit)
    methods = [row for row in audit["rows"] if row["method"] not in ("before", "retrain")]
    measured = [row for row in methods if row.get("per_class")]
    curved = [row for row in methods if (row.get("curves") or {}).get("target_hits")]
    page = page_template().render(
        audit=audit,
        run=audit.get("run") or {},
        against=comparison,
        measured=measured,
        bars=[draw_class_bars(comparison, row, f"bars{place}") for place, row in enumerate(measured)],
        curves=[draw_curves(row, f"curve{place}") for place, row in enumerate(curved)],
        times=draw_seconds(audit["rows"]),
        stages=[(stage, stage_colour(stage)) for stage in used_stages(audit["rows"])],
        pictures=sample_pictures(audit, dataset, backdoor),
        row_name=row_name,
        bought=bought,
        ratio=ratio,
        stage_colour=stage_colour,
        names=NAMES,
        judged=judged_methods(path.parent, audit["rows"], audit["classes"]),
        tones=TONES,
        level=LEVEL,
        mounted=mounted,
        compared_with=compared_with,
        sentence=sentence,
    )
    write_text(path, page)


@cache
def page_template() -> Template:
    """The template; a process that writes many reports compiles it once."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(loader=PackageLoader("fedforget"), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    formats = (points, percent, loss, amount, seconds, human_bytes, sensed)
    environment.filters |= {function.__name__: function for function in formats}
    return environment.get_template("report.html.j2")


class Comparison:
    """Where the methods stand between the model before forgetting and Retrain."""

    def __init__(self, audit: dict[str, Any]) -> None:
        def first(method: str, preset: str | None) -> Row:
            return next((row for row in rows if (row["method"], row["preset"]) == (method, preset)), {})

        rows: list[Row] = audit["rows"]
        self.count: int = audit["target_samples"]
        self.classes: list[str] = audit["classes"]
        self.before, self.retrain = first("before", None), first("retrain", "default")
        others = [row for row in rows if row not in (self.before, self.retrain)]
        efforts = (first("fedaf", preset) for preset, _ in EFFORTS.values())
        self.default: Row | None = next(filter(None, efforts), others[0] if others else None)
        """The row the summary is about: the default method, or the first there is."""
        self.some_came_back = any(map(self.came_back, rows))

    def tolerance(self, share: float) -> float:
        """Points that so few samples cannot tell apart: one point, one sample, or two standard errors of `share`."""
        count = max(1, self.count)
        return max(1.0, 100.0 / count, 2.0 * math.sqrt(share * (100.0 - share) / count)) + 1e-9

    @staticmethod
    def later(row: Row) -> float | None:
        """BD Acc on R after one further round."""
        return (row.get("after_one_round") or {}).get("bd_acc")

    def came_back(self, row: Row) -> bool:
        """The share rose in the further round, and to more than Retrain's."""
        now, later, goal = row.get("bd_acc"), self.later(row), self.later(self.retrain)
        if now is None or later is None or later <= now:
            return False
        return goal is None or later > goal + self.tolerance(goal)

    def standing(self, row: Row) -> str:
        """In one word; the template has the sentence for each."""
        now, start, goal = (r.get("bd_acc") for r in (row, self.before, self.retrain))
        if now is None or start is None or goal is None:
            return "alone" if "test_acc" in row else "stopped"
        slack = self.tolerance(goal)
        if now > goal + slack:
            return "kept" if now - goal > (start - goal) / 2 else "part"
        if now < goal - slack:
            return "beyond"
        if start <= goal + slack:
            return "unclear"
        return "back" if self.came_back(row) else "forgot"


def bought(row: Row) -> str | None:
    """What the effort that FedAF was run with buys."""
    words = {preset: (effort, buys) for effort, (preset, buys) in EFFORTS.items()}
    if row["method"] != "fedaf" or row["preset"] not in words:
        return None
    effort, buys = words[row["preset"]]
    return f"Effort “{effort}”: {buys}."


def row_name(row: Row) -> str:
    name = NAMES.get(row["method"]) or str(row["method"])
    return name if row["preset"] in (None, "default") else f"{name} ({row['preset']})"


def points(value: float | None, unit: str = "") -> str:
    """A percentage without its sign; a dash where nothing was measured, never a zero."""
    return DASH if value is None or math.isnan(value) else f"{value:.1f}{unit}"


def percent(value: float | None) -> str:
    return points(value, "\N{NO-BREAK SPACE}%")


def loss(value: float | None) -> str:
    return DASH if value is None or math.isnan(value) else "∞" if math.isinf(value) else f"{value:.3g}"


def sensed(value: float | None) -> str:
    """A sensitivity."""
    return DASH if value is None or math.isnan(value) else f"{value:.4f}"


def amount(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    if value is None:
        return DASH
    if value >= 600:
        return f"{value / 60:.0f} min"
    return f"{value:.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 1 else f"{value:.2f} s"


def human_bytes(value: float | None) -> str:
    if value is None:
        return DASH
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} TB"


def ratio(value: float | None, to: float | None) -> str:
    """A cost as a share of Retrain's, rounded against the method: 1/38, or 2.3 times."""
    if not value or not to or value < 0:
        return DASH
    if value > 0.95 * to:
        return f"{math.ceil(10 * value / to - 1e-9) / 10:.1f} times"
    return f"1/{math.floor(to / value)}" if to >= 10 * value else f"1/{math.floor(10 * to / value) / 10:g}"


@dataclass(frozen=True)
class Chart:
    """A drawing with its caption and, for those who cannot see it, its content in words."""

    caption: str
    description: str
    svg: Markup
    width: float = 72 * WIDTH


def blank_figure(width: float, heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """A figure `width` inches wide with axes below one another, each so high: quiet frames, text in the page's ink."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    stacked = list(figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=list(heights))[:, 0])
    for axes in stacked:
        axes.tick_params(colors=INK, length=0, labelsize=9)
        axes.locator_params(nbins=6)
        axes.xaxis.label.set_color(INK)
        axes.yaxis.label.set_color(INK)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(GRID)
    return figure, stacked


def inline_svg(figure: Figure, name: str) -> Markup:
    """The figure as an element of the page: no prolog, no metadata, ids of its own, colours from the style."""
    import matplotlib
    from markupsafe import Markup

    buffer = io.StringIO()
    tight: dict[str, Any] = {
        "transparent": True,
        "bbox_inches": "tight",
        "pad_inches": 0.03,
        "metadata": {"Date": None},
    }
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fedforget"}):
        figure.savefig(buffer, format="svg", **tight)
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
    classes = [text if len(text) <= 14 else text[:13] + "…" for text in against.classes]
    width = max(WIDTH, 0.3 * len(classes))
    figure, (axes,) = blank_figure(width, [1.9])
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    for offset, (colour, source) in enumerate([(BEFORE, against.before), (AFTER, row), (RETRAIN, against.retrain)]):
        for place, value in enumerate(source.get("per_class") or [None] * len(classes)):
            x = place + 0.27 * (offset - 1)
            if value is None:
                axes.text(x, 1, DASH, color=INK, ha="center", fontsize=9)
            else:
                axes.bar(x, value, width=0.25, color=colour)
    slant: dict[str, Any] = {"rotation": 40, "ha": "right"} if max(map(len, classes)) > 3 else {}
    axes.set_xticks(range(len(classes)), classes, parse_math=False, **slant)
    axes.set_xlim(-0.6, len(classes) - 0.4)
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
        axes.grid(axis="y", color=GRID, linewidth=0.6)
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


def used_stages(rows: Sequence[Row]) -> list[str]:
    """Stages that took time worth seeing, the known ones first."""
    spent = {s for row in rows for s, t in (row.get("seconds_by_stage") or {}).items() if t > 0.005 * row["seconds"]}
    return [stage for stage in STAGES if stage in spent] + sorted(spent - STAGES.keys())


def stage_colour(stage: str) -> str:
    return STAGES.get(stage, "#5f9ea8")


def draw_seconds(rows: Sequence[Row]) -> list[Chart]:
    """Seconds by stage, stacked: first beside Retrain, then the methods alone, since Retrain dwarfs them."""
    timed = [row for row in rows if row.get("seconds_by_stage")]
    methods = [row for row in timed if row["method"] != "retrain"]
    charts: list[Chart] = []
    for caption, chosen in [("Beside Retrain", timed), ("The methods alone, enlarged", methods)]:
        if not chosen or (charts and len(methods) == len(timed)):
            continue
        figure, (axes,) = blank_figure(WIDTH, [0.55 + 0.3 * len(chosen)])
        axes.grid(axis="x", color=GRID, linewidth=0.6)
        for place, row in enumerate(chosen):
            left = 0.0
            for stage in used_stages(rows):
                taken = max(0.0, row["seconds_by_stage"].get(stage, 0.0))
                axes.barh(place, taken, left=left, height=0.6, color=stage_colour(stage))
                left += taken
            beside: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(seconds(row["seconds"]), (left, place), color=INK, fontsize=9, **beside)
        axes.set_yticks(range(len(chosen)), [row_name(row) for row in chosen], parse_math=False)
        axes.invert_yaxis()
        axes.margins(x=0.18)
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds")
        words = ", ".join(f"{row_name(row)} {seconds(row['seconds'])}" for row in chosen)
        charts.append(Chart(caption, words, inline_svg(figure, f"time{len(charts)}")))
    return charts


def sample_pictures(audit: dict[str, Any], dataset: Dataset, backdoor: Backdoor | None) -> list[dict[str, str]]:
    """Eight public test images of the target's class (of any class, if it has none), with and without the trigger."""
    if len(dataset.shape) != 3 or dataset.shape[0] not in (1, 3):
        return []
    plain = dataset.test
    labels = [request["label"] for request in audit["requests"] if request["kind"] == "class"]
    if labels:
        plain = plain.select(torch.isin(plain.true_labels, torch.tensor(labels)))
    triggered = None
    if backdoor is not None and audit["backdoor"] is not None:  # the run may have planted it in another target
        triggered = backdoor.triggered_test(dataset.test)
        plain = dataset.test.select(torch.isin(dataset.test.ids, triggered.ids))
    pictures = []
    for place in range(min(8, len(plain))):
        true = dataset.classes[int(plain.true_labels[place])]
        pictures.append({"true": true, "plain": png_uri(plain.features, place)})
        if triggered is not None:
            pictures[-1]["triggered"] = png_uri(triggered.features, place)
    return pictures


def png_uri(images: torch.Tensor, place: int) -> str:
    """One of the images, pixel for pixel; floats are stretched over the range of all of them."""
    from PIL import Image

    pixels = images[place]
    if images.dtype != torch.uint8:
        low, high = float(images.min()), float(images.max())
        pixels = ((pixels - low) / max(high - low, 1e-12) * 255).round().to(torch.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).squeeze(2).contiguous().numpy()).save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
