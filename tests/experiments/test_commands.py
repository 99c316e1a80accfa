"""The two commands: `fedforget reproduce` and `python -m fedforget.experiments`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from in_process_command import Command, in_process_command

from fedforget import cli
from fedforget.experiments import EXPERIMENTS
from fedforget.experiments import __main__ as bare

SMALL = ("--quick", "--threads", "1", "--classes", "0", "--methods", "retrain,fedaf-c")


@pytest.fixture(params=["fedforget", "python -m"])
def command(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    main = {"fedforget": cli.main, "python -m": bare.main}[request.param]
    return in_process_command(main, capsys, monkeypatch)


either = pytest.mark.parametrize(
    "command", ["fedforget", pytest.param("python -m", marks=pytest.mark.real)], indirect=True
)
"""In the daily tests one of them trains, and both say what is wrong."""


@either
def test_json_is_the_rows_and_nothing_else(command: Command, tmp_path: Path):
    said = command("reproduce", "completeness", *SMALL, "--json", "--out", tmp_path)
    assert said.code == 0, said.err
    assert said.out.count("\n") == 1
    values = json.loads(said.out)
    assert list(values) == ["rows"]
    assert [(r["method"], r["preset"], r["quick"]) for r in values["rows"]] == [
        ("retrain", "default", True), ("fedaf-c", "default", True),
    ]  # fmt: skip
    again = command("reproduce", "completeness", *SMALL, "--json", "--out", tmp_path)
    assert json.loads(again.out) == values
    endings = ("jsonl", "md", "tex", "json", "png", "svg")
    assert {p.name for p in tmp_path.iterdir()} == {"models", *(f"completeness-digits-quick.{e}" for e in endings)}


@either
def test_the_table_is_shown_and_labelled(command: Command, tmp_path: Path):
    said = command("reproduce", "time", *SMALL, "--out", tmp_path)
    assert said.code == 0, said.err
    assert "Running time of unlearning one class of one client" in said.out
    assert "quick" in said.out
    assert "time-digits-quick.md" in said.out
    assert (tmp_path / "completeness-digits-quick.jsonl").exists(), "its cells are those of completeness"


@pytest.mark.real
def test_merging_by_command(command: Command, tmp_path: Path):
    a, b = tmp_path / "a", tmp_path / "b"
    command("reproduce", "completeness", *SMALL, "--json", "--out", a)
    said = command("reproduce", "completeness", *SMALL, "--json", "--out", b, "--merge", a)
    assert said.code == 0, said.err
    assert not (b / "models").exists(), "nothing was computed"
    assert len(json.loads(said.out)["rows"]) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("magic",), "Experiment 'magic' is unknown; choose one of completeness, time"),
        (("completeness", "--dataset", "imagenet"), "The experiments do not know the data set 'imagenet';"),
        (("completeness", "--classes", "7-12"), "Class 10 does not exist; digits has classes 0 to 9."),
        (("completeness", "--methods", "magic"), "Method 'magic' is unknown; choose one of "),
        (("completeness", "--device", "abacus"), "Device 'abacus' cannot be used on this machine; use cpu."),
        (("completeness", "--merge", "nowhere"), "there is nothing to merge from nowhere."),
    ],
)
def test_bad_input_is_one_sentence_before_any_work(
    command: Command, tmp_path: Path, words: tuple[str, ...], sentence: str
):
    said = command("reproduce", *words, "--out", tmp_path / "out")
    assert (said.code, said.out) == (2, "")
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@either
def test_render_writes_the_same_pages_again(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "docs" / "results"
    assert command("reproduce", "completeness", *SMALL, "--out", folder).code == 0
    pages = {path: path.read_bytes() for path in folder.glob("completeness*") if path.suffix != ".jsonl"}
    for path in pages:
        path.unlink()
    (folder / "completeness-digits-quick.notes.md").write_text("We agree.\n")
    monkeypatch.setattr(sys, "argv", ["experiments", "render", str(folder)])
    bare.main()
    assert {path: path.read_bytes() for path in pages if path.suffix != ".md"} == {
        path: text for path, text in pages.items() if path.suffix != ".md"
    }
    page = (folder / "completeness-digits-quick.md").read_text()
    assert "\n\nWe agree.\n\n" in page
    assert page.replace("We agree.\n\n", "").encode() == pages[folder / "completeness-digits-quick.md"]
    assert (folder / "time-digits-quick.md").exists()


def test_an_interruption_is_one_sentence_and_130(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedforget.experiments.engine.make_cell", interrupt)
    said = command("reproduce", "completeness", *SMALL, "--json", "--out", tmp_path)
    assert (said.code, said.out) == (130, "")
    assert "Interrupted; what is done is kept, and the same command goes on" in said.err


@pytest.mark.real
@either
def test_all_is_one_page_with_every_table_and_figure_of_the_paper(command: Command, tmp_path: Path):
    said = command("reproduce", "all", "--dataset", "digits", "--quick", "--threads", "1", "--classes", "0,1",
                   "--json", "--out", tmp_path)  # fmt: skip
    assert said.code == 0, said.err
    page = Path(json.loads(said.out)["page"])
    text = page.read_text()
    ours = {name for name, experiment in EXPERIMENTS.items() if experiment.label}
    assert ours == {"completeness", "time", "overlap", "epochs", "lambda", "teachers", "sequential", "ablation"}
    for name in ours:
        assert f'<h2 id="{name}">' in text
        assert EXPERIMENTS[name].label in text
    assert text.count("<table>") >= 12
    assert text.count('src="data:image/svg+xml;base64,') >= 8
    assert not re.search(r'(src|href)="(?!data:|#)', text), "it loads nothing"


def test_all_takes_no_methods(command: Command, tmp_path: Path):
    said = command("reproduce", "all", "--methods", "retrain", "--quick", "--out", tmp_path)
    assert said.code == 2
    assert "'all' takes every experiment's own methods and targets; leave --methods and --targets out." in said.err
    assert not list(tmp_path.iterdir())
