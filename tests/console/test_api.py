"""The API: typed answers, pages, and one status for each kind of error."""

from __future__ import annotations

import pytest
from console_visits import Of, Program, Visit, on_both
from fastapi import FastAPI
from ledger_worlds import World, change_federation

from fedforget.console.models import RequestOut
from fedforget.ledger.certificate import read_certificate
from fedforget.ledger.chain import sha256_of
from fedforget.ledger.errors import BusyError
from fedforget.ledger.papers import code_of
from fedforget.ledger.states import Role
from fedforget.requests import ErasureRequest

ASK = {
    "federation": "digits",
    "client": 0,
    "target": {"kind": "class", "label": 1},
    "subject": "s-1",
    "ground": "objection",
}


@on_both
def test_a_request_by_a_program(program: Program, world: World):
    ann, oscar = program(Role.REQUESTER), program(Role.OFFICER)
    made = ann.post("/api/v1/requests", json=ASK)
    assert made.status_code == 201
    row = made.json()
    assert RequestOut.model_validate(row).describes == "class 1 of client 0"
    assert (row["target"]["label"], row["state"], row["overdue"]) == (1, "received", False)
    again = ann.post("/api/v1/requests", json=ASK)
    assert (again.status_code, again.json()["id"]) == (200, row["id"])
    path = f"/api/v1/requests/{row['id']}"
    assert ann.post(f"{path}/accept").status_code == 403
    assert oscar.post(f"{path}/accept").json()["state"] == "queued"
    assert oscar.post(f"{path}/extend", json={"months": 2, "reason": "Complex."}).json()["extended"] == 2
    world.serve()
    done = ann.get(path).json()
    assert (done["state"], done["version"]) == ("done", 2)
    kinds = [event["kind"] for event in ann.get(f"{path}/events").json()]
    assert kinds == ["received", "accepted", "queued", "extended", "forgetting", "auditing", "done", "certified"]
    certificate = ann.get(f"{path}/certificate")
    signed = read_certificate(certificate.text)
    assert ann.post("/api/v1/certificates/verify", json=certificate.json()).json() == {
        "genuine": True, "request": row["id"], "verdict": "forgotten", "key": signed["key"],
        "issued": signed["issued"], "decision": None, "withdrawn": False, "why_withdrawn": None,
        "code": code_of(sha256_of(certificate.text)), "describes": "class 1 of client 0",
    }  # fmt: skip
    assert ann.get(f"{path}/evidence").json()["verdict"]["word"] == "forgotten"
    assert ann.get(f"{path}/report").status_code == 404


@on_both
def test_a_feature_by_a_program(program: Program, world: World):
    ann = program(Role.REQUESTER)
    made = ann.post("/api/v1/requests", json=ASK | {"target": {"kind": "feature", "feature": [5]}})
    assert made.status_code == 201
    assert (made.json()["describes"], made.json()["target"]["feature"]) == ("column 5 of client 0", [5])
    assert world.ledger.requests.get(made.json()["id"]).erasure == ErasureRequest.of_feature(0, 5)
    assert ann.get("/api/v1/federations/digits").json()["shape"] == [6]
    for feature, words in (([], "is no feature"), ([1, 2], "is no feature"), ([6], "Column 6 does not exist")):
        answer = ann.post("/api/v1/requests", json=ASK | {"target": {"kind": "feature", "feature": feature}})
        assert answer.status_code == 422
        assert words in answer.json()["detail"]
    change_federation(world.ledger, "digits", method="cdp", actor="oscar")
    answer = ann.post("/api/v1/requests", json=ASK | {"target": {"kind": "feature", "feature": [4]}})
    assert answer.status_code == 422
    assert "Method 'cdp' cannot forget column 4 of client 0" in answer.json()["detail"]


