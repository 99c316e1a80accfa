"""The committed cells are today's: every command printed on a page of docs/results finds its cells and accepts them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from fedforget.experiments import EXPERIMENTS, find_experiment
from fedforget.experiments.__main__ import command_parser, options_of
from fedforget.experiments.cells import Cell, read_cells
from fedforget.experiments.engine import CellSpec, check_settings
from fedforget.experiments.options import Options

RESULTS = Path(__file__).parents[2] / "docs" / "results"
read = cache(read_cells)
"""The pages of two experiments may show one file."""


def printed_commands() -> list[str]:
    """As the pages give them, each once."""
    pages = "\n".join(page.read_text() for page in sorted(RESULTS.glob("*.md")))
    return list(dict.fromkeys(re.findall(r"`fedforget (reproduce [^`]+)`", pages)))


def experiments_of(cells: Iterable[Cell]) -> set[str | None]:
    return {cell.get("experiment") for cell in cells}


@cache
def asked_for() -> dict[str, dict[str, tuple[CellSpec, Options]]]:
    """Every cell that the printed commands compute, by its file and key: a page may have several commands."""
    found: dict[str, dict[str, tuple[CellSpec, Options]]] = {}
    for command in printed_commands():
        arguments = command_parser().parse_args([*command.split(), "--out", str(RESULTS)])
        experiment, options = find_experiment(arguments.name), options_of(arguments)
        specs = {experiment.key(spec, options): (spec, options) for spec in experiment.specs(options)}
        found.setdefault(experiment.cell_file(options).name, {}).update(specs)
    return found


def test_every_file_of_an_experiment_has_a_page_with_its_command():
    known = {experiment.cells for experiment in EXPERIMENTS.values()}
    files = {path.name for path in RESULTS.glob("*.jsonl") if experiments_of(read(path)) & known}
    assert files == set(asked_for())
    assert len(files) > 20


@pytest.mark.parametrize(
    "name", sorted(path.name for path in RESULTS.glob("*.jsonl") if not path.name.startswith("exploration-"))
)
def test_the_printed_commands_accept_every_cell_of_their_file(name: str):
    specs = asked_for()[name]
    cells = {cell["key"]: cell for cell in read(RESULTS / name)}
    assert cells.keys() <= specs.keys(), "the commands would show them all"
    for key, cell in cells.items():
        check_settings(*specs[key], cell, RESULTS / name)
