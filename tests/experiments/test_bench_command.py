"""The two commands of the benchmark, on tiny sizes: what they print, keep and refuse. No time is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process_command import Command, in_process_command

from fedforget import cli
from fedforget.experiments import __main__ as bare
from fedforget.experiments.benchmarks.parts import PARTS

TINY = ("bench", "--quick", "--threads", "1", "--repeats", "1")


@pytest.fixture(params=["fedforget", "python -m"])
def command(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    main = {"fedforget": cli.main, "python -m": bare.main}[request.param]
    return in_process_command(main, capsys, monkeypatch)


@pytest.mark.real
def test_json_is_the_results_and_nothing_else(command: Command, tmp_path: Path):
    out = tmp_path / "cpu.json"
    said = command(*TINY, "--part", "rows", "--json", "--out", out)
    assert said.code == 0, said.err
    results = json.loads(said.out)
    assert list(results) == ["rows"]
    assert results == json.loads(out.read_text())
    assert [point["rows"] for point in results["rows"]["points"]] == [2, 4]
    assert results["rows"]["run"]["quick"] is True


@pytest.mark.slow
def test_a_later_part_joins_the_earlier_ones(command: Command, tmp_path: Path):
    out = tmp_path / "cpu.json"
    out.write_text(json.dumps({"target": {"run": {"quick": True}, "points": []}}))
    said = command(*TINY, "--part", "rows", "--out", out)
    assert said.code == 0, said.err
    assert list(json.loads(out.read_text())) == ["target", "rows"]
    assert "More rows in the sketch" in said.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--part", "speed"), "The benchmark has no part 'speed'; choose one of request, clients, parameters,"),
        (("--repeats", "0"), "--repeats is 0, but it must be 1 or larger."),
        (("--device", "abacus"), "Device 'abacus' cannot be used on this machine; use cpu."),
    ],
)
def test_refusals(command: Command, tmp_path: Path, words: tuple[str, ...], sentence: str):
    said = command(*TINY, *words, "--out", tmp_path / "cpu.json")
    assert said.code == 2
    assert sentence in " ".join(said.err.split())
    assert not (tmp_path / "cpu.json").exists()


def test_a_file_of_something_else_is_not_overwritten(command: Command, tmp_path: Path):
    out = tmp_path / "cpu.json"
    out.write_text("[1, 2]")
    said = command(*TINY, "--part", "rows", "--out", out)
    assert said.code == 2
    assert "holds no results of the benchmark" in " ".join(said.err.split())
    assert out.read_text() == "[1, 2]"


@pytest.mark.slow
def test_every_part_runs_and_the_page_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    run = in_process_command(bare.main, capsys, monkeypatch)
    out, page = tmp_path / "cpu.json", tmp_path / "performance.md"
    said = run(*TINY, "--out", out)
    assert said.code == 0, said.err
    assert list(json.loads(out.read_text())) == list(PARTS)
    said = run("performance", out, "--page", page)
    assert said.code == 0, said.err
    text = page.read_text()
    for words in ("What must hold", "A quick run: its figures mean nothing.", "Retrain / request",
                  "More clients", "Larger networks", "A larger target"):  # fmt: skip
        assert words in text
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".md"}
