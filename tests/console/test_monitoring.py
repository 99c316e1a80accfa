"""Health and metrics."""

from __future__ import annotations

import pytest
from console_visits import URL, Of, Program, Visit
from fastapi import FastAPI
from ledger_worlds import World
from starlette.testclient import TestClient

from fedforget.ledger.errors import BusyError
from fedforget.ledger.states import Role


def test_health(stranger: Visit, world: World, monkeypatch: pytest.MonkeyPatch):
    assert stranger.get("/health/live").json() == {"status": "alive"}
    ready = {"status": "ready", "ledger": "reachable", "worker": "none here"}
    assert stranger.get("/health/ready").json() == stranger.get("/health").json() == ready

    def busy(*_: object) -> None:
        raise BusyError("no")

    monkeypatch.setattr(world.ledger.trail, "head", busy)
    answer = stranger.get("/health/ready")
    assert (answer.status_code, answer.json()["status"]) == (503, "not ready")
    assert stranger.get("/health/live").status_code == 200


def test_metrics(program: Program, visit: Of, world: World):
    world.served()
    world.ask()
    monitor = program(Role.AUDITOR)
    monitor.get("/api/v1/requests")
    text = monitor.get("/metrics").text
    assert 'fedforget_requests{state="done"} 1.0' in text
    assert 'fedforget_requests{state="received"} 1.0' in text
    assert "fedforget_overdue 0.0" in text
    assert 'fedforget_http_answers_total{method="GET",route="/api/v1/requests",status="200"} 1.0' in text
    assert "fedforget_http_seconds_bucket" in text
    assert "fedforget_events" in text


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.7", {}, 401),
        ("127.0.0.1", {"x-forwarded-for": "10.0.0.7"}, 401),
        ("127.0.0.1", {"forwarded": "for=10.0.0.7"}, 401),
        ("127.0.0.1", {"host": "evil.example"}, 421),
        ("127.0.0.1", {"authorization": "Bearer wrong"}, 401),
    ],
)
def test_metrics_without_a_token_are_for_this_machine(app: FastAPI, address: str, headers: dict[str, str], status: int):
    with TestClient(app, base_url=URL, client=(address, 1), follow_redirects=False) as client:
        assert client.get("/metrics", headers=headers).status_code == status
