"""Whatever was tampered with is refused, and that it was is written down."""

from __future__ import annotations

import sqlite3

import pytest
from console_visits import Of, Program, denials
from fastapi import FastAPI
from ledger_worlds import World
from signed_again import forged

from fedforget.console.state import RateLimit
from fedforget.ledger.states import Role

CHANGES = {
    "a figure": lambda text: forged(text, '"accuracy_after":90', '"accuracy_after":99'),
    "the subject": lambda text: forged(text, "case-1", "case-2"),
    "the verdict": lambda text: forged(text, '"word":"forgotten"', '"word":"over-forgotten"'),
    "the signature": lambda text: text.replace('"sig":"', '"sig":"AAAA'),
    "another key": lambda text: text.replace('"keyid":"', '"keyid":"ffff'),
    "nothing left": lambda text: "{}",
    "no JSON": lambda text: text[:-20],
    "numbers too big": lambda text: "[" * 5000,
}


@pytest.mark.daily(3)
@pytest.mark.parametrize("case", CHANGES)
def test_a_certificate(visit: Of, program: Program, world: World, case: str):
    request = world.served()
    certificate = world.ledger.versions.certificate_of(request.id)
    assert certificate is not None
    other = CHANGES[case](certificate.content)
    assert other != certificate.content
    auditor = visit(Role.AUDITOR)
    assert "Genuine." in auditor.post("/verify", {"certificate": certificate.content}).text
    answer = auditor.post("/verify", {"certificate": other})
    assert answer.status_code == 422
    assert "Refused." in answer.text
    event = world.ledger.trail.events(kinds=["denied"])[0]
    assert event.actor == "audrey"
    assert event.to_json()["body"]["by"] == "certificate"
    answer = program(Role.AUDITOR).post(
        "/api/v1/certificates/verify", content=other, headers={"content-type": "application/json"}
    )
    assert answer.status_code in (400, 422)


def test_an_event(visit: Of, world: World):
    """Somebody with the database's file in hand takes the rules away and rewrites what was said."""
    request, officer = world.ask(), visit(Role.OFFICER)
    pin = str(world.ledger.trail.head())
    assert "Chain intact." in officer.post("/trail/check", {"pins": pin}).text
    with sqlite3.connect(world.ledger.home / "ledger.sqlite") as file:
        rules = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in rules:
            file.execute(f'DROP TRIGGER "{name}"')
        file.execute("UPDATE events SET actor = 'mallory' WHERE request = ?", (request.id,))
    answer = officer.post("/trail/check")
    assert "Not intact." in answer.text
    assert "was changed" in answer.text
    assert checked(world) == (False, "was changed")
    answer = officer.post("/trail/check", {"whole": "yes"}).text
    assert "is missing from the database" in answer, "the rules are missed too"
    assert "could not be recorded" in answer, "and without them no event can be appended"


def test_a_model_file(visit: Of, world: World):
    world.served()
    path = world.ledger.models.path(world.ledger.versions.current("digits").sha256)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o600)
    path.write_bytes(bytes(data))
    auditor = visit(Role.AUDITOR)
    assert "Chain intact." in auditor.post("/trail/check").text, "the chain itself is"
    answer = auditor.post("/trail/check", {"whole": "yes"}).text
    assert "Not intact." in answer
    assert not checked(world)[0]


def checked(world: World) -> tuple[bool, str]:
    body = world.ledger.trail.events(kinds=["checked"])[0].to_json()["body"]
    return body["intact"], "was changed" if any("was changed" in words for words in body["problems"]) else ""


def test_a_pin_of_another_ledger(visit: Of, world: World):
    foreign = f"fedforget-pin-1 {'a' * 32} 1 {'b' * 64}"
    answer = visit(Role.AUDITOR).post("/trail/check", {"pins": foreign}).text
    assert "Not intact." in answer
    assert visit(Role.AUDITOR).post("/trail/check", {"pins": "nonsense"}).status_code == 422


def test_certificates_that_are_none_do_not_fill_the_ledger(program: Program, world: World, app: FastAPI):
    app.state.console.denials.limit = RateLimit(3)
    client = program(Role.REQUESTER)
    statuses = [client.post("/api/v1/certificates/verify", json={"n": n}).status_code for n in range(6)]
    assert statuses == [422, 422, 422, 429, 429, 429]
    assert len(denials(world.ledger)) == 3


def test_the_pin_is_a_file_to_keep(visit: Of, world: World):
    answer = visit(Role.AUDITOR).get("/trail/pin.txt")
    assert answer.text == f"{world.ledger.trail.head()}\n"
    assert answer.headers["content-disposition"].startswith("attachment")
