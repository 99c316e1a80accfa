"""A request's evidence for its page: the verdict, what was measured before, after and of Retrain, and the plots.

The plots are the report's own. Our pages allow no inline style, so what the drawings say in style attributes is said in
plain attributes here. Drawing takes a while and evidence never changes: what was drawn is kept."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from fedforget.audit.evidence import SENSELESS
from fedforget.audit.examine import ACCURACY, BEYOND, WITHOUT
from fedforget.audit.verdict import compared_with
from fedforget.report.charts import Chart
from fedforget.report.evidence import Judged, judged
from fedforget.report.numbers import DASH
from fedforget.report.plots import shown_bins

KEPT = 64


@dataclass(frozen=True)
class Row:
    """One measure as a line from 0 to `most`: before, after, and each oracle (Retrain)."""

    name: str
    before: float | None
    after: float | None
    oracles: tuple[float, ...]
    most: float = 100.0
    percent: bool = True

    def place(self, value: float) -> float:
        """On a line of 400."""
        return round(400.0 * value / self.most, 1)

    def shown(self, value: float | None) -> str:
        return DASH if value is None else f"{value:.0f}" if self.percent else f"{value:.4f}"

    @property
    def words(self) -> str:
        """For those who cannot see the line."""
        told = [("before", self.before), ("after", self.after)]
        told += [("models that never saw it", sum(self.oracles) / len(self.oracles))] if self.oracles else []
        return ", ".join(
            f"{who} {value:.1f} %" if self.percent else f"{who} {value:.4f}" for who, value in told if value is not None
        )


@dataclass(frozen=True)
class EvidenceView:
    """What the page shows of an evidence file; `shown` is what the report shows of it."""

    word: str
    reasons: tuple[str, ...]
    compared: str
    level: str
    samples: int | None
    rows: tuple[Row, ...]
    shown: Judged
    charts: tuple[Chart, ...]


_kept: dict[str, EvidenceView] = {}
_drawing = threading.Lock()
"""Matplotlib's settings are the process's: one drawing at a time."""


def is_drawn(sha256: str) -> bool:
    """Whether the view of this evidence is at hand."""
    return sha256 in _kept


def evidence_view(sha256: str, text: str) -> EvidenceView | None:
    """The view of the evidence with this hash; None where what it holds makes no sense."""
    found = _kept.get(sha256)
    if found is not None:
        return found
    with _drawing:
        found = _kept.get(sha256)  # somebody else may have drawn it meanwhile
        if found is None:
            try:
                found = _view(json.loads(text), f"e{sha256[:8]}")
            except SENSELESS:
                return None
            _kept[sha256] = found
            if len(_kept) > KEPT:
                del _kept[next(iter(_kept))]
    return found


def _view(record: Mapping[str, Any], prefix: str) -> EvidenceView:
    verdict = record["verdict"]
    shown = judged({"verdict": verdict}, record, shown_bins([record]), prefix)
    charts = tuple(replace(chart, svg=without_styles(chart.svg)) for chart in shown.charts)
    return EvidenceView(
        verdict["word"], tuple(verdict["reasons"]), compared_with(verdict), record["level"],
        record["request"].get("samples"), tuple(_rows(record)), shown, charts,
    )  # fmt: skip


PERCENT = (  # relearning and the linear probe are of older evidence
    ACCURACY, BEYOND, "true class of the target", "comes back", "relearning", "linear probe",
    "unseen data of the same classes", "unseen data of all classes", WITHOUT,
)  # fmt: skip


def _rows(record: Mapping[str, Any]) -> list[Row]:
    """The measures that are percentages or sensitivities: without an oracle they are differences, or nothing, which
    have no such line."""
    if not record["verdict"]["with_oracle"]:
        return []
    found = []
    for reading in record["readings"]:
        percent = reading["name"] in PERCENT
        if not percent and not reading["name"].startswith("sensitivity"):
            continue
        before, after, *others = (
            None if one is None else min(max(float(one["value"]), 0.0), 100.0 if percent else math.inf)
            for one in (reading["before"], reading["subject"], *reading["oracles"])
        )
        oracles = tuple(value for value in others if value is not None)
        values = [value for value in (before, after, *oracles) if value is not None]
        most = 100.0 if percent else max(values, default=0.0) or 1.0
        found.append(Row(reading["name"], before, after, oracles, most, percent))
    return found


def without_styles(svg: str) -> Markup:
    """The same drawing with plain attributes in the place of style attributes.

    >>> str(without_styles('<path style="fill: none; stroke-width: 2"/>'))
    '<path fill="none" stroke-width="2"/>'
    """
    return Markup(re.sub(r' style="([^"]*)"', lambda found: _attributes(found[1]), svg))


def _attributes(style: str) -> str:
    said = {}
    for piece in style.split(";"):
        name, _, value = piece.partition(":")
        name, value = name.strip(), value.strip()
        if name == "font":  # a shorthand, which is no attribute: the size counts, the family is the page's
            size = re.search(r"([\d.]+)px", value)
            name, value = "font-size", size[1] if size else "9"
        if name and value and name != "font-family":
            said[name] = value
    return "".join(f' {name}="{value}"' for name, value in said.items())
