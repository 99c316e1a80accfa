"""`fedforget work` as a command: once for cron, until SIGTERM as a service."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ledger_worlds import change_federation
from typer.testing import CliRunner
from worker_worlds import Office, WorkerProcess, samples_of

from fedforget.cli.app import app
from fedforget.errors import InputError
from fedforget.ledger.book import Ledger


@pytest.fixture
def office(run: Path, tmp_path: Path):
    with Ledger.open(tmp_path / "home", f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite'}") as ledger:
        office = Office(ledger, run)
        office.register(method="retrain")
        yield office


@pytest.mark.real
def test_once(office: Office):
    ids = [office.queue(samples_of(0, 0)), office.queue(samples_of(1, 0))]
    words = ["work", "--once", "--json", "--name", "cron", "--home", str(office.ledger.home)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"served": 2}
    office.served_once(ids)
    assert office.ledger.requests.get(ids[0]).worker == "cron"


def test_an_unknown_federation_and_a_missing_key_are_refused(office: Office, tmp_path: Path):
    with pytest.raises(InputError, match="no such federation"):
        CliRunner().invoke(
            app, ["work", "--once", "--federation", "x", "--home", str(office.ledger.home)], catch_exceptions=False
        )
    with pytest.raises(InputError, match="no key"):
        CliRunner().invoke(app, ["work", "--once", "--home", str(tmp_path / "new")], catch_exceptions=False)


@pytest.mark.real
def test_sigterm_gives_back_what_is_under_way(office: Office, tmp_path: Path):
    """It ends with status 0 in the middle of the audit, and nothing is counted against the request."""
    ledger = office.ledger
    change_federation(ledger, "digits", audit_level="full", actor="oscar")
    id = office.queue(samples_of(0, 0))
    worker = WorkerProcess(ledger.home, ledger.database.url, "service", log=tmp_path / "log")
    try:
        deadline = time.monotonic() + 120
        while ledger.requests.get(id).state != "auditing" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert worker.end() == 0, worker.log.read_text()
    finally:
        worker.process.kill()
    request = ledger.requests.get(id)
    assert (request.state, request.failures) == ("queued", 0)
    assert office.kinds(id)[-2:] == ["auditing", "queued"]
    assert "waits again" in worker.log.read_text()
    change_federation(ledger, "digits", audit_level="alone", actor="oscar")
    assert office.work() == 1
    office.served_once([id])


@pytest.mark.real
def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path):
    code = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from fedforget.cli import main\nsys.argv = ['fedforget', 'work', '--once']\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "pip install 'fedforget[service]'" in done.stderr.replace("\n", " ")
