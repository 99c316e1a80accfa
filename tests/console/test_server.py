"""`fedforget serve` as a process: what a new machine needs, what it refuses, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch
from console_server import own_certificate, running_console
from ledger_worlds import DESCRIPTION
from typer.testing import CliRunner

from fedforget.cli.app import app
from fedforget.console.children import make_demo
from fedforget.console.processes import DemoProcess
from fedforget.console.server import address_for, admin_link
from fedforget.console.settings import ConsoleSettings
from fedforget.federation.rounds import Schedule
from fedforget.ledger.book import Ledger
from fedforget.ledger.errors import ConflictError
from fedforget.requests import ErasureRequest
from fedforget.runs import demo


def children(pid: int) -> list[int]:
    """The processes that this one started."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in found.split()]


def wait_for(what, seconds: float = 60.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(httpx.TransportError):
            if found := what():
                return found
        time.sleep(0.1)
    raise AssertionError("it did not happen")


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.real
def test_a_new_machine(tmp_path: Path):
    """No configuration: a home, a ledger, a key, an admin; and Ctrl-C ends all of it."""
    home = tmp_path / "home"
    with running_console(home) as console:
        assert wait_for(lambda: httpx.get(f"{console.url}/health").json())["status"] == "ready"
        assert httpx.get(console.admin_link).status_code == 200
        assert httpx.get(f"{console.url}/metrics").status_code == 200
        worker = wait_for(lambda: children(console.process.pid))
        assert wait_for(lambda: httpx.get(f"{console.url}/health").json()["worker"] == "running")
    assert console.process.returncode == 0, console.said
    assert not any(map(is_running, worker)), "the worker ends with it"
    assert (home / "ledger.sqlite").stat().st_mode & 0o077 == 0 or home.stat().st_mode & 0o077 == 0
    with Ledger.open(home) as ledger:
        assert [row.role for row in ledger.accounts.all()] == ["admin"]
        assert len(ledger.keys.all()) == 1
        assert ledger.trail.check().intact
    with running_console(home, "--no-worker") as console:
        assert console.admin_link, "nobody could sign in otherwise, so there is a new one"
        assert httpx.get(f"{console.url}/health").json()["worker"] == "none here"
        assert children(console.process.pid) == []


@pytest.mark.real
def test_a_worker_that_dies_is_started_again(tmp_path: Path):
    with running_console(tmp_path / "home") as console:
        assert console.url
        (first,) = wait_for(lambda: children(console.process.pid))
        os.kill(first, signal.SIGKILL)
        (second,) = wait_for(lambda: [pid for pid in children(console.process.pid) if pid != first and is_running(pid)])
        assert is_running(second)


@pytest.mark.real
def test_a_killed_console_takes_its_worker_along(tmp_path: Path):
    with running_console(tmp_path / "home") as console:
        assert console.url
        (worker,) = wait_for(lambda: children(console.process.pid))
        console.process.kill()
        assert wait_for(lambda: not is_running(worker)), "nobody is left behind"


@pytest.mark.real
def test_it_ends_although_somebody_watches(tmp_path: Path):
    """A connection that is kept for the next question does not keep the server."""
    home = tmp_path / "home"
    with running_console(home, "--no-worker") as console:
        cookie_name = f"fedforget-{console.url.rpartition(':')[2]}"
        secret, request = watched(home)
        cookie = {cookie_name: secret}
        with httpx.Client(base_url=console.url, cookies=cookie) as client:
            assert client.get(f"/requests/{request}/progress").json()["state"] == "queued"
            began = time.monotonic()
            console.process.send_signal(signal.SIGTERM)
            assert console.process.wait(20) == 0
            assert time.monotonic() - began < 10


@pytest.mark.real
def test_it_speaks_https_itself(tmp_path: Path):
    certificate, key = own_certificate(tmp_path)
    options = ("--no-worker", "--certificate", str(certificate), "--key", str(key))
    with running_console(tmp_path / "home", *options) as console:
        assert console.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=console.url, verify=trusted) as client:
            answer = client.get("/sign-in")
            assert answer.headers["strict-transport-security"] == "max-age=31536000"
            assert "Secure" in answer.headers["set-cookie"]
            assert answer.headers["set-cookie"].startswith("__Host-fedforget")


