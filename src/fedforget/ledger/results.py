"""What a worker hands over, and the gate that it must pass to be published without an officer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedforget.audit.evidence import read_evidence
from fedforget.audit.examine import LATER
from fedforget.audit.verdict import GONE
from fedforget.data.files import sha256_of_file
from fedforget.errors import InputError
from fedforget.ledger.chain import sha256_of
from fedforget.ledger.statements import canonical_bytes
from fedforget.runs.record import Result

ROUNDING = 1e-9
"""In points: sums of differences are off by less, and no limit is meant so finely."""


@dataclass(frozen=True)
class Handover:
    """A model that forgot and what was measured of it, as a worker hands them over."""

    result: Result
    """Its model is in the ledger's store."""
    evidence: Path
    """The evidence file, whose subject is the model."""
    accuracy_before: float | None
    accuracy_after: float | None
    """Retained accuracy in percent, None where it could not be measured."""
    report: Path | None = None
    """An HTML file."""
    remains: tuple[tuple[str, str], ...] = ()
    """(kind, path under the home) of files that hold what the version before holds: destroyed with it."""


@dataclass(frozen=True)
class CheckedResult:
    """A result that is whole, with the texts of its files."""

    model: str
    values: dict[str, Any]
    """The columns of a version that come from a result."""
    level: str
    verdict: dict[str, Any]
    """The evidence's, with what it found of a feature's sensitivity, for how many rounds of further training it looked
    ahead, and its notes, which say where it is not about all that was asked; the rest stays in the evidence."""
    remains: Sequence[Sequence[str]]
    """(kind, path, SHA-256)."""
    documents: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By SHA-256: (kind, text). Empty where they are in the ledger already."""
    rungs: Sequence[dict[str, Any]] = ()
    """What was tried, as `rung_told` gives it, where the ladder was climbed."""
    retrain: dict[str, float] = field(default_factory=dict)
    """What Retrain was forecast to cost, where the ladder was climbed."""

    def to_json(self) -> dict[str, Any]:
        """What is kept of one that is held: `CheckedResult(**values)` is it again, and so is one of before the ladder,
        which had no rungs."""
        return {name: value for name, value in vars(self).items() if name != "documents"}

    def reason_to_hold(self, accuracy_limit: float, lost: float | None, bounded: str | None = None) -> str | None:
        """Why an officer must decide; None: it may be published. What was not measured does not pass. `lost`: by how
        many points retained accuracy fell before, from the federation's first version on; None: nobody knows.
        `bounded`: why the climb was not to go up to Retrain, if it was not."""
        audit = f"The audit says: {self.verdict['word']}."
        if self.rungs and (last := self.rungs[-1])["word"] not in GONE:
            # Where nothing could be shown it would have ended there anyway.
            why = f" {bounded}" if bounded is not None and last["word"] != "not enough evidence" else ""
            return f"The ladder ended at {rung_sentence(last)} {audit}{why}"
        if self.verdict["word"] not in GONE:
            return audit
        now = fall(self.values["accuracy_before"], self.values["accuracy_after"])
        if now is None:
            return "The retained accuracy could not be measured."
        if lost is None:
            return "The retained accuracy of an earlier version was not measured, so its whole fall is not known."
        if lost + now > accuracy_limit + ROUNDING:
            points = f"{lost + now:.2f} points"
            return f"The retained accuracy is {points} below the first version's; the limit is {accuracy_limit:g}."
        return None


def rung_told(rung: Mapping[str, Any]) -> dict[str, Any]:
    """What is written down of a rung, from what `Rung.to_json` gives: all but its notes, which are in the evidence. Of
    its check, what was measured: the word and the reason are the rung's."""
    told = {name: rung[name] for name in ("name", "forecast", "word", "reason", "model", "cost")}
    check = rung["check"]
    if check is not None:
        told["check"] = {name: check[name] for name in ("sees", "measured", "accuracy", "known") if name in check}
    return told


def rung_sentence(rung: Mapping[str, Any]) -> str:
    return f"{rung['name']}: {rung['word']}. {rung['reason']}"


def fall(before: float | None, after: float | None) -> float | None:
    """By how many points a retained accuracy fell, on the same data; None where it was not measured."""
    return None if before is None or after is None else before - after


def check_result(handed: Handover, home: Path) -> CheckedResult:
    """Read what was handed over: the evidence is whole, its verdict follows, and it speaks of this very model."""
    result = handed.result
    record = read_evidence(handed.evidence)
    try:
        about = record["models"]["subject"]["sha256"]
    except (KeyError, TypeError):
        about = None
    if about != result.sha256:
        raise InputError(f"{handed.evidence} speaks of another model than the one to publish.")
    evidence = handed.evidence.read_text()
    report = None if handed.report is None else handed.report.read_text()
    documents = {sha256_of(evidence): ("evidence", evidence)}
    if report is not None:
        documents[sha256_of(report)] = ("report", report)
    values = {
        "method": result.method, "preset": result.preset, "settings": dict(result.settings),
        "verdict": record["verdict"]["word"], "accuracy_before": _finite(handed.accuracy_before),
        "accuracy_after": _finite(handed.accuracy_after), "cost": result.cost.to_json(),
        "evidence": sha256_of(evidence),
        "report": None if report is None else sha256_of(report),
    }  # fmt: skip
    try:
        rungs = [rung_told(rung.to_json()) for rung in result.rungs]
        canonical_bytes([values, rungs, dict(result.retrain)])
    except (InputError, TypeError, ValueError):
        raise InputError("The result's settings and cost must be plain finite values, to be written down.") from None
    verdict = {name: record["verdict"][name] for name in ("word", "with_oracle", "oracles", "reasons")}
    heard = {
        finding["name"]: {name: finding[name] for name in ("before", "value", "expected")}
        for finding in record["verdict"]["findings"]
        if finding["name"].startswith("sensitivity") and finding["value"] is not None
    }
    verdict |= {"sensitivity": heard} if heard else {}
    verdict |= {"notes": record["notes"]} if record["notes"] else {}
    lasting = [reading for reading in record["readings"] if reading["name"].endswith("comes back")]
    looked = any(reading["subject"] is not None for reading in lasting)
    verdict["further_rounds"] = LATER.get(record["level"], (0,))[-1] if looked else 0
    remains = [(kind, path, _hash_of_file(home, path)) for kind, path in handed.remains]
    return CheckedResult(
        result.sha256, values, record["level"], verdict, remains, documents, rungs, dict(result.retrain)
    )


def _finite(value: float | None) -> float | None:
    """A number that is none was not measured."""
    return value if value is not None and math.isfinite(value) else None


def _hash_of_file(home: Path, path: str) -> str:
    place = (home / path).resolve()
    if not place.is_relative_to(home.resolve()) or not place.is_file():
        raise InputError(f"{path} is no file under the ledger's home, so the ledger cannot destroy it later.")
    return sha256_of_file(place)