def test_decide_retry_and_roll_back(program: Program, world: World):
    oscar = program(Role.OFFICER)
    request = world.queued()
    world.serve(says="not forgotten")
    path = f"/api/v1/requests/{request.id}"
    (listed,) = oscar.get("/api/v1/requests").json()["requests"]
    assert (listed["state"], listed["verdict"]) == ("deciding", "not forgotten")
    assert oscar.get(path).json()["verdict"] == "not forgotten"
    assert oscar.post(f"{path}/decide", json={"publish": False, "reason": "No."}).json()["state"] == "failed"
    assert oscar.post(f"{path}/retry").json()["state"] == "queued"
    assert oscar.get(path).json()["verdict"] is None, "the one before was rejected"
    world.serve()
    assert oscar.get(path).json()["verdict"] == "forgotten"
    versions = oscar.get("/api/v1/federations/digits/versions").json()
    assert [(v["number"], v["parent"], v["state"]) for v in versions] == [(1, None, "superseded"), (2, 1, "current")]
    assert oscar.get("/api/v1/federations/digits/versions/2").json() == versions[1]
    rolled = oscar.post("/api/v1/federations/digits/rollback", json={"to": 1, "reason": "Wrong."}).json()
    assert (rolled["number"], rolled["restores"], rolled["kind"]) == (3, 1, "rollback")
    assert oscar.get(path).json()["state"] == "failed"
    withdrawn = oscar.get(f"{path}/certificate")
    assert "x-fedforget-withdrawn" in withdrawn.headers
    assert oscar.post("/api/v1/certificates/verify", json=withdrawn.json()).json()["withdrawn"] is True


def test_have_it_retrained(program: Program, world: World):
    request = world.queued()
    world.serve(says="not forgotten")
    path = f"/api/v1/requests/{request.id}/again"
    assert program(Role.OPERATOR).post(path, json={}).status_code == 403
    options = program(Role.OFFICER).get(f"/api/v1/requests/{request.id}/options").json()
    assert [(o["act"], o["effort"]) for o in options] == [
        ("again", "overwrite"), ("again", "retrain"), ("publish", None), ("refuse", None),
    ]  # fmt: skip
    assert all(option["costs"] and option["buys"] for option in options)
    assert program(Role.OFFICER).post(path, json={}).json()["state"] == "queued"
    assert world.claim().requests[0].effort == "retrain"
    answer = program(Role.OFFICER).post(path, json={"effort": "rebuild"})
    assert answer.status_code == 409
    assert answer.json()["detail"] == "The request is forgetting; it cannot be tried again now."


def test_receipt_identity_and_search(program: Program, world: World):
    oscar = program(Role.OFFICER)
    early = {"received": "2026-01-05", "channel": "letter"}
    made = oscar.post("/api/v1/requests", json=ASK | early).json()
    assert (made["received"][:10], made["due"][:10], made["channel"]) == ("2026-01-05", "2026-02-05", "letter")
    late = oscar.post("/api/v1/requests", json=ASK | {"subject": "x", "received": "2027-01-05"})
    assert (late.status_code, "lies in the future" in late.json()["detail"]) == (422, True)
    path = f"/api/v1/requests/{made['id']}"
    assert oscar.post(f"{path}/identity", json={"how": "By telephone, at the known number."}).status_code == 200
    assert program(Role.REQUESTER).post(f"{path}/identity", json={"how": "x"}).status_code == 403
    assert oscar.get(f"{path}/events").json()[-1]["kind"] == "identity checked"

    def found(**asked: str) -> int:
        return len(oscar.get("/api/v1/requests", params=asked).json()["requests"])

    assert found(text=made["subject"][1:].upper()) == found(ground=made["ground"]) == 1
    assert found(received_from="2026-01-05T00:00:00", received_before="2026-01-06T00:00:00") == 1
    assert found(text="%") == found(verdict="exact") == found(received_from="2026-01-06T00:00:00") == 0


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_moment_beyond_the_calendar_is_refused(program: Program, moment: str):
    for name in ("received_from", "received_before", "due_before"):
        answer = program(Role.OFFICER).get("/api/v1/requests", params={name: moment})
        assert (answer.status_code, "no moment of this calendar" in answer.json()["detail"]) == (422, True)


