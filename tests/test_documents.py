"""The documents: every link leads somewhere, each page keeps to its length, and what they name is there."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import click
import pytest
from typer.main import get_command

from fedforget.cli.app import app
from fedforget.methods import METHODS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """Without code, where brackets mean something else."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "code", text)


@cache
def anchors(page: Path) -> set[str]:
    """The headings as GitHub and PyPI name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path):
    for link in LINK.findall(prose(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), f"{link} leaves the repository"
        assert target.exists(), f"{link} is not there"
        if heading:
            assert heading in anchors(target), f"{link}: no such heading"


def test_the_readme_is_at_most_150_lines_and_leads_to_a_page_for_each_user():
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 150
    assert text.index("make demo") < text.index("make test") < text.index("<!-- demo-output -->")
    for page in ("researcher", "engineer", "officer"):
        assert f"(docs/{page}.md)" in text


def test_the_methods_table_names_every_method_and_preset_in_its_order():
    page = (DOCS / "researcher.md").read_text()
    table = page.split("<!-- methods -->")[1].split("<!-- /methods -->")[0]
    rows = [line.split("|")[1:3] for line in table.strip().splitlines()[2:]]
    shown = {re.findall(r"`([^`]+)`", name)[0]: re.findall(r"`([^`]+)`", presets) for name, presets in rows}
    assert shown.keys() == METHODS.keys()
    assert {name: set(presets) for name, presets in shown.items()} == {
        name: set(method.presets) for name, method in METHODS.items()
    }
    assert {name: presets[0] for name, presets in shown.items()} == {
        name: next(iter(method.presets)) for name, method in METHODS.items()
    }


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("*.md")), ids=name_of)
def test_a_decision_is_one_screen(page: Path):
    lines = page.read_text().splitlines()
    assert len(lines) <= 45
    assert [line for line in lines if len(line) > 200 and not line.startswith("|")] == []


def test_the_index_of_the_results_names_every_page():
    index = DOCS / "results" / "README.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text()) if "://" not in link}
    pages = {page for page in index.parent.glob("*.md") if not page.name.endswith(".notes.md")} - {index}
    assert pages <= linked


def test_the_results_hold_pages_of_results_alone():
    """What is still to be computed is in docs/queue.md: no page of results, and no rendered one."""
    assert not (DOCS / "results" / "QUEUE.md").exists()
    assert (DOCS / "queue.md").exists()


@pytest.mark.parametrize("page", ["architecture.md", "architecture.svg"])
def test_the_architecture_names_files_and_rooms_that_are_there(page: str):
    source = ROOT / "src" / "fedforget"
    text = (DOCS / page).read_text()
    named = {name for name in re.findall(r"[a-z_]+(?:/[a-z_]+)*\.py\b", text) if not name.startswith("tests/")}
    assert len(named) > 15
    assert {name for name in named if not any(source.rglob(name))} == set()
    rooms = {path.parent.name for path in source.glob("*/__init__.py")}
    if page.endswith("svg"):
        assert rooms <= set(re.findall(r'class="name"[^>]*>([a-z]+)<', text))


def printed_commands() -> list[str]:
    """The `fedforget` lines of the README and the guides."""
    text = "\n".join(page.read_text() for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))])
    lines = re.findall(r"^ {4,}(fedforget .+)$", text, re.MULTILINE)
    return [command.strip() for line in lines for command in line.split(" && ") if "[--" not in command]


@pytest.fixture(scope="module")
def root() -> click.Command:
    return get_command(app)


@pytest.mark.parametrize("line", dict.fromkeys(printed_commands()))
def test_a_printed_command_has_the_options_it_is_shown_with(root: click.Command, line: str):
    command, words = root, shlex.split(line, comments=True)[1:]
    while isinstance(command, click.Group):
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line
