"""`fedforget ...`, said in one home."""

from __future__ import annotations

import json
import os
import pwd
from typing import Any

import pytest
from ledger_worlds import World
from typer.testing import CliRunner

from fedforget.cli.app import app
from fedforget.errors import FedForgetError

ASK = ("request", "submit", "--federation", "digits", "--client", 0, "--subject", "case-1", "--ground", "objection")
OS_USER = f"os user {pwd.getpwuid(os.geteuid()).pw_name}"


class Command:
    """Says `fedforget ...` in one home."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        monkeypatch.setenv("FEDFORGET_HOME", str(world.ledger.home))
        monkeypatch.setenv("FEDFORGET_LEDGER", world.ledger.database.url)
        monkeypatch.setenv("FEDFORGET_ACCOUNT", "oscar")

    def __call__(self, *words: Any, code: int = 0) -> str:
        said = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
        assert said.exit_code == code, said.output
        return said.stdout

    def json(self, *words: Any, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code))

    def refused(self, *words: Any) -> str:
        with pytest.raises(FedForgetError) as caught:
            CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
        return str(caught.value)
