"""Visitors of a console in tests: a browser with a session, a program with a token."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from fedforget.console.security import CSRF_HEADER, csrf_token
from fedforget.ledger.book import Ledger
from fedforget.ledger.states import Role

URL = "http://127.0.0.1:8765"
PEOPLE = {
    Role.REQUESTER: "ann",
    Role.OPERATOR: "otto",
    Role.OFFICER: "oscar",
    Role.AUDITOR: "audrey",
    Role.ADMIN: "ada",
}
PASSWORD = "correct horse battery"


class Visit:
    """A browser with a session, that fills in the forgery token of a form by itself."""

    def __init__(self, client: TestClient, secret: str | None) -> None:
        self.client, self.secret = client, secret

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.client.get(path, **more)

    def post(self, path: str, fields: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        token = {} if self.secret is None else {"csrf": csrf_token(self.secret)}
        return self.client.post(path, data={**token, **(fields or {})}, **more)

    def api(self, method: str, path: str, body: object = None) -> httpx.Response:
        """The API, as a page's script would ask it: by cookie, with the forgery token in a header."""
        token = {} if self.secret is None else {CSRF_HEADER: csrf_token(self.secret)}
        return self.client.request(method, f"/api/v1{path}", json=body, headers=token)


on_both = pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.real)], indirect=True)
"""For a test of the console on SQLite and on PostgreSQL."""
Of = Callable[[Role], Visit]
Program = Callable[[Role], TestClient]


def field(page: str, name: str) -> str:
    """The value of a hidden field in a page."""
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found, f"no field {name}"
    return found[1]


def denials(ledger: Ledger) -> list[dict[str, Any]]:
    """What was refused, newest first."""
    return [event.to_json()["body"] for event in ledger.trail.events(kinds=["denied"])]
