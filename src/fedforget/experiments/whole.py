"""Every table and figure of the paper, one after another, on one HTML page that loads nothing: `reproduce all`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fedforget.data.files import write_text
from fedforget.errors import InputError
from fedforget.experiments import EXPERIMENTS, find_experiment
from fedforget.experiments.configurations import Configuration
from fedforget.experiments.engine import Experiment, Row, Step, reproduce
from fedforget.experiments.options import Options
from fedforget.experiments.pages import command, labelled_tables, provenance_of, write_pages
from fedforget.experiments.tables import Table

ALL = "all"
"""Its name among the experiments."""
DATASET = "mnist"
"""Where the user names none: the smallest that the paper has numbers for."""
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h2 { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1rem }
.from { color: #666; font-size: 13px; overflow-wrap: anywhere }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
caption { text-align: left; font-weight: 600; padding: .3rem 0; white-space: nowrap }
th, td { text-align: right; padding: .15rem .7rem; border-bottom: 1px solid #ddd; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
img { max-width: 100% }
"""


def chosen(name: str, *, dataset: str | None, **words: Any) -> Options:
    """What the words of `reproduce NAME` choose."""
    return Options.parse(dataset=dataset or (DATASET if name == ALL else "digits"), **words)


def reproduce_named(
    name: str, options: Options, merge: Iterable[Path] = (), progress: Callable[[Step], None] = lambda step: None
) -> tuple[dict[str, Any], list[Table], list[Path]]:
    """Compute what is missing of one experiment or of all: (what a program is given, the tables for a terminal, the
    pages)."""
    if name == ALL:
        page = reproduce_all(EXPERIMENTS.values(), options, progress)
        return {"page": str(page)}, [], [page]
    experiment = find_experiment(name)
    rows = reproduce(experiment, options, merge=merge, progress=progress)
    pages = write_pages(experiment, experiment.cell_file(options))
    return {"rows": rows}, [table for table in labelled_tables(experiment, rows) if not table.wide], pages


def reproduce_all(
    experiments: Iterable[Experiment], options: Options, progress: Callable[[Step], None] = lambda step: None
) -> Path:
    """Compute what is missing of every experiment that the paper has; the page that shows all of them."""
    if options.methods or options.targets:
        raise InputError("'all' takes every experiment's own methods and targets; leave --methods and --targets out.")
    found: dict[str, tuple[Experiment, Sequence[Row], Sequence[Path]]] = {}
    for experiment in experiments:
        if experiment.label:

            def report(step: Step, name: str = experiment.name) -> None:
                progress(step._replace(what=f"{name}, {step.what}"))

            rows = reproduce(experiment, options, progress=report)
            found[experiment.name] = (experiment, rows, write_pages(experiment, experiment.cell_file(options)))
    page = options.out / f"{'-'.join([ALL, *options.labels])}.html"
    write_text(page, _html(options, found))
    return page


def _html(options: Options, found: Mapping[str, tuple[Experiment, Sequence[Row], Sequence[Path]]]) -> str:
    title = f"The paper's tables and figures on {options.dataset}"
    links = " · ".join(f'<a href="#{name}">{name}</a>' for name in found)
    said = [options.settings.describe(), "Where the paper prints a number, it stands in brackets beside ours."]
    said += [_quick(options.settings)] if options.quick else []
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{links}</p>", *(f"<p>{escape(line)}</p>" for line in said)]
    for name, (experiment, rows, files) in found.items():
        where = f"The paper's {experiment.label}. {command(experiment, rows)} {provenance_of(rows)}".replace("`", "")
        parts += [f'<h2 id="{name}">{escape(experiment.title)}</h2>', f'<p class="from">{escape(where)}</p>']
        parts += [table.to_html() for table in experiment.tables(rows)]
        parts += [f"<p>{escape(sentence)}</p>" for sentence in experiment.remarks(rows)]
        parts += [_image(file) for file in files if file.suffix == ".svg"]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _quick(chosen: Configuration) -> str:
    training, test = chosen.quick_samples
    return (
        f"This is a quick run: the first {training:,} training and {test:,} test images, few classes, one trial. It "
        "shows that everything runs. The printed numbers are of all images, so no figure here confirms or refutes one."
    )


def _image(file: Path) -> str:
    data = base64.b64encode(file.read_bytes()).decode()
    return f'<img alt="{escape(file.stem)}" src="data:image/svg+xml;base64,{data}">'
