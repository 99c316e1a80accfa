"""A command whose `flwr-clientapp` finds a process that has everything imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.real
WARM = (sys.executable, "-m", "fedforget.flower.warm")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WARM, *words], capture_output=True, text=True, timeout=120)


def test_flowers_own_command_runs_in_a_fork():
    done = run("sh", "-c", "type flwr-clientapp; flwr-clientapp --help; flwr-clientapp; sleep 3; exit 7")
    assert done.returncode == 7, "the status of the command that was started"
    assert "fedforget-warm-" in done.stdout.splitlines()[0]
    assert "Run a Flower ClientApp" in done.stdout
    assert "one of the arguments --token --token-file is required" in done.stderr


@pytest.mark.parametrize(("words", "sentence"), [
    ((), "Name the command to start"),
    (("no-such-command",), "no-such-command cannot be started: No such file or directory."),
])  # fmt: skip
def test_a_command_that_is_not_there_is_refused_in_a_sentence(words: tuple[str, ...], sentence: str):
    done = run(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
