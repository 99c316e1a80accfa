"""A federation with shards, from the form to the certificate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from console_visits import Of
from ledger_worlds import World
from worker_worlds import CONFIG

from fedforget.ledger.statements import read_statement
from fedforget.ledger.states import Role
from fedforget.ledger.worker import Worker
from fedforget.runs.train import train_run

ASK = {
    "federation": "sharded",
    "client": "1",
    "kind": "class",
    "label": "3",
    "subject": "case-9",
    "ground": "objection",
}


@pytest.mark.real
def test_from_the_form_to_the_certificate(visit: Of, world: World, tmp_path: Path):
    run = train_run(tmp_path / "run", replace(CONFIG, clients=4, shards=2))
    world.ledger.federations.register_run("sharded", run.folder, audit_level="alone", accuracy_limit=100.0)
    officer = visit(Role.OFFICER)
    page = officer.get("/federations/sharded").text
    assert (
        "This federation has shards, so a request retrains the shards that hold the target, and the verdict is" in page
    )
    assert "Without an officer, one client" not in page
    assert "This federation has shards" in officer.post("/requests", ASK | {"effort": "overwrite"}).text
    asked = officer.post("/requests", ASK | {"accept": "yes"})
    place = asked.headers["location"].partition("?")[0]
    assert Worker(world.ledger, "first").run(once=True) == 1
    done = officer.get(place).text
    assert "exact" in done
    assert "Trained again without the target: of 2 shards 1 (clients 1, 3)." in done
    kept = officer.get(f"{place}/certificate.json")
    assert kept.status_code == 200
    content = read_statement(kept.content, "The certificate")[0]
    assert "exact" in str(content)
