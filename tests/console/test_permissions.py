"""Nothing is served without a role that allows it: every route, every role, and nobody at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_visits import PASSWORD, PEOPLE, URL, Of, Program, Visit, denials, on_both
from fastapi import FastAPI
from ledger_worlds import World
from sqlalchemy import text
from starlette.testclient import TestClient

from fedforget.console.app import Assets, check_every_route, make_app
from fedforget.console.permissions import Permission, may
from fedforget.console.security import CSRF_HEADER, csrf_token
from fedforget.console.settings import ConsoleSettings
from fedforget.console.visitors import GuardedRoute, guarded_router
from fedforget.ledger.states import Role

ROLES: list[Role | None] = [None, *Role]


def routes(app: FastAPI) -> list[tuple[str, GuardedRoute]]:
    guarded = [route for route in app.routes if isinstance(route, GuardedRoute)]
    found = [(method, route) for route in guarded for method in sorted(route.methods)]
    assert len(found) > 60
    return found


def filled(path: str, request: str) -> str:
    """A route's address with things in it that exist."""
    values = {"id": request, "name": "digits", "number": "1", "secret": "nothing"}
    if path.startswith(("/accounts/", "/api/v1/accounts/")):
        values["name"] = "ann"
    return re.sub(r"{(\w+)}", lambda found: values[found[1]], path)


@pytest.fixture
def everybody(app: FastAPI, world: World, settings: ConsoleSettings) -> Iterator[dict[Role | None, Visit]]:
    """One client for each role; signed in anew for each question, since some questions end sessions."""
    with TestClient(app, base_url=URL, follow_redirects=False) as client:
        yield {role: Visit(client, None) for role in ROLES}


def ask(visit: Visit, world: World, settings: ConsoleSettings, role: Role | None, method: str, path: str) -> int:
    headers = {"content-type": "application/json"} if path.startswith("/api/") else {}
    visit.client.cookies.clear()
    if role is not None:
        secret = world.ledger.accounts.open_session(PEOPLE[role], by="test")
        visit.client.cookies.set(settings.cookie, secret)
        headers[CSRF_HEADER] = csrf_token(secret)
    return visit.client.request(
        method, path, headers=headers, content=b"{}" if "content-type" in headers else b""
    ).status_code


@pytest.mark.daily(1)
@on_both
def test_every_route_and_every_role(app: FastAPI, world: World, settings: ConsoleSettings, everybody):
    request = world.served().id
    served: dict[Role | None, int] = dict.fromkeys(ROLES, 0)
    for method, route in routes(app):
        needed = route.allowed.permission
        for role in ROLES:
            status = ask(everybody[role], world, settings, role, method, filled(route.path, request))
            where = f"{method} {route.path} as {role}: {status}"
            assert status < 500, where
            if may(role, needed):
                # A form by a stranger has no token yet: 403, and that is tested elsewhere.
                forged = needed is Permission.OPEN_TO_ALL and method == "POST"
                assert status not in (401, 403) or forged or route.path == "/oidc/back", where
                served[role] += status == 200
            else:
                assert status == (
                    403
                    if role
                    else 303
                    if method == "GET" and "/api/" not in route.path and route.path != "/metrics"
                    else 401
                ), where
    assert served[Role.ADMIN] > served[Role.OFFICER] > served[Role.AUDITOR] > served[Role.REQUESTER] > served[None] > 0


def test_no_token_makes_or_changes_a_way_in(app: FastAPI, world: World, program: Program):
    """Not an admin's, and not for its own account: accounts, passwords, links and tokens are kept in person. A token
    reads them, and takes a token away."""
    ada, before = program(Role.ADMIN), ways_in(world)
    kept = re.compile(r"(/api/v1)?/(account|accounts|tokens)(/|$)")
    changing = [(method, route.path) for method, route in routes(app) if method != "GET" and kept.match(route.path)]
    assert len(changing) == 7
    for method, path in changing:
        if path.endswith("/revoke") or method == "DELETE":
            continue
        everything = {
            "name": "zoe", "role": "admin", "password": PASSWORD, "new_password": PASSWORD, "again": PASSWORD,
            "label": "x", "days": "9",
        }  # fmt: skip
        answer = ada.request(method, filled(path, ""), data=everything)
        assert answer.status_code == 403, f"{method} {path}"
        assert "A token cannot do this; sign in" in answer.json()["detail"]
        assert denials(world.ledger)[0] == {"by": "token", "why": "only in person", "method": method, "route": path}
    assert ways_in(world) == before


