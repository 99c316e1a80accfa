"""The API fuzzed from its own description, as every role and as nobody: no 5xx, and no answer to whom it is not for.

Over real HTTP, so that what the server itself makes of odd requests counts too. What may not be answered is refused
before anything of it is read: 401 or 403 whatever was sent."""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
import schemathesis
import uvicorn
from console_visits import PEOPLE, on_both
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from ledger_worlds import World
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fedforget.console.app import make_app
from fedforget.console.permissions import may
from fedforget.console.security import CSRF_HEADER, csrf_token
from fedforget.console.server import _listen
from fedforget.console.settings import ConsoleSettings, Limits
from fedforget.console.state import Console
from fedforget.console.visitors import GuardedRoute
from fedforget.ledger.states import Role

pytestmark = pytest.mark.slow
ROLES: list[Role | None] = [None, *Role]
EXAMPLES = 30
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance,
]  # fmt: skip
HIGH = 10**9


@pytest.fixture
def served(world: World) -> Iterator[tuple[FastAPI, str]]:
    """A console with something in it, no limits in the way, behind a real server."""
    world.served()
    world.ask()
    world.queued()
    listening = _listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    limits = Limits(denials_per_minute=HIGH, submissions_per_minute=HIGH, sign_ins_per_minute=HIGH)
    app = make_app(world.ledger, ConsoleSettings(url=url, limits=limits))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield app, url
    server.should_exit = True
    thread.join(20)
    listening.close()


@on_both
@pytest.mark.parametrize("role", ROLES, ids=str)
def test_the_api(served: tuple[FastAPI, str], world: World, role: Role | None):
    app, url = served
    program, person = ways_in(app, role)
    needs = {
        (method, route.path): route.allowed
        for route in app.routes
        if isinstance(route, GuardedRoute)
        for method in route.methods
    }
    described = copy.deepcopy(app.openapi())
    del described["security"], described["components"]["securitySchemes"]  # it would leave the token out at times
    schema = schemathesis.openapi.from_dict(described)
    statuses: Counter[int] = Counter()
    ids = itertools.cycle([row.id for row in world.ledger.requests.page().requests])
    for result in schema.get_all_operations():
        operation = result.ok()
        needed = needs[(operation.method.upper(), operation.path)]
        allowed, headers = may(role, needed.permission), person if needed.in_person else program
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            cases = operation.as_strategy(generation_mode=mode)
            with contextlib.suppress(Unsatisfiable):  # where nothing is asked for, nothing can be wrong
                fuzz(cases, url, headers, allowed, statuses)
        if known := things(operation.path, ids):
            fuzz(operation.as_strategy(path_parameters=known), url, headers, allowed, statuses)
    assert sum(statuses.values()) > 500
    assert (statuses[200] + statuses[201] > 20) == (role is not None)
    check = world.ledger.trail.check()
    assert check.problems == (), "whatever was sent, the ledger is whole"


def ways_in(app: FastAPI, role: Role | None) -> tuple[dict[str, str], dict[str, str]]:
    """What a program of this role sends with everything, and what a browser does."""
    console: Console = app.state.console
    if role is None:
        return {}, {}
    token, _ = console.ledger.accounts.make_token(PEOPLE[role], "fuzz", actor="system")
    secret = console.ledger.accounts.open_session(PEOPLE[role], by="test")
    cookie = {"cookie": f"{console.settings.cookie}={secret}", CSRF_HEADER: csrf_token(secret)}
    return {"authorization": f"Bearer {token}"}, cookie


def things(path: str, ids: Iterator[str]) -> dict[str, str | int]:
    """What a route's address could name, of what there is: random ids would never be there."""
    named: dict[str, str | int] = {"id": next(ids), "number": 1, "name": "ann" if "/accounts/" in path else "digits"}
    return {name: value for name, value in named.items() if f"{{{name}}}" in path}


def fuzz(
    cases: SearchStrategy[Case],
    url: str,
    headers: dict[str, str],
    allowed: bool,
    statuses: Counter[int],
) -> None:
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=cases)
    def probe(case: Case) -> None:
        response = case.call(base_url=url, headers=headers, timeout=30)
        statuses[response.status_code] += 1
        where = f"{case.method} {case.formatted_path}: {response.status_code} {response.content[:300]!r}"
        if allowed:
            assert response.status_code not in (401, 403), where
            case.validate_response(response, checks=CHECKS)
        else:
            assert response.status_code == (403 if headers else 401), where

    probe()
