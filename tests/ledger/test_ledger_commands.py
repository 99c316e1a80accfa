"""The commands: `fedforget request|ledger|keys|account|verify`, as a person and as cron would say them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ledger_commands import ASK, OS_USER, Command
from signed_again import forged
from typer.testing import CliRunner

from fedforget.cli.app import app
from fedforget.ledger.book import Ledger


def test_from_submission_to_certificate(fedforget: Command, tmp_path: Path):
    ledger = fedforget.world.ledger
    asked = fedforget.json(*ASK, "--class", 1)
    assert (asked["state"], asked["created"], asked["asked_by"]) == ("received", True, "oscar")
    again = fedforget(*ASK, "--class", 1)
    assert "It was there before" in again
    id = asked["id"]
    assert [r["id"] for r in fedforget.json("request", "list")] == [id]
    assert fedforget.json("request", "accept", id[:8])["state"] == "queued"
    assert fedforget.json("request", "extend", id, "--reason", "three sites", "--months", 2)["extended"] == 2
    assert "has no certificate yet" in fedforget.refused("request", "show", id, "--certificate", tmp_path / "c.json")
    fedforget.world.clock.now = ledger.clock().replace(year=3000)
    fedforget.world.serve()
    papers = {name: tmp_path / f"{name}.json" for name in ("certificate", "evidence")}
    shown = fedforget("request", "show", id, *(word for name in papers for word in (f"--{name}", papers[name])))
    assert "state: done" in shown
    assert "done  by worker/first" in shown
    said = fedforget("verify", papers["certificate"], "--evidence", papers["evidence"], "--model",
                     ledger.models.path(ledger.versions.current("digits").sha256))  # fmt: skip
    assert "The signature is genuine" in said
    assert "The evidence is the one that was signed" in said
    assert "The model is the one that was published" in said
    assert fedforget.json("request", "list") == []
    assert [r["id"] for r in fedforget.json("request", "list", "--state", "done")] == [id]


def test_verify_needs_the_right_key(fedforget: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ledger = fedforget.world.ledger
    certificate = ledger.versions.certificate_of(fedforget.world.served().id)
    assert certificate is not None
    file = tmp_path / "certificate.json"
    file.write_text(certificate.content)
    (key,) = ledger.keys.folder.glob("*.public.pem")
    said = fedforget.json("verify", file)
    assert (said["verified"], said["checked"]) == (True, {"evidence": False, "model": False})
    assert "Not compared with files: name them with --evidence and --model." in fedforget("verify", file)
    monkeypatch.setenv("FEDFORGET_HOME", str(tmp_path / "elsewhere"))
    assert "name it with --key" in fedforget.refused("verify", file)
    assert fedforget.json("verify", file, "--key", key)["verified"]
    other = Ledger.open(tmp_path / "other", f"sqlite:///{tmp_path / 'other.sqlite'}")
    other.keys.make()
    assert "none of yours" in fedforget.refused("verify", file, "--key", other.keys.folder)
    other.close()
    (tmp_path / "wrong").write_text("x")
    assert "is not the model" in fedforget.refused("verify", file, "--key", key, "--model", tmp_path / "wrong")
    assert "no evidence file" in fedforget.refused("verify", file, "--key", key, "--evidence", tmp_path / "wrong")
    file.write_text(forged(certificate.content, "case-1", "case-2"))
    assert "was changed" in fedforget.refused("verify", file, "--key", key)
    assert "cannot be read" in fedforget.refused("verify", tmp_path / "missing", "--key", key)
    assert "is no certificate" in fedforget.refused("verify", tmp_path / "wrong", "--key", key)


def test_a_decision_is_told(fedforget: Command, tmp_path: Path):
    request = fedforget.world.queued()
    fedforget.world.serve(says="over-forgotten")
    said = fedforget("request", "decide", request.id, "--publish", "--reason", "It is a prototype.")
    assert f"Request {request.id} is done" in said
    fedforget("request", "show", request.id, "--certificate", tmp_path / "c")
    assert f"Published by decision of {OS_USER} as oscar: It is a prototype." in fedforget("verify", tmp_path / "c")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((*ASK,), "Name one target, and whose it is: --client 0 with "),
        ((*ASK, "--class", 1, "--whole-client"), "Name one target, and whose it is: --client 0 with "),
        ((*ASK, "--class", 1, "--feature", 2), "Name one target, and whose it is: --client 0 with "),
        ((*ASK, "--feature", "a"), "'a' is no feature; give the number of a column, or a patch"),
        ((*ASK, "--feature", 6), "Column 6 does not exist; the table has columns 0 to 5"),
        ((*ASK, "--class", 9), "Class 9 does not exist"),
        ((*ASK, "--samples", "nowhere"), "cannot be read"),
        ((*ASK, "--class", 1, "--as", "nobody"), "no account 'nobody'; name one with --as"),
        (("request", "show", "123456"), "no request"),
        (("request", "show", "xyz"), "named by its id"),
        (("request", "list", "--state", "lost"), "state 'lost' is unknown"),
        (("keys", "make"), "rotate"),
        (("ledger", "check", "--pin", "nowhere"), "cannot be read"),
        (("ledger", "check", "--pin", "fedforget-pin"), "no pin"),
        (("ledger", "rollback", "digits", "--to", 7, "--reason", "x"), "no version 7"),
    ],
)
def test_refusals_are_sentences(fedforget: Command, words: tuple[Any, ...], complaint: str):
    assert complaint in fedforget.refused(*words)


def test_samples_whole_clients_and_features(fedforget: Command, tmp_path: Path):
    (tmp_path / "ids").write_text("3, 1\n2")
    assert fedforget.json(*ASK, "--samples", tmp_path / "ids")["target"]["sample_ids"] == [1, 2, 3]
    assert fedforget.json(*ASK, "--whole-client")["describes"] == "everything of client 0"
    assert fedforget.json(*ASK, "--feature", "4")["target"] == {"client": 0, "kind": "feature", "feature": [4]}
    (tmp_path / "ids").write_text("3 x")
    assert "is no sample id; give a whole number" in fedforget.refused(*ASK, "--samples", tmp_path / "ids")


def test_refuse_and_retry(fedforget: Command):
    world = fedforget.world
    refused = world.ask()
    assert "is refused" in fedforget("request", "refuse", refused.id, "--reason", "Not ours.")
    assert world.ledger.requests.get(refused.id).reason == "Not ours."
    failed = world.queued()
    world.ledger.work.fail(world.claim(), "broken", retry=False)
    assert fedforget.json("request", "retry", failed.id)["state"] == "queued"
    assert world.ledger.trail.events(request=failed.id, limit=1)[0].actor == f"{OS_USER} as oscar"


def test_what_an_officer_wants_retrained(fedforget: Command):
    world = fedforget.world
    held = world.queued()
    world.serve(says="not forgotten")
    assert "never tried in this federation" in fedforget("request", "options", held.id)
    assert [option["act"] for option in fedforget.json("request", "options", held.id)][-2:] == ["publish", "refuse"]
    assert "is queued" in fedforget("request", "again", held.id)
    assert world.ledger.requests.get(held.id).effort == "retrain"
    assert "it cannot be tried again now" in fedforget.refused("request", "again", held.id, "--effort", "rebuild")
    assert "neither waits" in fedforget("request", "options", held.id)


def test_how_requests_are_served_is_changed_from_a_terminal(fedforget: Command):
    world = fedforget.world
    line = fedforget("ledger", "change", "digits", "--at-most", "rebuild", "--four-eyes", "--reason", "We want it.")
    assert "digits is served by ladder (default) from now on" in line
    row = world.ledger.federations.get("digits")
    assert (row.settings["at_most"], row.four_eyes) == ("rebuild", True)
    less = ("ledger", "change", "digits", "--two-eyes", "--reason", "It is quicker.")
    assert "may not switch four eyes off" in fedforget.refused(*less)
    assert "The rung 'x'" in fedforget.refused("ledger", "change", "digits", "--effort", "x", "--reason", "y")
    one, two = world.ask().id, world.ask().id
    fedforget("request", "choose", one, "--effort", "rebuild", "--keep-days", "1")
    assert (world.ledger.requests.get(one).effort, world.ledger.requests.get(one).keep_days) == ("rebuild", 1)
    fedforget("request", "identity", one, "--how", "Known from the contract.")
    assert world.ledger.trail.events(request=one, limit=1)[0].kind == "identity checked"
    assert fedforget("request", "accept", one, two).count("is queued") == 2
    assert len(fedforget.json("request", "list", "--find", one[2:9].upper())) == 1


def test_a_federation_says_below_which_forecast_it_is_simply_retrained(fedforget: Command, run: Path):
    assert fedforget.json("ledger", "register", "plain", run)["settings"] == {"exact_below": 60.0}
    assert fedforget.json("ledger", "register", "climbs", run, "--exact-below", 0)["settings"] == {"exact_below": 0.0}
    assert fedforget.json("ledger", "register", "exact", run, "--method", "retrain")["settings"] == {}
    alone = fedforget.json("ledger", "register", "alone", run, "--effort", "retrain", "--four-eyes", "--together", 3)
    assert (alone["settings"]["lowest"], alone["settings"]["at_most"]) == ("retrain", "retrain")
    assert (alone["four_eyes"], alone["together"], alone["audit_level"]) == (True, 3, "quick")
    for words, complaint in (
        (("--exact-below", -1), "'exact_below' of 'ladder' is -1.0, but it must be a finite number, 0 or larger"),
        (("--exact-below", 5, "--method", "retrain"), "'retrain' has no setting 'exact_below'"),
    ):
        assert complaint in fedforget.refused("ledger", "register", "other", run, *words)


def test_a_list_shows_what_is_late(fedforget: Command):
    world = fedforget.world
    world.clock.now = world.clock.now.replace(year=2020)
    world.ask()
    world.clock.now = world.clock.now.replace(year=2999)
    world.ask()
    assert "(late)" in fedforget("request", "list", "--due-within", 7)
    assert len(fedforget.json("request", "list", "--due-within", 7)) == 1
    assert len(fedforget.json("request", "list")) == 2
    assert "Nothing is open." in fedforget("request", "list", "--state", "done")


def test_pin_check_backup_restore(fedforget: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fedforget.world.served()
    pin = fedforget("ledger", "pin", "--out", tmp_path / "pin").strip()
    assert (tmp_path / "pin").read_text().strip() == pin
    assert fedforget.json("ledger", "check", "--pin", tmp_path / "pin", "--pin", pin)["intact"]
    assert "is intact" in fedforget("ledger", "check")
    fedforget("ledger", "backup", tmp_path / "b.tar.gz")
    monkeypatch.delenv("FEDFORGET_LEDGER")
    assert "is intact" in fedforget(
        "ledger", "restore", tmp_path / "b.tar.gz", "--home", tmp_path / "new", "--pin", pin
    )
    assert fedforget.json("ledger", "check", "--home", tmp_path / "new", "--pin", pin)["intact"]
    path = next((tmp_path / "new" / "models").iterdir())
    path.write_bytes(b"x")
    assert "was changed" in fedforget("ledger", "check", "--home", tmp_path / "new", code=1)


def test_migrate_says_what_it_did(fedforget: Command):
    assert "is 0009 already" in fedforget("ledger", "migrate")


def test_keys(fedforget: Command):
    new = fedforget.json("keys", "rotate")
    assert [key["retired"] is None for key in fedforget.json("keys", "list")] == [False, True]
    assert f"{new['id']}  made" in fedforget("keys", "list")


def test_accounts(fedforget: Command):
    assert "Added carl, auditor" in fedforget("account", "add", "carl", "--role", "auditor")
    assert "carl  auditor" in fedforget("account", "list")
    link = fedforget.json("account", "link", "carl", "--console", "https://erase.example.org/")["link"]
    assert link.startswith("https://erase.example.org/link/")
    person = fedforget.world.ledger.accounts.redeem_link(link.rpartition("/")[2])
    assert person is None, "the clock of this test is a thousand years ahead"
    assert "is officer, and may not keep accounts" in fedforget.refused("account", "disable", "carl")
    fedforget("account", "add", "ada", "--role", "admin")
    assert fedforget.json("account", "disable", "carl", "--as", "ada")["disabled"]
    assert "is disabled" in fedforget.refused(*ASK, "--class", 1, "--as", "carl")


def test_rollback(fedforget: Command):
    request = fedforget.world.served()
    assert fedforget.json("ledger", "rollback", "digits", "--to", 1, "--reason", "broken")["restores"] == 1
    assert "certificate was withdrawn" in fedforget("request", "show", request.id)


def test_without_the_extra_the_command_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    import sys

    # The import below makes a new, empty fedforget.ledger; the whole one must be there again for the tests after this.
    monkeypatch.setattr("fedforget.ledger", sys.modules["fedforget.ledger"])
    for name in [name for name in sys.modules if name.startswith("fedforget.ledger")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    said = CliRunner().invoke(app, ["request", "list", "--home", str(tmp_path)])
    assert "pip install 'fedforget[service]'" in str(said.exception)
