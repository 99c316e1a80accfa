"""A console notes what console.toml says, before it serves anything by it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fedforget.console import server
from fedforget.ledger.book import Ledger


def test_a_console_that_begins_notes_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server.Server, "run", lambda *_: None)
    before = os.umask(0o077)
    try:
        (tmp_path / "console.toml").write_text("[limits]\nsign_ins_per_minute = 5\n")
        for _ in range(2):
            server.serve(tmp_path, None, host="127.0.0.1", port=0, with_worker=False)
    finally:
        os.umask(before)
    with Ledger.open(tmp_path) as ledger:
        (event,) = ledger.trail.events(kinds=["console settings"])
        assert json.loads(event.body) == {"settings": {"limits.sign_ins_per_minute": 5}}
        assert ledger.trail.check().intact
