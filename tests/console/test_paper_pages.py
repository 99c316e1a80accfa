"""The papers on the page and in the API: printed certificates, letters, the register, and where data lives on."""

from __future__ import annotations

import csv
import io

from console_visits import Of, Program, on_both
from ledger_worlds import World

from fedforget.ledger.papers import code_of
from fedforget.ledger.statements import LINEAGE, read_statement
from fedforget.ledger.states import Role


@on_both
def test_a_done_request_has_papers_for_people(visit: Of, program: Program, world: World):
    request = world.served()
    signed = world.ledger.versions.certificate_of(request.id)
    assert signed is not None
    code = code_of(signed.sha256)
    oscar, ann = visit(Role.OFFICER), visit(Role.REQUESTER)
    page = oscar.get(f"/requests/{request.id}").text
    for link in ("certificate.html", "certificate.pdf", "letters", "lineage"):
        assert f'href="/requests/{request.id}/{link}"' in page
    shown = ann.get(f"/requests/{request.id}/certificate.html")
    assert code in shown.text
    assert shown.headers["content-security-policy"].startswith("sandbox")
    assert ann.get(f"/requests/{request.id}/certificate.pdf").content.startswith(b"%PDF-")
    assert ann.get(f"/requests/{world.ask().id}/certificate.html").status_code == 404
    assert "The result is: forgotten." in oscar.get(f"/requests/{request.id}/letters").text
    assert ann.get(f"/requests/{request.id}/letters").status_code == 403
    letters = program(Role.OFFICER).get(f"/api/v1/requests/{request.id}/letters").json()
    assert list(letters) == ["done", "complaint", "received"]


@on_both
def test_the_code_of_a_printed_certificate_is_looked_up(visit: Of, program: Program, world: World):
    request = world.served()
    signed = world.ledger.versions.certificate_of(request.id)
    assert signed is not None
    code, ann = code_of(signed.sha256), visit(Role.REQUESTER)
    assert f"Code {code}, about class 1 of client 0." in ann.post("/verify", {"code": code.upper()}).text
    assert "No certificate of this ledger has this code" in ann.post("/verify", {"code": "0" * 20}).text
    asked = program(Role.AUDITOR)
    assert asked.get("/api/v1/certificates", params={"code": code}).json()["withdrawn"] is False
    world.ledger.withdrawals.withdraw(request.id, "It still knows them.", actor="oscar")
    assert asked.get("/api/v1/certificates", params={"code": code}).json()["withdrawn"] is True
    assert "It holds no more." in ann.get(f"/requests/{request.id}/certificate.html").text


def test_the_register_is_the_staffs(visit: Of, program: Program, world: World):
    request = world.ask()
    world.ledger.requests.refuse(request.id, "=1+1", actor="oscar")
    oscar = visit(Role.OFFICER)
    assert 'href="/register"' in oscar.get("/").text
    assert "Register of requests" in oscar.get("/register").text
    days = {"first": "2026-01-01", "last": "2026-12-31"}
    answer = oscar.get("/register.csv?first=2026-01-01&last=2026-12-31")
    assert answer.headers["content-disposition"] == 'attachment; filename="register-2026-01-01-2026-12-31.csv"'
    (row,) = csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig")))
    assert (row["state"], row["reason"]) == ("refused", "'=1+1")
    assert oscar.get("/register.pdf").content.startswith(b"%PDF-")
    assert program(Role.AUDITOR).get("/api/v1/register", params=days).json()[0]["reason"] == "=1+1"
    assert visit(Role.REQUESTER).get("/register.csv").status_code == 403
    assert program(Role.AUDITOR).get("/api/v1/register", params={"first": "2027-01-01"}).status_code == 422


def test_where_data_lives_on(visit: Of, program: Program, world: World):
    request = world.served()
    otto = visit(Role.OPERATOR)
    page = otto.get(f"/requests/{request.id}/lineage").text
    assert "weights of version 1 of digits" in page
    assert "kept until 2026-03-02" in page
    found = program(Role.AUDITOR).get(f"/api/v1/requests/{request.id}/lineage").json()
    assert found["traces"][0]["fate"] == "kept until"
    receipt = otto.post(f"/requests/{request.id}/lineage/receipt", {})
    assert read_statement(receipt.content, "it")[0].kind == LINEAGE
    audrey = visit(Role.AUDITOR)
    assert "Destroy what is due" not in audrey.get(f"/requests/{request.id}/lineage").text
    assert audrey.post(f"/requests/{request.id}/lineage/destroy", {}).status_code == 403
    world.clock.go_on(days=31)
    otto = visit(Role.OPERATOR)  # the session is over
    answer = otto.post(f"/requests/{request.id}/lineage/destroy", {})
    assert (answer.status_code, "The clock went ahead by 30 days" in answer.text) == (409, True)
    world.begun_anew()
    assert otto.post(f"/requests/{request.id}/lineage/destroy", {}).status_code == 303
    assert world.ledger.versions.get("digits", 1).state == "superseded", "it is announced first"
    world.clock.go_on(days=1)
    world.begun_anew()
    otto = visit(Role.OPERATOR)
    assert otto.post(f"/requests/{request.id}/lineage/destroy", {}).status_code == 303
    assert "destroyed" in otto.get(f"/requests/{request.id}/lineage").text
    assert world.ledger.versions.get("digits", 1).state == "destroyed"
