"""Signing in and out: by password, by a link that works once, by token; and every refusal is written down."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from console_visits import PASSWORD, URL, Of, Program, Visit, denials, field
from ledger_worlds import Ticking, World, quick_passwords
from starlette.testclient import TestClient

from fedforget.console.app import make_app
from fedforget.console.security import csrf_token
from fedforget.console.settings import ConsoleSettings, Limits
from fedforget.ledger.states import Role

KINDS = ["signed in", "signed out", "denied"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_passwords(monkeypatch)


def sign_in(visit: Visit, name: str, password: str, next: str = "/"):
    page = visit.get("/sign-in").text
    form = {"name": name, "password": password, "next": next, "csrf": field(page, "csrf")}
    return visit.client.post("/sign-in", data=form)


def said(world: World) -> list[tuple[str, str]]:
    return [(event.actor, event.kind) for event in world.ledger.trail.events(kinds=KINDS)][::-1]


def test_by_password(stranger: Visit, world: World, settings: ConsoleSettings):
    world.ledger.accounts.change("oscar", password=PASSWORD, actor="system")
    assert stranger.get("/").headers["location"] == "/sign-in"
    answer = sign_in(stranger, "Oscar ", PASSWORD, "/trail?kind=denied")
    assert (answer.status_code, answer.headers["location"]) == (303, "/trail?kind=denied")
    cookie = next(c for c in answer.headers.get_list("set-cookie") if c.startswith(settings.cookie + "="))
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie, "on plain loopback it would lock people out"
    assert "Oscar" not in answer.text
    assert "oscar" in stranger.get("/trail").text
    assert said(world) == [("oscar", "signed in")]


def test_a_wrong_password_says_nothing_and_is_recorded(stranger: Visit, world: World):
    world.ledger.accounts.change("oscar", password=PASSWORD, actor="system")
    for name in ("oscar", "nobody"):
        answer = sign_in(stranger, name, "wrong horse battery")
        assert answer.status_code == 401
        assert "do not belong together" in answer.text
    assert [body["why"] for body in denials(world.ledger)] == ["no such account", "wrong password"]


def test_too_many_attempts_must_wait(world: World, settings: ConsoleSettings):
    few = replace(settings, limits=Limits(sign_ins_per_minute=3))
    with TestClient(make_app(world.ledger, few), base_url=URL, follow_redirects=False) as client:
        statuses = [sign_in(Visit(client, None), "oscar", "wrong horse battery").status_code for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        page = client.get("/sign-in").text
        answer = client.post("/sign-in", data={"name": "ann", "password": "x", "csrf": field(page, "csrf")})
        assert answer.status_code == 429, "another name from the same address"
        assert 1 <= int(answer.headers["retry-after"]) <= 60


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    "next", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "\x00"]
)
def test_nobody_is_sent_elsewhere(stranger: Visit, world: World, next: str):
    world.ledger.accounts.change("oscar", password=PASSWORD, actor="system")
    assert sign_in(stranger, "oscar", PASSWORD, next).headers["location"] == "/"


def test_a_link_works_once_and_only_when_its_button_is_pressed(stranger: Visit, world: World):
    secret = world.ledger.accounts.make_link("ada")
    for _ in range(3):
        page = stranger.get(f"/link/{secret}")
        assert page.status_code == 200, "a look does not use it up"
        assert not re.search(r"\bada\b", page.text), "whose link it is"
    token = field(page.text, "csrf")
    answer = stranger.client.post("/link", data={"link": secret, "csrf": token})
    assert (answer.status_code, answer.headers["location"]) == (303, "/?welcome=1")
    assert "set a password" in stranger.get("/?welcome=1").text
    stranger.client.cookies.clear()
    page = stranger.get(f"/link/{secret}").text
    answer = stranger.client.post("/link", data={"link": secret, "csrf": field(page, "csrf")})
    assert answer.status_code == 401
    assert denials(world.ledger)[0] == {"by": "link", "why": "used before"}


def test_an_expired_link_is_refused_and_recorded(stranger: Visit, world: World, clock: Ticking):
    secret = world.ledger.accounts.make_link("ada", lasting=timedelta(hours=1))
    clock.go_on(hours=2)
    page = stranger.get(f"/link/{secret}").text
    answer = stranger.client.post("/link", data={"link": secret, "csrf": field(page, "csrf")})
    assert answer.status_code == 401
    assert "its time is over" in answer.text
    assert denials(world.ledger)[0] == {"by": "link", "why": "expired"}


def test_signing_out_ends_the_session(visit: Of, world: World):
    ann = visit(Role.REQUESTER)
    assert ann.get("/").status_code == 200
    assert ann.post("/sign-out").status_code == 303
    assert ann.get("/").headers["location"].startswith("/sign-in")
    assert said(world)[-1] == ("ann", "signed out")


def test_a_session_ends_with_its_time_and_with_its_account(visit: Of, world: World, clock: Ticking):
    ann, otto = visit(Role.REQUESTER), visit(Role.OPERATOR)
    world.ledger.accounts.change("otto", disabled=True, actor="ada")
    assert otto.get("/").status_code == 303
    clock.go_on(hours=13)
    answer = ann.get("/")
    assert answer.status_code == 303
    assert "Max-Age=0" in answer.headers["set-cookie"], "the browser forgets it too"
    assert denials(world.ledger)[0]["why"] == "no such session, or not any more"


def test_by_https_the_cookie_is_secure(world: World):
    settings = ConsoleSettings(url="https://forget.example")
    world.ledger.accounts.change("oscar", password=PASSWORD, actor="system")
    with TestClient(
        make_app(world.ledger, settings), base_url="https://forget.example", follow_redirects=False
    ) as client:
        answer = sign_in(Visit(client, None), "oscar", PASSWORD)
        cookie = next(c for c in answer.headers.get_list("set-cookie") if c.startswith("__Host-fedforget="))
        assert "Secure" in cookie
        assert "Path=/" in cookie
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert client.get("/").status_code == 200


def test_a_token_is_for_programs(program: Program, visit: Of, world: World):
    client, page = program(Role.AUDITOR), visit(Role.AUDITOR)
    assert client.get("/api/v1/me").json()["name"] == "audrey"
    for token in ("ff_wrong", "", "Bearer"):
        answer = client.get("/api/v1/me", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert denials(world.ledger)[0]["by"] == "token"
    assert "ff_" in page.post("/account/tokens", {"label": "other"}).text
    secret, other = world.ledger.accounts.make_token("audrey", "another", actor="audrey")
    assert secret not in client.get("/api/v1/tokens").text
    assert client.delete(f"/api/v1/tokens/{other.id}").status_code == 204
    answer = client.get("/api/v1/me", headers={"authorization": f"Bearer {secret}"})
    assert answer.status_code == 401


def test_ones_own_password(visit: Of, world: World, settings: ConsoleSettings):
    """Set without an old one, changed only with it; other sessions end, this one goes on."""
    ann, elsewhere = visit(Role.REQUESTER), visit(Role.REQUESTER)
    new = {"new_password": PASSWORD, "again": PASSWORD}
    assert ann.post("/account/password", {**new, "again": "another one 123"}).status_code == 422
    assert ann.post("/account/password", {"new_password": "short", "again": "short"}).status_code == 422
    assert ann.post("/account/password", new).status_code == 303
    assert ann.get("/").status_code == 200
    assert elsewhere.get("/").status_code == 303
    ann.secret = ann.client.cookies[settings.cookie]
    assert csrf_token(ann.secret) in ann.get("/account").text
    changed = {"new_password": "a quite different one", "again": "a quite different one"}
    assert ann.post("/account/password", {**changed, "password": "wrong wrong wrong"}).status_code == 422
    assert ann.post("/account/password", {**changed, "password": PASSWORD}).status_code == 303
    assert world.ledger.accounts.authenticate("ann", "a quite different one") is not None


def test_tokens_on_the_page(visit: Of, world: World):
    ann = visit(Role.REQUESTER)
    page = ann.post("/account/tokens", {"label": "nightly", "days": "7"}).text
    secret = page[page.index("ff_") :].split("<")[0]
    assert world.ledger.accounts.token(secret) is not None
    assert secret not in ann.get("/account").text, "shown once"
    token = world.ledger.accounts.tokens("ann")[0]
    assert visit(Role.OPERATOR).post(f"/account/tokens/{token.id}/revoke").status_code == 404
    assert ann.post(f"/account/tokens/{token.id}/revoke").status_code == 303
    assert world.ledger.accounts.token(secret) is None
    for wrong in ({"days": "0"}, {"days": "3651"}, {"days": "soon"}, {"label": ""}, {"label": 65 * "x"}):
        assert ann.post("/account/tokens", {"label": "x", **wrong}).status_code == 422


def test_an_admin_keeps_accounts(visit: Of, world: World, stranger: Visit):
    ada = visit(Role.ADMIN)
    page = ada.post("/accounts", {"name": "Zoe", "role": "officer"}).text
    link = page[page.index(f"{URL}/link/") :].split("<")[0]
    page = stranger.get(link.removeprefix(URL)).text
    form = {"link": link.rpartition("/")[2], "csrf": field(page, "csrf")}
    assert stranger.client.post("/link", data=form).status_code == 303
    assert "zoe" in stranger.get("/").text
    assert ada.post("/accounts/zoe/change", {"role": "auditor"}).status_code == 303
    assert world.ledger.accounts.get("zoe").role == "auditor"
    assert stranger.get("/").status_code == 303, "another role ends the sessions"
    assert ada.post("/accounts/zoe/change", {"role": "emperor"}).status_code == 422
    assert ada.post("/accounts", {"name": "zoe", "role": "officer"}).status_code == 409
    assert ada.post("/accounts/zoe/change", {"disabled": "yes"}).status_code == 303
    assert ada.post("/accounts/zoe/link").status_code == 422
    assert ada.post("/accounts/zoe/change", {"disabled": "perhaps"}).status_code == 422
    assert ada.post("/accounts/zoe/change", {"disabled": "no"}).status_code == 303
    page = ada.post("/accounts/zoe/link").text
    secret = page[page.index(f"{URL}/link/") :].split("<")[0].rpartition("/")[2]
    assert world.ledger.accounts.redeem_link(secret) is not None
    ada.post("/accounts/ada/change", {"password": PASSWORD})
    assert world.ledger.accounts.get("ada").password is None, "a password is set where the old one is asked for"
    assert ada.post("/accounts/ada/change", {"role": "officer"}).status_code == 409, "the last admin stays"
    assert ada.post("/accounts/nobody/link").status_code == 404
