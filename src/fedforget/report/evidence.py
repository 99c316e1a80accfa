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
from typing import Any

from fedforget.audit.verdict import LEVEL
from fedforget.report.charts import Chart
from fedforget.report.comparison import Row
from fedforget.report.numbers import DASH, number, percent, sensed
from fedforget.report.plots import draw_margins, draw_return, draw_roc, draw_sensitivity, shown_bins

TONES = {
    "forgotten": "forgot", "exact": "forgot", "not forgotten": "kept", "over-forgotten": "beyond",
    "not enough evidence": "unclear",
}  # fmt: skip
NO_FILE = "No plot: the evidence file is not beside this report as the audit wrote it."


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
class Judged:
    """A method that has a verdict, with what the page shows of the evidence for it; `missing` says what it cannot."""

    row: Row
    findings: list[Measured]
    charts: list[Chart]
    missing: list[str]
    notes: list[str]

    @property
    def with_oracle(self) -> bool:
        return bool(self.row["verdict"]["oracles"])

    @property
    def command(self) -> str:
        """That checks the evidence, for a shell."""
        return shlex.join(["fedforget", "verify", self.row["evidence"]["file"]])


def judged_methods(folder: Path, rows: Sequence[Row]) -> list[Judged]:
    """Every method that has a verdict; `folder` is where the report is, and the evidence files' names start there."""
    found = [(row, read_record(folder, row)) for row in rows if row.get("verdict") and row["method"] != "before"]
    bins = shown_bins([record for _, record in found if record])
    return [judged(row, record, bins, f"evidence{place}") for place, (row, record) in enumerate(found)]


def judged(row: Row, record: Mapping[str, Any] | None, bins: tuple[int, int], prefix: str) -> Judged:
    verdict = row["verdict"]
    findings = [in_words(finding, verdict) for finding in verdict["findings"]]
    drawn: list[Chart | str] = [NO_FILE]
    if record is not None and any(finding["name"].startswith("sensitivity") for finding in verdict["findings"]):
        drawn = [draw_sensitivity(record["readings"], f"{prefix}sensitivity")]
    elif record is not None:
        pictures = record["pictures"]
        drawn = [
            draw_margins(pictures, bins, f"{prefix}margin"),
            draw_roc(pictures, verdict, f"{prefix}roc"),
            draw_return(pictures, f"{prefix}return"),
        ]
    charts = [chart for chart in drawn if isinstance(chart, Chart)]
    missing = [words for words in drawn if isinstance(words, str)]
    notes = [] if record is None else list(record.get("notes") or ())
    return Judged(row, findings, charts, missing, notes)


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


def mounted(methods: Sequence[Judged]) -> str:
    """The attacks that were made, in words; nothing if none was."""
    taken = {finding.name for method in methods for finding in method.findings if finding.value != DASH}
    made = {
        "membership attacks": any(name.startswith("membership") for name in taken),
        "values of the feature from other samples": any(name.startswith("sensitivity") for name in taken),
        "further rounds": any(name.endswith(("comes back", "one round later")) for name in taken),
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
    return Measured(
        name=name,
        unit=unit,
        value=shown(finding["value"]),
        before=shown(finding["before"]),
        expected=DASH if low is None or high is None else f"{shown(low)} to {shown(high)}",
        says=f"worse than {than}" if finding["says"] == "over-forgotten" else finding["says"],
        remark=remark(finding, verdict["findings"]),
        accuses=finding["says"] in ("remembers", "over-forgotten"),
    )


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
    if name.startswith("sensitivity"):
        return "", (0.0, math.inf), sensed
    absolute = with_oracle and not name.endswith(("beside unseen data", "below unseen data"))
    if name.startswith("membership"):
        unit, most, form = ("area", 1.0, ".3f") if absolute else ("area above 0.5", 0.5, "+.3f")
    elif name.startswith("loss"):
        unit, most, form = "nats", math.inf, ".3g" if absolute else "+.3g"
    elif absolute:
        return "", (0.0, 100.0), percent
    else:
        unit, most, form = "points", 100.0, "+.1f"
    return unit, (0.0 if absolute else -most, most), lambda value: number(value, form)
