"""What the benchmark computes from times."""

from __future__ import annotations

from fedforget.experiments.benchmarks.measuring import Work, in_turns
from fedforget.experiments.benchmarks.page import lines


def test_works_are_run_in_turns():
    seen: list[str] = []
    works = {
        "a": Work(lambda: seen.append("a")),
        "b": Work(lambda: seen.append("b"), times=2),
    }
    returned: list[str] = []
    times = in_turns(works, 2, "cpu", lambda name, result: returned.append(name))
    assert seen == ["a", "b", *["a", "b", "b"] * 2]
    assert {name: len(values) for name, values in times.items()} == {"a": 2, "b": 2}
    assert returned == ["a", "b", "b"] * 2


def test_a_line_is_met_or_not_and_never_met_without_a_figure():
    points = [
        {"clients": 10, "request": 1.0, "peak_bytes": 100.0},
        {"clients": 1000, "request": 1.4, "peak_bytes": 130.0},
    ]
    table = lines({"clients": {"run": {"quick": False}, "points": points}})
    assert [row[1:] for row in table.rows] == [("1.4", "at most 1.5", "yes"), ("1.3", "at most 1.2", "no")]
    assert not lines({"clients": {"run": {"quick": False}, "points": points[:1]}}).rows
