"""A ridge head from the console: a person asks in the form, and the pages say what `exact` rests on."""

from __future__ import annotations

from pathlib import Path

import pytest
from console_visits import Of
from ledger_worlds import World

from fedforget.federation.rounds import Schedule
from fedforget.ledger.certificate import read_certificate
from fedforget.ledger.states import Role
from fedforget.ledger.worker import Worker
from fedforget.runs.config import RunConfig
from fedforget.runs.head import RidgeHead
from fedforget.runs.train import train_run

CONFIG = RunConfig(
    clients=4, schedule=Schedule(rounds=1, threads=1), head=RidgeHead(features=100, masked=True), train_limit=600
)


@pytest.mark.real
def test_from_the_form_to_the_certificate(world: World, visit: Of, tmp_path: Path):
    run = train_run(tmp_path / "run", CONFIG)
    world.ledger.federations.register_run("ridge", run.folder)
    oscar = visit(Role.OFFICER)
    asked = {"federation": "ridge", "client": "0", "kind": "class", "label": "3", "subject": "case-9",
             "ground": "objection", "accept": "yes"}  # fmt: skip
    answer = oscar.post("/requests", asked)
    assert answer.status_code in (200, 303), answer.text
    (request,) = oscar.get("/api/v1/requests?federation=ridge").json()["requests"]
    assert Worker(world.ledger, "first").run(once=True) == 1
    page = oscar.get(f"/requests/{request['id']}").text
    assert "exact" in page
    for said in ("It is what the same training makes without the target", "true sums of its data without the target"):
        assert said in page
    certificate = oscar.get(f"/requests/{request['id']}/certificate.json")
    verdict = read_certificate(certificate.text)["measured"]["verdict"]
    assert verdict["reasons"][0].startswith("It is what the same training makes")
