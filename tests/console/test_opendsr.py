"""Requests that another system hands in, in the shape of OpenDSR."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from console_visits import Program
from ledger_worlds import World

from fedforget.ledger.states import Role

CASE = "8e1cbb4c-1a2b-4f7e-9a3c-0d5d3b6a7f10"
PATH = "/api/opendsr/v2/requests"


def asked(value: str = "digits/0/class/1", **more: Any) -> dict[str, Any]:
    return {
        "regulation": "gdpr", "subject_request_id": CASE, "subject_request_type": "erasure", "api_version": "2.0",
        "submitted_time": "2026-01-20T09:30:00Z", "property_id": "passed over",
        "subject_identities": [
            {"identity_type": "controller_customer_id", "identity_value": value, "identity_format": "raw"}
        ],
    } | more  # fmt: skip


def test_from_the_intake_to_completed(program: Program, world: World):
    ann = program(Role.REQUESTER)
    answer = ann.post(PATH, json=asked())
    assert answer.status_code == 201
    receipt = answer.json()
    assert (receipt["subject_request_id"], receipt["controller_id"]) == (CASE, "ann")
    assert receipt["expected_completion_time"].startswith("2026-02-20"), "the month runs from submitted_time"
    assert json.loads(base64.b64decode(receipt["encoded_request"])) == asked()
    assert ann.post(PATH, json=asked()).json() == receipt, "twice is once"
    (request,) = world.ledger.requests.page().requests
    assert (request.channel, request.ground, request.erasure.describe()) == (
        "another system", "other", "class 1 of client 0",
    )  # fmt: skip

    def status() -> str:
        return str(ann.get(f"{PATH}/{CASE}").json()["request_status"])

    assert status() == "pending"
    world.ledger.requests.accept(request.id, actor="oscar")
    world.ledger.requests.queue(request.id, actor="oscar")
    claim = world.claim()
    assert status() == "in_progress"
    world.ledger.work.start_audit(claim)
    world.ledger.versions.finish(claim, world.result(claim))
    assert status() == "completed"
    refused = ann.post(PATH, json=asked(subject_request_id="case-2")).json()["subject_request_id"]
    world.ledger.requests.refuse(world.ledger.requests.page(subject=refused).requests[0].id, "no", actor="oscar")
    assert ann.get(f"{PATH}/case-2").json()["request_status"] == "cancelled"


@pytest.mark.parametrize(
    ("value", "describes"),
    [("digits/2", "everything of client 2"), ("digits/0/samples/3,1", "2 samples of client 0"),
     ("digits/1/feature/5", "column 5 of client 1")],
)  # fmt: skip
def test_every_kind_of_target(program: Program, world: World, value: str, describes: str):
    assert program(Role.REQUESTER).post(PATH, json=asked(value)).status_code == 201
    assert world.ledger.requests.page().requests[0].erasure.describe() == describes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"subject_identities": []}, "Name the data by one identity"),
        ({"subject_identities": [{"identity_type": "email", "identity_value": "me@example.org"}]}, "is not taken"),
        ({"subject_request_type": "access"}, "subject_request_type"),
        ({"status_callback_urls": ["https://example.org"]}, "adds a webhook"),
        ({"submitted_time": "2030-01-01T00:00:00Z"}, "lies in the future"),
        ({"subject_request_id": "Jane Doe"}, "no subject reference"),
    ],
)
def test_what_is_not_taken_is_said(program: Program, world: World, change: dict[str, Any], words: str):
    answer = program(Role.REQUESTER).post(PATH, json=asked() | change)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]
    assert not world.ledger.requests.page().requests


@pytest.mark.parametrize(
    "value", ["digits", "digits/x", "digits/0/class", "digits/0/moon/3", "digits/9", "a/b/c/d/e", ""]
)
def test_an_identity_that_is_no_place(program: Program, world: World, value: str):
    assert program(Role.REQUESTER).post(PATH, json=asked(value)).status_code == 422
    assert not world.ledger.requests.page().requests


def test_a_case_with_two_requests_is_completed_when_both_are(program: Program, world: World):
    ann = program(Role.REQUESTER)
    for value in ("digits/0/class/1", "digits/1/class/1"):
        assert ann.post(PATH, json=asked(value)).status_code == 201
    newer = world.ledger.requests.page().requests[0]
    world.ledger.requests.refuse(newer.id, "It was a mistake.", actor="oscar")
    assert ann.get(f"{PATH}/{CASE}").json()["request_status"] == "pending"


def test_who_may(program: Program, world: World):
    assert program(Role.AUDITOR).post(PATH, json=asked()).status_code == 403
    world.ledger.accounts.add("bob", "requester")
    target = world.ask().erasure
    world.ledger.requests.submit("digits", target, subject="theirs", ground="other", asked_by="bob")
    assert program(Role.REQUESTER).get(f"{PATH}/theirs").status_code == 404
    assert program(Role.OFFICER).get(f"{PATH}/theirs").json()["request_status"] == "pending"
    found = program(Role.REQUESTER).get("/api/opendsr/v2/discovery").json()
    assert found["supported_subject_request_types"] == ["erasure"]
