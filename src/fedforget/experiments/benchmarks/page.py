"""What must hold, the tables of every part, and docs/performance.md, from every device's results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from fedforget.data.files import write_text
from fedforget.experiments.benchmarks.measuring import ratio
from fedforget.experiments.benchmarks.parts import AXES, Results, read_results
from fedforget.experiments.pages import notes_beside
from fedforget.experiments.tables import Table

MEGA = 1e6
HEAD = """# Performance

Ratios taken in one run: each figure is a median over repetitions in turns with what it is compared with. Rendered by
`python -m fedforget.experiments performance` from {files};
`make bench` measures the CPU's again and renders this page.
Nothing here is a test, and nothing in the tests depends on it.
"""


def summary(results: Results) -> list[Table]:
    """Every table there are results for; the lines first."""
    made = [lines(results)] + ([_request(results["request"])] if "request" in results else [])
    made += [_growth(name, results[name]) for name in AXES if name in results]
    return [table for table in made if table.rows]


def lines(results: Results) -> Table:
    """Each line, what was measured, and whether it is met. What was not measured is not met either: it is missing."""
    rows = [
        (text, _number(value), f"at {'least' if least else 'most'} {_number(limit)}",
         "yes" if (value >= limit if least else value <= limit) else "no")
        for text, value, limit, least in _found(results)
    ]  # fmt: skip
    quick = any(part["run"]["quick"] for part in results.values())
    notes = ("A quick run: its figures mean nothing.",) if quick else ()
    return Table("What must hold", ("line", "measured", "must be", "met"), rows, notes)


def _found(results: Results) -> Iterator[tuple[str, float, float, bool]]:
    """(line, value, limit, whether the value must be at least that)."""
    if part := results.get("request"):
        seconds, spent = part["seconds"], part["gradient_evaluations"]
        where = f"{part['dataset']}, {part['run']['device']}"
        if part["run"]["device"] == "cuda":
            yield f"{where}: seconds of a whole request, warm", median(seconds["request"]), 1.0, False
            yield f"{where}: gradient evaluations, Retrain / request", spent["retrain"] / spent["request"], 150.0, True
        else:
            yield f"{where}: Retrain / request", ratio(seconds["retrain"], seconds["request"]), 40.0, True
    points = {point["clients"]: point for point in results.get("clients", {}).get("points", ())}
    if 10 in points and 1000 in points:
        few, many = points[10], points[1000]
        yield "1,000 clients / 10 clients: request seconds", many["request"] / few["request"], 1.5, False
        yield "1,000 clients / 10 clients: peak memory", many["peak_bytes"] / max(1, few["peak_bytes"]), 1.2, False


def _request(part: Mapping[str, Any]) -> Table:
    seconds, evaluations = part["seconds"], part["gradient_evaluations"]
    rows = [
        (name, f"{median(times):.3f}", _number(ratio(seconds["retrain"], times)),
         _number(ratio(times, seconds["epoch"])), _count(evaluations.get(name, part["target"])))
        for name, times in seconds.items()
    ]  # fmt: skip
    stages = ", ".join(f"{name} {1000 * took:.0f}" for name, took in part["stages"]["request"].items() if took > 5e-4)
    note = (
        f"{part['dataset']}: {_count(part['parameters'])} parameters, {part['clients']} clients, "
        f"{_count(part['samples'])} samples, {part['rounds']} rounds; the target is {_count(part['target'])} samples. "
        f"A request's milliseconds by stage: {stages}."
    )
    title = "A whole request against other methods and one epoch over the target"
    columns = ("", "seconds", "Retrain / it", "it / epoch", "gradient evaluations")
    return Table(title, columns, rows, (note,))


def _growth(name: str, part: Mapping[str, Any]) -> Table:
    rows = [
        (_count(point[name]), f"{point['request']:.3f}", _number(point["over_epoch"]),
         _count(point["gradient_evaluations"]), f"{point['peak_bytes'] / MEGA:,.1f}",
         f"{point['stored_bytes'] / MEGA:,.1f}", f"{point['bytes'] / MEGA:,.2f}")
        for point in part["points"]
    ]  # fmt: skip
    columns = (name, "seconds", "it / epoch", "gradient evaluations", "peak MB", "stored MB", "sent MB")
    return Table(AXES[name].title, columns, rows)


def _number(value: float) -> str:
    """
    >>> _number(61.23), _number(1.234), _number(40.0)
    ('61.2', '1.23', '40')
    """
    text = f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".")


def _count(value: float) -> str:
    return f"{value:,.0f}"


def render(files: Sequence[Path], page: Path) -> None:
    """Write the page. A file PAGE.notes.md beside it is appended as it is."""
    sections = [HEAD.format(files=", ".join(f"`{file}`" for file in files))]
    for file in files:
        results = read_results(file)
        device = next(iter(results.values()))["run"]["device"]
        sections += [f"## {'GPU' if device == 'cuda' else 'CPU'}", _circumstances(results)]
        sections += [table.to_markdown() for table in summary(results)]
    sections += notes_beside(page)
    write_text(page, "\n\n".join(section.strip() for section in sections) + "\n")


def _circumstances(results: Results) -> str:
    """What was measured when and where; parts under the same circumstances in one sentence."""
    groups: dict[str, list[str]] = {}
    for name, part in results.items():
        run: Mapping[str, Any] = part["run"]
        load = "" if run["load_before"] is None else f", load {run['load_before']:.1f} before it began"
        what = (
            f"{run['date']}, commit {run['commit']}, {run['hardware']}, torch {run['torch']}, {run['threads']} "
            f"thread{'s' if run['threads'] != 1 else ''}, {run['repeats']} repetitions{load}"
        )
        groups.setdefault(what, []).append(name)
    return "\n".join(f"- {', '.join(names)}: {what}." for what, names in groups.items())
