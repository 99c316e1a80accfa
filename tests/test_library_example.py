"""The README's Python example runs as it stands there."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from fedforget.federation.rounds import Schedule

README = Path(__file__).parents[1] / "README.md"


def first_example() -> str:
    assert README.exists(), f"{README} is missing"
    found = re.search(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, "README.md has no ```python block: the ten lines of Python are missing"
    return found.group(1)


def test_the_example_is_about_ten_lines():
    lines = [line for line in first_example().splitlines() if line.strip()]
    assert 5 <= len(lines) <= 14
    assert any("forget(" in line for line in lines)


@pytest.mark.slow
def test_the_example_runs_and_shows_the_forgetting(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    names = [item.name for item in fields(Schedule)]  # one thread, since a busy machine makes more of them slow
    defaults = dict(zip(names, Schedule.__init__.__defaults__, strict=True)) | {"threads": 1}
    monkeypatch.setattr(Schedule.__init__, "__defaults__", tuple(defaults.values()))
    assert Schedule().threads == 1
    threads = torch.get_num_threads()
    namespace: dict[str, object] = {"__name__": "example"}
    exec(compile(first_example(), str(README), "exec"), namespace)
    assert torch.get_num_threads() == threads
    out = capsys.readouterr().out
    ends = dict(re.findall(r"(class \d of client \d) \[\('\w+', '([a-z ]+)'", out))
    assert ends.keys() == {"class 3 of client 0", "class 7 of client 1"}
    assert ends["class 3 of client 0"] == "exact", "as in the demo"
    assert ends["class 7 of client 1"] in ("exact", "not enough evidence"), "whether anything is seen hangs on the draw"
    accuracies = [float(value) for value in re.findall(r"\(test_acc=([0-9.]+)", out)]
    assert len(accuracies) == 6, f"the example should print what was measured, but it printed: {out!r}"
    assert min(accuracies) > 85.0, out
    assert not list(tmp_path.iterdir()), "it writes nothing"