def ways_in(world: World) -> list[str]:
    with world.ledger.database.reading() as session:
        tables = ("accounts", "links", "tokens", "sessions")
        return [repr(session.execute(text(f"SELECT * FROM {name}")).all()) for name in tables]


def test_the_table_names_every_permission_once():
    assert len({p.value for p in Permission}) == len(Permission.__members__)
    assert all(Role.ADMIN in p.roles for p in Permission)
    assert Permission.KEEP_ACCOUNTS.roles == {Role.ADMIN}
    of_staff = (Permission.SEE_ALL_REQUESTS, Permission.SEE_TRAIL, Permission.SEE_COUNTS)
    assert not any(Role.REQUESTER in p.roles for p in of_staff)
    assert {p for p in Permission if Role.AUDITOR in p.roles} == {
        Permission.OPEN_TO_ALL, Permission.KEEP_OWN_ACCOUNT, Permission.SEE_REQUESTS, Permission.SEE_ALL_REQUESTS,
        Permission.SEE_FEDERATIONS, Permission.SEE_COUNTS, Permission.SEE_VERSIONS, Permission.SEE_TRAIL,
        Permission.CHECK, Permission.VERIFY, Permission.SEE_METRICS,
    }  # fmt: skip
    assert [p for p in Permission if may(None, p)] == [Permission.OPEN_TO_ALL]


def test_the_documentation_has_the_same_table():
    page = (Path(__file__).parents[2] / "docs" / "console.md").read_text()
    for permission in Permission:
        if permission is not Permission.OPEN_TO_ALL:
            cells = " | ".join("yes" if role in permission.roles else "" for role in Role)
            assert f"| {permission} | {cells} |" in page


def test_a_route_without_a_permission_is_no_app(world: World, settings: ConsoleSettings):
    app = make_app(world.ledger, settings)
    app.get("/forgotten")(lambda: "secret")
    with pytest.raises(AssertionError, match="without a permission"):
        check_every_route(app)
    with pytest.raises(AssertionError, match="/forgotten must name the permission it needs"):
        guarded_router().get("/forgotten")(lambda: "secret")
    app = make_app(world.ledger, settings)
    app.add_route("/plain", lambda request: None)
    with pytest.raises(AssertionError, match="without a permission"):
        check_every_route(app)
    app = make_app(world.ledger, settings)
    app.mount("/other", Assets())
    check_every_route(app)


def test_anothers_request_is_as_if_it_were_not_there(visit: Of, world: World):
    """404, the same words as for one that never was; and the look is recorded."""
    world.ledger.accounts.add("bob", "requester")
    target = world.ask().erasure
    theirs = world.ledger.requests.submit("digits", target, subject="x-1", ground="objection", asked_by="bob").request
    never = "0" * 32
    ann = visit(Role.REQUESTER)
    for path in ("/api/v1/requests/{}", "/api/v1/requests/{}/events", "/api/v1/requests/{}/certificate",
                 "/api/v1/requests/{}/evidence", "/api/v1/requests/{}/report", "/requests/{}", "/requests/{}/report",
                 "/requests/{}/certificate.json", "/requests/{}/evidence.json", "/requests/{}/progress"):  # fmt: skip
        answer, unknown = ann.get(path.format(theirs.id)), ann.get(path.format(never))
        assert answer.status_code == unknown.status_code == 404
        assert answer.text.replace(theirs.id, "") == unknown.text.replace(never, "")
    assert denials(world.ledger)[0]["why"] == "another's request"
    assert visit(Role.AUDITOR).get(f"/requests/{theirs.id}").status_code == 200
    listed = ann.get("/api/v1/requests").json()["requests"]
    assert {row["asked_by"] for row in listed} == {"ann"}
    assert "x-1" not in ann.get("/?view=all").text


def test_a_denial_is_recorded_with_who_and_what(visit: Of, world: World):
    assert visit(Role.REQUESTER).get("/accounts").status_code == 403
    event = world.ledger.trail.events(kinds=["denied"])[0]
    assert event.actor == "ann"
    assert event.to_json()["body"] == {
        "by": "session", "why": "may not keep accounts", "role": "requester", "method": "GET", "route": "/accounts",
    }  # fmt: skip