def test_served_in_another_way(program: Program, world: World):
    oscar, request = program(Role.OFFICER), world.ask()
    change = {"keep_days": 5, "four_eyes": True, "settings": {"at_most": "rebuild"}, "reason": "We want it so."}
    for role in (Role.OPERATOR, Role.AUDITOR):
        assert program(role).post("/api/v1/federations/digits/change", json=change).status_code == 403
    changed = oscar.post("/api/v1/federations/digits/change", json=change).json()
    assert (changed["keep_days"], changed["four_eyes"], changed["settings"]["at_most"]) == (5, True, "rebuild")
    path = f"/api/v1/requests/{request.id}/choose"
    assert oscar.post(path, json={"at_most": "overwrite", "keep_days": 1}).json()["at_most"] == "overwrite"
    assert oscar.post(path, json={"at_most": None}).json()["at_most"] is None
    assert oscar.post(path, json={"at_most": "moon"}).status_code == 422
    assert program(Role.OPERATOR).post(path, json={}).status_code == 403


def test_an_officer_does_not_switch_four_eyes_off(program: Program, visit: Of, world: World):
    """Who may decide no longer would otherwise switch it off, decide, and switch it on again."""
    path, change = "/api/v1/federations/digits/change", {"four_eyes": False, "reason": "It is quicker."}
    world.ledger.federations.change("digits", "Two people.", actor="ada", four_eyes=True)
    refused = program(Role.OFFICER).post(path, json=change)
    assert (refused.status_code, "an admin" in refused.json()["detail"]) == (409, True)
    form = {"method": "retrain", "audit_level": "quick", "accuracy_limit": "3", "keep_days": "9", "allowance": "3",
            "reason": "It is quicker."}  # fmt: skip
    assert visit(Role.OFFICER).post("/federations/digits/change", form).status_code == 409
    assert world.ledger.federations.get("digits").four_eyes
    assert visit(Role.OFFICER).post("/federations/digits/change", form | {"four_eyes": "yes"}).status_code == 303
    assert program(Role.ADMIN).post(path, json=change).json()["four_eyes"] is False


def test_several_are_accepted_at_once(program: Program, world: World):
    ids, gone = [world.ask().id for _ in range(3)], world.served().id
    told = program(Role.OFFICER).post("/api/v1/requests/accept", json={"ids": [*ids, gone, "0" * 32]}).json()
    assert [one["state"] for one in told] == ["queued"] * 3 + [None, None]
    assert [one["problem"] for one in told[3:]] == [
        "The request is done; it cannot become accepted by this.", f"There is no request '{'0' * 32}'.",
    ]  # fmt: skip


def test_pages_of_requests(program: Program, world: World):
    ids = [world.ask().id for _ in range(7)]
    auditor, seen, after = program(Role.AUDITOR), [], None
    for _ in range(4):
        page = auditor.get("/api/v1/requests", params={"limit": 3} | ({"after": after} if after else {})).json()
        seen += [row["id"] for row in page["requests"]]
        after = page["next"]
        if after is None:
            break
    assert seen == ids[::-1], "newest first"
    assert len(auditor.get("/api/v1/requests?state=queued&state=done").json()["requests"]) == 0
    assert len(auditor.get("/api/v1/requests?subject=case-3&federation=digits&order=due").json()["requests"]) == 1
    assert len(auditor.get("/api/v1/requests?due_before=2026-01-01T00:00:00").json()["requests"]) == 0


def test_pages_of_events(program: Program, world: World):
    auditor, before, seen = program(Role.AUDITOR), None, []
    while True:
        page = auditor.get("/api/v1/events", params={"limit": 4} | ({"before": before} if before else {})).json()
        seen += [event["number"] for event in page["events"]]
        before = page["next"]
        if before is None:
            break
    assert seen == list(range(len(seen), 0, -1))
    assert {e["kind"] for e in auditor.get("/api/v1/events?kind=account added").json()["events"]} == {"account added"}
    head = auditor.get("/api/v1/chain").json()
    assert head["pin"] == str(world.ledger.trail.head())
    checked = auditor.post("/api/v1/chain/check", json={"pins": [head["pin"]], "whole": True}).json()
    assert (checked["intact"], checked["problems"]) == (True, [])
    assert world.ledger.trail.events(kinds=["checked"])[0].actor == "audrey"


