"""Nobody writes into the trail that somebody did something, without that somebody's proof."""

from __future__ import annotations

import json
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest
from ledger_commands import ASK, OS_USER, Command
from ledger_worlds import World, quick_passwords

from fedforget.ledger.states import Role

PASSWORD = "correct horse battery"


@pytest.fixture
def proven(fedforget: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`paula`, an officer, has a password; `tom`, an officer, has a token; `otto`, an officer, signs in elsewhere."""
    quick_passwords(monkeypatch)
    ledger = fedforget.world.ledger
    ledger.accounts.add("paula", "officer", password=PASSWORD)
    ledger.accounts.add("tom", "officer")
    ledger.accounts.add("otto", "officer", identity="https://login.example 42")
    return fedforget


def token(world: World, name: str) -> str:
    return world.ledger.accounts.make_token(name, "cron", actor=name, lasting=None)[0]


COMMANDS: dict[str, tuple[Any, ...]] = {
    "submit": (*ASK, "--class", 1),
    "accept": ("request", "accept"),
    "refuse": ("request", "refuse", "--reason", "x"),
    "extend": ("request", "extend", "--reason", "x"),
    "retry": ("request", "retry"),
    "retrain": ("request", "again"),
    "decide": ("request", "decide", "--reject", "--reason", "x"),
    "rollback": ("ledger", "rollback", "digits", "--to", 1, "--reason", "x"),
    "register": ("ledger", "register", "more", "nowhere"),
    "disable": ("account", "disable", "ann"),
}


def words(world: World, what: str) -> tuple[Any, ...]:
    said = COMMANDS[what]
    return (*said[:2], world.ask().id, *said[2:]) if said[0] == "request" and what != "submit" else said


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize("name", ["paula", "tom", "otto"])
def test_who_can_prove_who_they_are_must_do_so(proven: Command, what: str, name: str):
    token(proven.world, "tom")
    said = words(proven.world, what)
    before = proven.world.ledger.trail.head()
    assert f"'{name}' must prove itself: put a token of it into $FEDFORGET_TOKEN" in proven.refused(*said, "--as", name)
    assert proven.world.ledger.trail.head() == before


def test_a_token_proves(proven: Command, monkeypatch: pytest.MonkeyPatch):
    world = proven.world
    request = world.ask()
    monkeypatch.delenv("FEDFORGET_ACCOUNT")
    monkeypatch.setenv("FEDFORGET_TOKEN", token(world, "tom"))
    assert "is queued" in proven("request", "accept", request.id)
    assert [event.actor for event in world.ledger.trail.events(request=request.id, limit=2)] == ["tom", "tom"]
    assert "is of the account 'tom', not of 'paula'" in proven.refused("request", "accept", request.id, "--as", "paula")
    asked = proven.json(*ASK, "--class", 0, "--as", "Tom")
    assert asked["asked_by"] == "tom"
    (mine,) = world.ledger.accounts.tokens("tom")
    world.ledger.accounts.revoke_token(mine.id, actor="tom")
    assert "is no token, or not any more" in proven.refused("request", "accept", request.id)
    (denied,) = world.ledger.trail.events(kinds=["denied"])
    assert (denied.actor, json.loads(denied.body)["by"]) == ("system", "command")


def test_without_any_proof_the_trail_says_which_user_of_the_system_did_it(proven: Command):
    """Nobody has given oscar anything to prove himself with: the owner of the home acts, and does not hide."""
    world = proven.world
    asked = proven.json(*ASK, "--class", 1, "--as", "ann")
    assert asked["asked_by"] == "ann"
    (event,) = world.ledger.trail.events(request=asked["id"])
    assert event.actor == f"{OS_USER} as ann"
    proven("request", "accept", asked["id"])
    assert world.ledger.trail.events(request=asked["id"], limit=1)[0].actor == f"{OS_USER} as oscar"
    proven("keys", "rotate")
    proven("account", "add", "carl", "--role", "auditor")
    assert {event.actor for event in world.ledger.trail.events(limit=3)} == {OS_USER}
    assert world.ledger.trail.check().intact


def test_the_system_s_name_of_a_user_is_not_taken_from_the_environment(
    proven: Command, monkeypatch: pytest.MonkeyPatch
):
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "paula")
    proven("account", "add", "carl", "--role", "auditor")
    assert proven.world.ledger.trail.events(limit=1)[0].actor == OS_USER


@pytest.mark.parametrize(
    ("role", "what"),
    [
        (Role.REQUESTER, "accept"), (Role.REQUESTER, "register"), (Role.OPERATOR, "decide"), (Role.AUDITOR, "submit"),
        (Role.AUDITOR, "retry"), (Role.OFFICER, "disable"), (Role.REQUESTER, "rollback"), (Role.OPERATOR, "refuse"),
        (Role.OPERATOR, "retrain"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("with_token", [True, False])
def test_a_role_may_do_what_it_may_in_the_console(
    proven: Command, role: Role, what: str, with_token: bool, monkeypatch: pytest.MonkeyPatch
):
    world = proven.world
    world.ledger.accounts.add("rita", role)
    if with_token:
        monkeypatch.setenv("FEDFORGET_TOKEN", token(world, "rita"))
    assert f"'rita' is {role}, and may not" in proven.refused(*words(world, what), "--as", "rita")
    assert world.ledger.trail.events(limit=1)[0].kind == "denied"


def test_a_link_is_no_way_around(proven: Command):
    """Who owns the home could sign in as anybody by it."""
    token(proven.world, "tom")
    for name in ("paula", "tom", "otto"):
        assert "has a password, a token or a sign-in provider" in proven.refused("account", "link", name)
    assert proven.world.ledger.trail.events(kinds=["link made"]) == []
    proven("account", "add", "ada", "--role", "admin")
    proven("account", "link", "ada")
    assert proven.world.ledger.trail.events(limit=1)[0].actor == OS_USER


def typed(command: list[str], answer: str) -> tuple[int, str]:
    """Run a command at a terminal of its own, and type one line."""
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-m", "fedforget", *command])
    said = b""
    while True:
        try:
            data = os.read(terminal, 1024)
        except OSError:
            break
        if not data:
            break
        said += data
        if b"Password of" in said and answer:
            os.write(terminal, f"{answer}\n".encode())
            answer = ""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), said.decode()


@pytest.mark.real
@pytest.mark.parametrize(("password", "code"), [(PASSWORD, 0), ("correct horse", 2)])
def test_a_password_at_a_terminal_proves(proven: Command, tmp_path: Path, password: str, code: int):
    request = proven.world.ask()
    proven.world.ledger.accounts.change("paula", password=PASSWORD, actor="paula")
    found, said = typed(["request", "accept", request.id, "--as", "paula"], password)
    assert found == code, said
    assert password not in said
    event = proven.world.ledger.trail.events(limit=1)[0]
    assert (event.actor, event.kind) == ("paula", "queued" if code == 0 else "denied")
    assert "Traceback" not in said
