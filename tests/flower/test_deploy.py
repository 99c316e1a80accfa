"""examples/deploy/three_sites.py: a request on a deployment with TLS and node keys, from nothing to the audit."""

from __future__ import annotations

import http.client
import ssl
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedforget.flower.app.settings import AppSettings
from fedforget.runs.audit import audit_run
from fedforget.runs.forget import forget_run
from fedforget.runs.store import read_sealed
from fedforget.runs.train import train_run

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "deploy"))
from three_sites import (
    HOST,
    Deployment,
    DeploymentError,
    deployment,
    free_ports,
    left_running,
    make_node_key,
    table,
)

pytestmark = pytest.mark.slow

SITES = 3
CONFIG: dict[str, Any] = {
    "clients": SITES, "rounds": 2, "lr": 0.05, "batch-size": 16, "threads": 1, "train-limit": 180,
    "request-client": 0, "request-class": 3, "backdoor": True, "audit": True,
}  # fmt: skip


@dataclass
class Outcome:
    """What came of one deployment, looked at when it was gone."""

    folder: Path
    summary: dict[str, Any]
    plain_http: Exception | None
    other_authority: Exception | None
    our_authority: Exception | None
    stranger: int
    """The exit status of a node whose key nobody registered."""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("deployment")
    with deployment(folder, SITES) as federation:
        key = make_node_key(federation.machine("stranger"))
        stranger = federation.start_supernode(0, key, *free_ports(1))
        plain = ask(http.client.HTTPConnection(HOST, federation.port, timeout=10))
        other = ask(secure(federation, None))
        ours = ask(secure(federation, federation.root_certificate))
        summary = federation.serve(CONFIG, timeout_s=900)
        return Outcome(folder, summary, plain, other, ours, stranger.wait(timeout=120))


def ask(connection: http.client.HTTPConnection) -> Exception | None:
    """What kept the SuperLink from answering, if anything did."""
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException) as error:
        return error
    finally:
        connection.close()
    return None


def secure(federation: Deployment, authority: Path | None) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=authority)
    return http.client.HTTPSConnection(HOST, federation.port, timeout=10, context=context)


def test_train_request_forget_audit_give_the_bits_of_one_process(outcome: Outcome, tmp_path: Path):
    settings = AppSettings.read(CONFIG)
    assert settings.request is not None
    train_run(tmp_path, settings.run)
    forget_run(tmp_path, [settings.request])
    expected = audit_run(tmp_path).to_json()["rows"]
    rows = outcome.summary["audit"]
    assert [row["method"] for row in rows] == ["before", "retrain", "ladder"]
    assert [row["model"] for row in rows] == [row["model"] for row in expected]
    assert [row["after_one_round"] for row in rows] == [row["after_one_round"] for row in expected]
    assert outcome.summary["rounds"] == 2
    assert outcome.summary["trained"] == expected[0]["model"]
    told = outcome.summary["forgotten"]["ladder:default"]
    assert told["digest"] == expected[2]["model"] != expected[0]["model"]
    assert told["notes"] == []
    assert (outcome.folder / "server" / "run" / "report.html").exists()
    assert len(table(outcome.summary).splitlines()) == 4


def test_the_site_that_withdrew_remembers_it(outcome: Outcome):
    states = {path.parent.parent.name: read_sealed(path) for path in outcome.folder.glob("*/state/node.json")}
    assert {name: state["withdrawn"] for name, state in states.items()} == {
        "site-0": [{"client": 0, "kind": "class", "label": 3}]
    }


def test_a_node_whose_key_nobody_registered_is_turned_away(outcome: Outcome):
    assert outcome.stranger == 1
    assert "Exit Code: 305" in (outcome.folder / "stranger" / "log").read_text()
    assert not (outcome.folder / "stranger" / "state").exists()


def test_only_tls_with_our_authority_gets_an_answer(outcome: Outcome):
    assert outcome.our_authority is None
    assert outcome.plain_http is not None
    assert isinstance(outcome.other_authority, ssl.SSLCertVerificationError)


def test_secrets_are_readable_by_their_owner_alone(outcome: Outcome):
    keys = sorted(outcome.folder.glob("*/*.key"))
    assert len(keys) == 2 + SITES + 1
    for path in (*keys, *(key.parent for key in keys)):
        assert path.stat().st_mode & 0o077 == 0, path


def test_everything_is_gone_afterwards(outcome: Outcome):
    deadline = time.monotonic() + 5.0
    while left_running(outcome.folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_running(outcome.folder) == []


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(DeploymentError, match="not empty"), deployment(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