PROBLEMS = {
    "not there": ("get", "/api/v1/requests/" + "0" * 32, None, 404),
    "no id": ("get", "/api/v1/requests/x", None, 404),
    "no such federation": ("get", "/api/v1/federations/x", None, 404),
    "no such version": ("get", "/api/v1/federations/digits/versions/9", None, 404),
    "no route": ("get", "/api/v1/nothing", None, 404),
    "wrong method": ("delete", "/api/v1/requests", None, 405),
    "no cursor": ("get", "/api/v1/requests?after=x", None, 422),
    "no number": ("get", "/api/v1/requests?limit=x", None, 422),
    "no subject": ("post", "/api/v1/requests", ASK | {"subject": "Jane Doe"}, 422),
    "unknown field": ("post", "/api/v1/requests", ASK | {"extra": 1}, 422),
    "not there to forget": ("post", "/api/v1/requests", ASK | {"client": 77}, 422),
    "no pin": ("post", "/api/v1/chain/check", {"pins": ["x"]}, 422),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_problems(program: Program, case: str):
    method, path, body, status = PROBLEMS[case]
    answer = program(Role.ADMIN).request(method, path, json=body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["detail"]
    assert "Traceback" not in answer.text


def test_what_is_wrong_with_which_field(program: Program):
    answer = program(Role.ADMIN).post("/api/v1/requests", json={"federation": "digits", "client": -1, "target": {}})
    assert {"client", "target.kind", "subject", "ground"} == answer.json()["fields"].keys()


def test_a_busy_ledger_is_503(program: Program, visit: Of, world: World, monkeypatch: pytest.MonkeyPatch):
    client, page = program(Role.ADMIN), visit(Role.ADMIN)

    def busy(*_: object, **__: object) -> None:
        raise BusyError("The ledger's database does not answer: locked.")

    monkeypatch.setattr(world.ledger.requests, "page", busy)
    for answer in (client.get("/api/v1/requests"), page.get("/")):
        assert answer.status_code == 503
        assert "does not answer" in answer.text
    assert client.get("/api/v1/requests").headers["retry-after"] == "2"
    monkeypatch.setattr(world.ledger.accounts, "session", busy)
    assert page.get("/").status_code == 503, "also where the error page cannot know who asks"


def test_a_mistake_of_ours_tells_nothing(visit: Of, world: World, monkeypatch: pytest.MonkeyPatch):
    ada = visit(Role.ADMIN)
    ada.client.__dict__["_transport"].raise_server_exceptions = False

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(world.ledger.requests, "page", broken)
    for path in ("/", "/api/v1/requests"):
        answer = ada.get(path)
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_it_describes_itself(program: Program, stranger: Visit, app: FastAPI):
    assert stranger.get("/api/v1/openapi.json").status_code == 401, "not even the description, without a role"
    described = program(Role.REQUESTER).get("/api/v1/openapi.json").json()
    assert described == app.openapi()
    assert len(described["paths"]) > 20
    assert all(path.startswith(("/api/v1/", "/api/opendsr/v2")) for path in described["paths"])
    for methods in described["paths"].values():
        for operation in methods.values():
            content = operation["responses"]["404"]["content"]
            assert content == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


def test_who_am_i(program: Program):
    me = program(Role.AUDITOR).get("/api/v1/me").json()
    assert (me["name"], me["role"]) == ("audrey", "auditor")
    assert "check the ledger" in me["may"]
    assert "keep accounts" not in me["may"]


def test_what_an_admin_reads_by_api(program: Program):
    ada = program(Role.ADMIN)
    assert {row["name"] for row in ada.get("/api/v1/accounts").json()} >= {"ann", "ada"}
    assert len(ada.get("/api/v1/keys").json()) == 1
    assert [f["name"] for f in ada.get("/api/v1/federations").json()] == ["digits"]
    assert ada.get("/api/v1/federations/digits").json()["clients"][0]["counts"] == [5, 5, 0]
