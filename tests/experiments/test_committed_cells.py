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
from fedforget.experiments.engine import check_settings

RESULTS = Path(__file__).parents[2] / "docs" / "results"
read = cache(read_cells)
"""The pages of two experiments may show one file."""


def printed_commands() -> list[str]:
    """As the pages give them, each once."""
    pages = "\n".join(page.read_text() for page in sorted(RESULTS.glob("*.md")))
    return list(dict.fromkeys(re.findall(r"`fedforget (reproduce [^`]+)`", pages)))


def experiments_of(cells: Iterable[Cell]) -> set[str | None]:
    return {cell.get("experiment") for cell in cells}


def test_every_file_of_an_experiment_has_a_page_with_its_command():
    known = {experiment.cells for experiment in EXPERIMENTS.values()}
    files = {path for path in RESULTS.glob("*.jsonl") if experiments_of(read(path)) & known}
    printed = [options_of(command_parser().parse_args(command.split())) for command in printed_commands()]
    names = [find_experiment(command.split()[1]) for command in printed_commands()]
    shown = {RESULTS / experiment.cell_file(options).name for experiment, options in zip(names, printed, strict=True)}
    assert files == shown
    assert len(files) > 20


@pytest.mark.parametrize("command", printed_commands(), ids=lambda command: "-".join(command.split()[1:4:2]))
def test_a_printed_command_accepts_every_cell_of_its_file(command: str):
    arguments = command_parser().parse_args([*command.split(), "--out", str(RESULTS)])
    experiment, options = find_experiment(arguments.name), options_of(arguments)
    path = experiment.cell_file(options)
    cells = {cell["key"]: cell for cell in read(path)}
    specs = {experiment.key(spec, options): spec for spec in experiment.specs(options)}
    assert cells.keys() <= specs.keys(), "the command would show them all"
    for key, cell in cells.items():
        check_settings(specs[key], options, cell, path)
