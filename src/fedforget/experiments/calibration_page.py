"""docs/results/calibration.md, from its cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedforget.experiments.calibration import METHODS, SUBJECTS, WORLDS
from fedforget.experiments.cells import Cell, mean_and_deviation, read_cells

WORDS = ("forgotten", "not forgotten", "over-forgotten", "not enough evidence")


def render_calibration(cells_path: Path, page: Path) -> None:
    """Write the page."""
    cells = read_cells(cells_path)
    seen = sorted({(c["commit"], c["hardware"], c["threads"]) for c in cells})
    made = "; ".join(f"commit {commit}, {hardware}, {threads} threads" for commit, hardware, threads in seen)
    parts = [
        "# Is the audit right?",
        f"Rendered by `make results` from calibration.jsonl, which `python -m fedforget.experiments calibration` makes "
        f"({made}).",
        "Models of which the truth is known, judged with three oracles (level `quick`) and without any (`alone`). A "
        "number counts seeds. `untouched` remembers, `retrained` is a fresh oracle; the next three hide the memory; "
        "`ascent` climbed the target's loss too far. Below the line are methods, of which the audit is to find out.",
    ]
    for world in WORLDS:
        own = [cell for cell in cells if cell["world"] == world.name]
        if own:
            parts += [f"## {_title(world.name)}", _table(own), _agreement(own)]
    parts.append(_accusers(cells))
    page.write_text("\n\n".join(parts) + "\n")


def _title(world: str) -> str:
    return {
        "poisoned": "A backdoored class (digits: class 3 of client 0, 20 rounds)",
        "memorised": "Clean samples that are memorised (4 x 500 of MNIST, 40 rounds; half of client 0's)",
    }[world]


def _table(cells: Sequence[Cell]) -> str:
    lines = [
        f"| model | Test Acc | R as trained | {' | '.join(WORDS)} | alone: {' | alone: '.join(WORDS)} |",
        f"| --- |{' ---: |' * (2 + 2 * len(WORDS))}",
    ]
    for subject in (*SUBJECTS, *METHODS):
        own = [cell for cell in cells if cell["subject"] == subject]
        if not own:
            continue
        figures = [_figure([cell[name] for cell in own]) for name in ("test_acc", "bd_acc")]
        counts = [Counter(cell[level]["word"] for cell in own) for level in ("verdict", "alone")]
        shown = [str(count[word] or "") for count in counts for word in WORDS]
        lines.append(f"| {subject} | {' | '.join(figures + shown)} |")
    return "\n".join(lines)


def _figure(values: Sequence[float]) -> str:
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.1f} ± {deviation:.1f}"


def _agreement(cells: Sequence[Cell]) -> str:
    """How often the verdict without an oracle is the one with oracles."""
    decided = [c for c in cells if "not enough evidence" not in (c["verdict"]["word"], c["alone"]["word"])]
    same = sum(c["verdict"]["word"] == c["alone"]["word"] for c in decided)
    silent = sum(c["alone"]["word"] == "not enough evidence" for c in cells)
    return (
        f"Without an oracle the audit says `not enough evidence` of {silent} of {len(cells)} models. Where both levels "
        f"decide, they agree on {same} of {len(decided)}."
    )


def _accusers(cells: Sequence[Cell]) -> str:
    """Which measures accuse whom, with oracles."""
    lines = [
        "## Which measures tell",
        "",
        "Seeds in which a measure says `remembers` / `over-forgotten`, both worlds:",
        "",
    ]
    names = list(dict.fromkeys(f["name"] for c in cells for f in c["verdict"]["findings"]))
    lines += [f"| model | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    for subject in (*SUBJECTS, *METHODS):
        findings = [f for c in cells if c["subject"] == subject for f in c["verdict"]["findings"]]
        lines.append(f"| {subject} | {' | '.join(_told(findings, name) for name in names)} |")
    return "\n".join(lines)


def _told(findings: Sequence[dict[str, Any]], name: str) -> str:
    said = Counter(f["says"] for f in findings if f["name"] == name)
    return f"{said['remembers'] or '·'} / {said['over-forgotten'] or '·'}"
