"""docs/performance.md and its plots, from the results of every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedforget.data.files import write_text
from fedforget.experiments.benchmarks.lines import summary
from fedforget.experiments.benchmarks.results import Results, read_results

HEAD = """# Performance

Ratios taken in one run: each figure is a median over repetitions in turns with what it is compared with. Rendered by
`python -m fedforget.experiments.benchmarks render` from {files};
`make bench` measures the CPU's again and renders this page.
Nothing here is a test, and nothing in the tests depends on it.
"""
AXES = {"clients": "clients", "parameters": "parameters", "rows": "rows s of the sketch", "target": "target samples"}


def render(files: Sequence[Path], page: Path) -> list[Path]:
    """Write the page and the plots beside it; the paths of what was written. A file PAGE.notes.md beside it is appended
    as it is."""
    sections, written = [HEAD.format(files=", ".join(f"`{file}`" for file in files))], [page]
    for file in files:
        results = read_results(file)
        device = next(iter(results.values()))["run"]["device"]
        plots = draw(results, page.with_name(f"performance-{device}"))
        written += plots
        sections += [f"## {'GPU' if device == 'cuda' else 'CPU'}", _circumstances(results)]
        sections += [table.to_markdown() for table in summary(results)]
        sections += [f"![How a request grows]({plot.name})" for plot in plots if plot.suffix == ".png"]
    notes = page.with_suffix(".notes.md")
    if notes.exists():
        sections.append(notes.read_text())
    write_text(page, "\n\n".join(section.strip() for section in sections) + "\n")
    return written


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


def draw(results: Results, stem: Path) -> list[Path]:
    """Seconds and peak memory of a request along each axis that was measured."""
    from fedforget.experiments.drawing import BLUE, RED, save

    axes = [name for name in AXES if name in results]
    if not axes:
        return []
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(axes), 5.2), dpi=100, layout="constrained")
    panels = figure.subplots(2, len(axes), squeeze=False)
    for column, name in enumerate(axes):
        points = results[name]["points"]
        across = [point[name] for point in points]
        for row, (label, colour, values) in enumerate((
            ("seconds of a request", BLUE, [point["request"] for point in points]),
            ("peak MB", RED, [max(point["peak_bytes"], 1e4) / 1e6 for point in points]),
        )):  # fmt: skip
            panel = panels[row][column]
            panel.loglog(across, values, marker="o", color=colour)
            panel.set_xlabel(AXES[name])
            panel.set_ylabel(label)
            panel.grid(True, which="major", alpha=0.3)
    return save(figure, stem)