def watched(home: Path) -> tuple[str, str]:
    """A session, and a request that waits."""
    with Ledger.open(home) as ledger:
        ledger.federations.register("digits", "local", "/nowhere", DESCRIPTION, {"w": torch.zeros(2)})
        made = ledger.requests.submit(
            "digits", ErasureRequest.of_class(0, 1), subject="s", ground="other", asked_by="admin"
        )
        ledger.requests.accept(made.request.id, actor="admin")
        ledger.requests.queue(made.request.id, actor="admin")
        return ledger.accounts.open_session("admin", by="test"), made.request.id


def refused(*options: str) -> str:
    result = CliRunner().invoke(app, ["serve", *options])
    assert result.exit_code != 0
    return str(result.exception)


def test_what_it_refuses(tmp_path: Path):
    home = ("--home", str(tmp_path / "home"))
    assert "would travel in the clear" in refused(*home, "--host", "0.0.0.0")
    assert "would travel in the clear" in refused(*home, "--url", "http://forget.example")
    assert "belong together" in refused(*home, "--certificate", "x.pem")
    assert "is not there" in refused(*home, "--certificate", "x.pem", "--key", "y.pem")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "choose another with --port" in refused(*home, "--port", str(taken.getsockname()[1]))


def test_the_admin_link(tmp_path: Path):
    settings = ConsoleSettings()
    with Ledger.open(tmp_path) as ledger:
        link = admin_link(ledger, settings)
        assert link is not None
        assert link.startswith("http://127.0.0.1:8765/link/")
        assert admin_link(ledger, settings) not in (None, link), "as long as nobody has set a password"
        ledger.accounts.change("admin", password="long enough it is", actor="admin")
        assert admin_link(ledger, settings) is None


@pytest.mark.parametrize(
    ("host", "tls", "url"),
    [
        ("127.0.0.1", False, "http://127.0.0.1:8765"), ("::1", False, "http://[::1]:8765"),
        ("0.0.0.0", True, "https://127.0.0.1:8765"), ("forget.example", True, "https://forget.example:8765"),
    ],
)  # fmt: skip
def test_the_address_that_people_type(host: str, tls: bool, url: str):
    assert address_for(host, 8765, tls=tls) == url


def test_the_demo_federation_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(demo, "Schedule", lambda **values: replace(Schedule(**values), rounds=1))
    with Ledger.open(tmp_path / "home") as ledger:
        make_demo(ledger, "admin")
        (row,) = ledger.federations.all()
        assert (row.name, row.description["clients"][0]["counts"][3]) == ("demo", 30)
        with pytest.raises(ConflictError, match="already"):
            make_demo(ledger, "admin")
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (said[0]["stage"], said[-1]) == ("loading data", {"stage": "registering", "fraction": 1.0})


@pytest.mark.real
def test_the_demo_federation(tmp_path: Path):
    """In a process of its own; once; and it is what the form offers then."""
    with Ledger.open(tmp_path / "home") as ledger:
        process = DemoProcess(ledger)
        assert process.progress["state"] == "idle"
        process.start("admin")
        with pytest.raises(ConflictError, match="being trained already"):
            process.start("admin")
        assert wait_for(lambda: process.progress["state"] != "running", 120)
        assert process.progress["state"] == "done", process.progress
        (row,) = ledger.federations.all()
        assert row.description["clients"][0]["counts"][3] == 30
        process.start("admin")
        assert wait_for(lambda: process.progress["state"] != "running", 120)
        assert process.progress["state"] == "failed"
        assert "already" in process.progress["reason"]
        process.stop()
