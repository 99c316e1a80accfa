"""An experiment's pages, from its cells: Markdown, LaTeX, JSON, and figures where matplotlib is installed. Nothing on
them is typed by hand but the words around the numbers; a file NAME.notes.md beside the cells is appended as it is."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from fedforget.data.files import write_json, write_text
from fedforget.errors import InputError
from fedforget.experiments.cells import read_cells
from fedforget.experiments.configurations import find_configuration
from fedforget.experiments.engine import Experiment, Row, ordered_rows
from fedforget.experiments.tables import Table
from fedforget.methods import METHODS

QUICK = "quick: fewer classes, trials or samples"


def labelled_tables(experiment: Experiment, rows: Sequence[Row]) -> list[Table]:
    """The experiment's tables; a quick run says so in every title."""
    mark = f" ({QUICK})" if any(row["quick"] for row in rows) else ""
    return [replace(table, title=table.title + mark) for table in experiment.tables(rows)]


def write_pages(experiment: Experiment, cells_path: Path) -> list[Path]:
    """Everything that can be shown of a cell file, beside it; the files written."""
    if not experiment.has_pages:
        return write_overview(experiment, cells_path.parent)
    rows = ordered_rows(experiment, read_cells(cells_path))
    if not rows:
        return []
    stem = cells_path.with_name(experiment.name + cells_path.stem.removeprefix(experiment.cells))
    tables = labelled_tables(experiment, rows)
    draw = experiment.figures if importlib.util.find_spec("matplotlib") else None
    figures = draw(rows, stem) if draw else []
    page, latex, values = (stem.with_name(stem.name + ending) for ending in (".md", ".tex", ".json"))
    write_text(page, _markdown(experiment, rows, tables, figures, stem))
    write_text(latex, "\n\n".join(table.to_latex() for table in tables) + "\n")
    first = rows[0]
    write_json(
        values,
        {
            "experiment": experiment.name, "title": experiment.title, "label": experiment.label,
            "dataset": first["dataset"], "configuration": first["configuration"], "quick": first["quick"],
            "tables": [table.to_json() for table in tables],
        },
    )  # fmt: skip
    return [page, latex, values, *figures]


def render_folder(folder: Path, experiments: Sequence[Experiment]) -> list[Path]:
    """The pages of every cell file in `folder` that belongs to one of the experiments, and their overviews."""
    written: list[Path] = []
    for path in sorted(folder.glob("*.jsonl")):
        kinds = {cell.get("experiment") for cell in read_cells(path)}
        for experiment in experiments:
            if kinds == {experiment.cells} and experiment.has_pages:
                written += write_pages(experiment, path)
    for experiment in experiments:
        written += write_overview(experiment, folder)
    return written


def write_overview(experiment: Experiment, folder: Path) -> list[Path]:
    """The one page over an experiment's every cell file in the folder, with its notes; nothing where there are none."""
    cells = rows_in(folder, experiment)
    if experiment.overview is None or not cells:
        return []
    page = folder / f"{experiment.name}.md"
    write_text(page, "\n\n".join([*experiment.overview(cells, folder), *notes_beside(page)]) + "\n")
    return [page]


def write_block(page: Path, name: str, text: str) -> None:
    """Put `text` between the markers `<!-- name -->` and `<!-- /name -->` of a page that is written by hand."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, marker, rest = page.read_text().partition(start)
    _, marker_after, after = rest.partition(end)
    if not (marker and marker_after):
        raise InputError(f"{page} has no place for {name}; put {start} and {end} where it belongs.")
    write_text(page, f"{before}{start}\n{text}\n{end}{after}")


def notes_beside(page: Path) -> list[str]:
    """What somebody wrote down for a page, in NAME.notes.md."""
    path = page.with_suffix(".notes.md")
    return [path.read_text().strip()] if path.exists() else []


def rows_in(folder: Path, experiment: Experiment) -> dict[str, list[Row]]:
    """The rows of an experiment's every cell file in the folder, by data set (and configuration)."""
    return {
        path.stem.removeprefix(f"{experiment.name}-"): ordered_rows(experiment, read_cells(path))
        for path in sorted(folder.glob(f"{experiment.name}-*.jsonl"))
    }


def _markdown(
    experiment: Experiment, rows: Sequence[Row], tables: Sequence[Table], figures: Sequence[Path], stem: Path
) -> str:
    configuration = find_configuration(rows[0]["dataset"], rows[0]["configuration"])
    quick = f" ({QUICK})" if rows[0]["quick"] else ""
    reasons = [f"- {name}: {reason}." for name, reason in configuration.reasons.items()]
    images = [f"![{path.stem}]({path.name})" for path in figures if path.suffix == ".png"]
    where = f"The paper's `{experiment.label}`." if experiment.label else "Not in the paper."
    parts = [
        f"# {experiment.title}: {configuration.dataset}{quick}",
        f"{where} {command(experiment, rows)} {provenance_of(rows)}",
        experiment.federation or f"Configuration `{configuration.name}`: {configuration.describe()}",
        *(table.to_markdown() for table in tables),
        *images,
        *experiment.remarks(rows),
        *notes_beside(stem.with_name(stem.name + ".md")),
        *([] if experiment.federation else ["## What the paper leaves open", "\n".join(reasons)]),
    ]
    return "\n\n".join(parts) + "\n"


def command(experiment: Experiment, rows: Sequence[Row]) -> str:
    """The command that computes these rows; one for each run of seeds."""
    found = [f"`{_command(experiment, rows, first, last)}`" for first, last in _runs({row["seed"] for row in rows})]
    return f"Command: {', then '.join(found)}; the pages come from the cells by `make results`."


def _command(experiment: Experiment, every: Sequence[Row], first: int, last: int) -> str:
    rows = [row for row in every if first <= row["seed"] <= last]
    methods = dict.fromkeys(f"{row['method']}:{row['preset']}" for row in rows if row["method"] in METHODS)
    sequences = [row["class"] for row in rows if isinstance(row["class"], str)]
    numbers = {row["class"] for row in rows if isinstance(row["class"], int)}
    ranges = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in _runs(numbers)) or "all"
    targets = dict.fromkeys(row["target"] for row in rows if "target" in row)
    words = [
        f"fedforget reproduce {experiment.name} --dataset {rows[0]['dataset']}",
        f"--classes {max(sequences, key=len) if sequences else ranges}",
        *([f"--targets {','.join(targets)}"] if targets else []),
        *([] if experiment.methods is None else [f"--methods {','.join(methods)}"]),
        f"--trials {last - first + 1} --seed {first}",
    ]
    words += [] if rows[0]["configuration"] == "default" else [f"--configuration {rows[0]['configuration']}"]
    words += ["--quick"] if rows[0]["quick"] else []
    return " ".join(words)


def provenance_of(rows: Sequence[Row]) -> str:
    """When, from which commit and on what the rows were computed."""

    def distinct(name: str) -> str:
        return ", ".join(sorted({str(row[name]) for row in rows}))

    return (
        f"{len(rows)} cells. Date {distinct('date')}; commit {distinct('commit')}; {distinct('hardware')}; "
        f"threads {distinct('threads')}."
    )


def _runs(numbers: set[int]) -> list[tuple[int, int]]:
    """0, 1, 2, 5 as (0, 2), (5, 5)."""
    return [(n, next(m for m in count(n) if m + 1 not in numbers)) for n in sorted(numbers) if n - 1 not in numbers]
