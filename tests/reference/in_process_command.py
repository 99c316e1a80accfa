"""A command of ours run in the test's own process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

read_once = cache(typer.main.get_command)
"""Typer reads every command's function anew at each call, which takes longer than most commands."""


class Said(NamedTuple):
    code: Any
    out: str
    err: str


Command = Callable[..., Said]


def in_process_command(
    main: Callable[[], object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """`main` as a command: from the words of a command line to exit code and output."""

    monkeypatch.setattr(typer.main, "get_command", read_once)

    def run(*words: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["fedforget", *map(str, words)])
        capsys.readouterr()
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code
        return Said(code, *capsys.readouterr())

    return run
