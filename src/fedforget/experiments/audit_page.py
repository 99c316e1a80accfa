"""docs/results/audit.md: the verdicts on every method, over all data sets that were audited, on one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedforget.data.files import write_text
from fedforget.experiments.audited import AUDIT
from fedforget.experiments.engine import Row
from fedforget.experiments.pages import command, provenance_of, rows_in
from fedforget.experiments.summaries import by_setting, method_name
from fedforget.experiments.tables import DASH, Entry, Table

INTRODUCTION = """\
Every model is judged against three oracles: could it be one more model that never saw the target? Two whose truth
is known stand among them: `before`, which remembers, and `retrain`, a fresh oracle that is none of the three. What a
verdict means is in docs/decisions/audit.md; how often it is right, in [calibration.md](calibration.md); the per-example
attack with many shadow models, in [ulira-mnist.md](ulira-mnist.md)."""
WORST = 3
"""So many of the measures that accuse are named."""


def render_audit(folder: Path) -> Path | None:
    """Write the page from the folder's audit-*.jsonl; None where there are none."""
    cells = rows_in(folder, AUDIT)
    if not cells:
        return None
    parts = ["# Verdicts on every method", INTRODUCTION]
    for name, rows in cells.items():
        where = f"All measures: [audit-{name}.md](audit-{name}.md)."
        parts += [f"## {name}", f"{command(AUDIT, rows)} {provenance_of(rows)} {where}"]
        parts += [verdicts(target, own).to_markdown() for target, own in by_setting(rows).items()]
    notes = folder / "audit.notes.md"
    parts += [notes.read_text().strip()] if notes.exists() else []
    page = folder / "audit.md"
    write_text(page, "\n\n".join(parts) + "\n")
    return page


def verdicts(target: str, rows: Sequence[Row]) -> Table:
    """A line for each model: the two verdicts, and the measures that accuse it, beside where an oracle would lie."""
    body: list[list[str | Entry]] = []
    for row in rows:
        verdict, alone = row.get("verdict") or {}, row.get("alone") or {}
        figures = [Entry.of([row[column]]) for column in ("bd_acc", "test_acc")]
        words = [v.get("word", "no model") for v in (verdict, alone)]
        body.append([method_name(row), *words, *figures, accusations(verdict)])
    columns = ("model", "against three oracles", "without oracle", "BD Acc", "Test Acc", "what told")
    return Table(f"Target: {target}", columns, body)


def accusations(verdict: dict[str, object]) -> str:
    """`comes back 66.1 (oracles -0.8 to 3.1)`, the clearest first."""
    findings = verdict.get("findings") or ()
    assert isinstance(findings, Sequence)
    told = [f for f in findings if f["says"] in ("remembers", "over-forgotten")]
    told.sort(key=lambda f: f["p_remembers"] if f["says"] == "remembers" else f["p_over"])
    shown = [f"{f['name']} {f['value']:.3g} (oracles {f['low']:.3g} to {f['high']:.3g})" for f in told[:WORST]]
    more = [f"{len(told) - WORST} more"] if len(told) > WORST else []
    return "; ".join([*shown, *more]) or DASH
