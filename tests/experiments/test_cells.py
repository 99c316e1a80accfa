"""Cells are neither lost nor doubled: torn ends, broken lines, merged files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedforget.errors import InputError
from fedforget.experiments import cells
from fedforget.experiments.cells import CellFile, alone, commit, mean_and_deviation, read_cells


def cell(key: str, **values: object) -> dict[str, object]:
    return {"key": key, "bd_acc": 1.5, **values}


def filled(path: Path, *keys: str) -> CellFile:
    file = CellFile(path)
    for key in keys:
        file.add(cell(key))
    return file


def test_what_was_added_is_read_back(tmp_path: Path):
    filled(tmp_path / "deep" / "c.jsonl", "a", "b")
    again = CellFile(tmp_path / "deep" / "c.jsonl")
    assert list(again.cells.values()) == [cell("a"), cell("b")]
    assert "a" in again.cells
    assert "c" not in again.cells
    assert len(again.cells) == 2


def test_a_cell_is_added_once(tmp_path: Path):
    file = filled(tmp_path / "c.jsonl", "a")
    with pytest.raises(InputError, match=r"^Cell a is in .*c.jsonl already.$"):
        file.add(cell("a"))


@pytest.mark.parametrize("cut", range(1, len(json.dumps(cell("b"))) + 1))
def test_a_torn_last_line_is_dropped_and_mended(tmp_path: Path, cut: int):
    path = tmp_path / "c.jsonl"
    filled(path, "a", "b")
    path.write_bytes(path.read_bytes()[:-cut])
    torn = path.read_bytes()
    file = CellFile(path)
    whole = ["a", "b"] if cut == 1 else ["a"]
    assert list(file.cells) == whole, "only a line that lacks nothing but its end is whole"
    assert path.read_bytes() == torn, "reading changes nothing"
    file.add(cell("c"))
    file.add(cell("d"))
    assert [c["key"] for c in read_cells(path)] == [*whole, "c", "d"]
    assert path.read_bytes().count(b"\n") == len(whole) + 2


def test_a_file_that_is_one_torn_line(tmp_path: Path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"key": "a", "bd')
    filled(path, "a")
    assert path.read_text() == json.dumps(cell("a")) + "\n"


@pytest.mark.parametrize("broken", ["{", "[1]", '{"no": "key"}', '{"key": 3}', '{"key": "x"'])
def test_a_broken_line_in_the_middle_is_refused_by_its_number(tmp_path: Path, broken: str):
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps(cell("a")) + "\n" + broken + "\n" + json.dumps(cell("b")) + "\n")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"^Line 2 of .*c.jsonl is not a cell; delete it.$"):
        CellFile(path)
    assert path.read_bytes() == before


def test_adding_reads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = filled(tmp_path / "c.jsonl", "a")
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("read"))
    monkeypatch.setattr(Path, "read_text", lambda self: pytest.fail("read"))
    file.add(cell("b"))


def test_no_cell_holds_what_is_not_json(tmp_path: Path):
    file = filled(tmp_path / "c.jsonl", "a")
    with pytest.raises(ValueError, match="not JSON compliant"):
        file.add(cell("b", x=float("nan")))
    assert list(CellFile(tmp_path / "c.jsonl").cells) == ["a"]


def test_merging_is_the_union(tmp_path: Path):
    a = filled(tmp_path / "a", "x", "y")
    filled(tmp_path / "b", "y", "z")
    filled(tmp_path / "c", "w")
    assert a.merge([tmp_path / "b", tmp_path / "c"]) == 2
    assert [c["key"] for c in read_cells(tmp_path / "a")] == ["x", "y", "z", "w"]
    assert a.merge([tmp_path / "b", tmp_path / "c"]) == 0


def test_two_computations_that_agree_are_one_cell(tmp_path: Path):
    """They may differ in when, where and how long; the first one stays."""
    a, b = CellFile(tmp_path / "a"), CellFile(tmp_path / "b")
    a.add(cell("x", seconds=1.0, date="2026-01-01", hardware="this", commit="1"))
    b.add(cell("x", seconds=2.0, date="2026-02-02", hardware="that", commit="2"))
    assert a.merge([b.path]) == 0
    assert read_cells(a.path)[0]["hardware"] == "this"


@pytest.mark.parametrize("other", [{"bd_acc": 1.6}, {"note": "diverged"}])
def test_two_computations_that_disagree_are_refused(tmp_path: Path, other: dict[str, object]):
    a, b = filled(tmp_path / "a", "x"), filled(tmp_path / "b", "new")
    b.add(cell("x") | other)
    before = a.path.read_bytes()
    with pytest.raises(InputError, match=r"^Cell x has .* in .*a or an earlier file, but .* in .*b; delete the one"):
        a.merge([b.path])
    assert a.path.read_bytes() == before, "all or nothing"


def test_merging_what_is_not_there(tmp_path: Path):
    with pytest.raises(InputError, match=r"cannot be read: No such file or directory.$"):
        CellFile(tmp_path / "a").merge([tmp_path / "none"])


@pytest.mark.real
def test_one_process_at_a_time(tmp_path: Path):
    code = "import pathlib, sys\nfrom fedforget.experiments.cells import *\nwith alone(pathlib.Path(sys.argv[1])): pass"
    with alone(tmp_path / "c") as file:
        file.add(cell("a"))
        said = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "c")], capture_output=True, text=True, check=False, timeout=60
        )
    assert "Another process is computing cells of " in said.stderr
    with alone(tmp_path / "c") as file:
        assert "a" in file.cells


def test_the_commit_of_a_copy_without_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cells, "CHECKOUT", tmp_path)
    for value, expected in (("abc123", "abc123"), (None, "unknown")):
        commit.cache_clear()
        if value is None:
            monkeypatch.delenv("FEDFORGET_COMMIT", raising=False)
        else:
            monkeypatch.setenv("FEDFORGET_COMMIT", value)
        assert commit() == expected
    commit.cache_clear()


def test_mean_and_deviation():
    assert mean_and_deviation([1.0, 3.0]) == (2.0, 2**0.5)
    assert mean_and_deviation([1.0]) == (1.0, 0.0)
