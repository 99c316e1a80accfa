"""What stands around the pages: headers, hosts, forgery, sizes, floods."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from console_visits import URL, Of, Program, Visit, denials
from ledger_worlds import World
from starlette.testclient import TestClient

from fedforget.console.app import make_app
from fedforget.console.security import REPORT_POLICY, csrf_token
from fedforget.console.settings import ConsoleSettings, Limits, read_settings
from fedforget.console.state import RateLimit
from fedforget.errors import InputError
from fedforget.ledger.states import Role


@pytest.mark.parametrize(
    "path", ["/", "/sign-in", "/nothing", "/api/v1/requests", "/health", "/static/console.css", "/static/no"]
)
def test_every_answer_has_the_headers(stranger: Visit, path: str):
    headers = stranger.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["img-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert "strict-transport-security" not in headers, "by plain http it means nothing"
    assert "server" not in headers
    assert headers["cache-control"] == (
        "public, max-age=31536000, immutable" if path == "/static/console.css" else "no-store"
    )


def test_the_report_is_in_a_sandbox(visit: Of, program: Program, world: World):
    request = with_report(world)
    for answer in (visit(Role.OFFICER).get(f"/requests/{request}/report"),
                   program(Role.OFFICER).get(f"/api/v1/requests/{request}/report")):  # fmt: skip
        assert answer.headers["content-security-policy"] == REPORT_POLICY
        assert REPORT_POLICY.startswith("sandbox; default-src 'none'")
        assert "script" not in REPORT_POLICY
        assert "<script>" in answer.text, "whatever it holds, it cannot run"
    answer = visit(Role.OFFICER).get(f"/requests/{request}/report?download=1")
    assert answer.headers["content-disposition"].startswith("attachment")


def with_report(world: World) -> str:
    request = world.queued()
    claim = world.claim()
    world.ledger.work.start_audit(claim)
    report = world.ledger.home / "report.html"
    report.write_text("<!doctype html><title>x</title><script>alert(1)</script>")
    world.ledger.versions.finish(claim, world.result(claim, report=report))
    return request.id


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:80", ""])
def test_only_by_our_own_name(visit: Of, host: str):
    """A name of somebody else's that points here (DNS rebinding) gets nothing."""
    answer = visit(Role.ADMIN).get("/", headers={"host": host})
    assert answer.status_code == 421
    assert visit(Role.ADMIN).get("/health", headers={"host": host}).status_code == 200, "probes ask by address"
    assert visit(Role.ADMIN).get("/metrics", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1:8765", "[::1]:8765"])
def test_loopback_has_three_names(visit: Of, host: str):
    assert visit(Role.ADMIN).get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["forget.example", "forget.example:443", "FORGET.example"])
def test_the_default_port_may_be_said(world: World, host: str):
    settings = ConsoleSettings(url="https://forget.example")
    with TestClient(make_app(world.ledger, settings), base_url=settings.url) as client:
        assert client.get("/sign-in", headers={"host": host}).status_code == 200
        assert client.get("/sign-in", headers={"host": "forget.example:8765"}).status_code == 421


FORGERIES = {
    "no token": ({}, {}),
    "wrong token": ({"csrf": "0" * 64}, {}),
    "another session's": ({"csrf": csrf_token("another")}, {}),
    "not text": ({"csrf": "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")}, {}),
    "another site": (None, {"origin": "https://evil.example"}),
    "a site that hides": (None, {"origin": "null"}),
    "our name, another scheme": (None, {"origin": "https://127.0.0.1:8765"}),
    "by what the browser says": (None, {"sec-fetch-site": "cross-site"}),
    "a neighbour on our domain": (None, {"sec-fetch-site": "same-site"}),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_form_changes_nothing_and_is_recorded(visit: Of, world: World, case: str):
    oscar, request = visit(Role.OFFICER), world.ask()
    fields, headers = FORGERIES[case]
    fields = {"csrf": csrf_token(oscar.secret or "")} if fields is None else fields
    answer = oscar.client.post(f"/requests/{request.id}/accept", data=fields, headers=headers)
    assert answer.status_code == 403
    assert world.ledger.requests.get(request.id).state == "received"
    assert denials(world.ledger)[0]["why"] in ("forgery token missing or wrong", "sent by another site")
    answer = oscar.client.post("/api/v1/requests/" + request.id + "/accept", headers=headers)
    assert answer.status_code == 403, "a cookie at the API needs a token too"
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("POST", "/accounts/ann/change", {"role": "admin"}), ("DELETE", "/api/v1/tokens/{token}", None)],
)
def test_whatever_the_method_a_cookie_needs_a_token(visit: Of, world: World, method: str, path: str, body: object):
    ada, (secret, token) = visit(Role.ADMIN), world.ledger.accounts.make_token("ada", "cron", actor="ada")
    answer = ada.client.request(method, path.format(token=token.id), json=body)
    assert answer.status_code == 403
    assert denials(world.ledger)[0]["why"] == "forgery token missing or wrong"
    assert world.ledger.accounts.get("ann").role == "requester"
    assert world.ledger.accounts.token(secret) is not None


@pytest.mark.parametrize("origin", [URL, "http://localhost:8765", None])
def test_our_own_form_is_taken(visit: Of, world: World, origin: str | None):
    oscar, request = visit(Role.OFFICER), world.ask()
    headers = {} if origin is None else {"origin": origin}
    assert oscar.post(f"/requests/{request.id}/accept", headers=headers).status_code == 303
    assert world.ledger.requests.get(request.id).state == "queued"


@pytest.mark.parametrize("change", ["", "x", "tampered", "\x7f", "a" * 5000])
def test_a_tampered_cookie_is_refused_and_recorded(visit: Of, world: World, settings: ConsoleSettings, change: str):
    ada = visit(Role.ADMIN)
    secret = (ada.secret or "")[:-1] + change
    ada.client.cookies.clear()
    answer = ada.client.get("/api/v1/accounts", headers={"cookie": f"{settings.cookie}={secret}"})
    assert answer.status_code == 401
    assert denials(world.ledger)[0]["by"] in ("session", "nothing")
    assert secret not in str(denials(world.ledger)), "a secret is not written down"


def test_a_long_body_is_not_read(visit: Of, world: World):
    settings = ConsoleSettings(url=URL, limits=Limits(body_bytes=1000))
    secret, _ = world.ledger.accounts.make_token("ann", "test", actor="ann")
    with TestClient(make_app(world.ledger, settings), base_url=URL) as client:
        for kind in ("application/x-www-form-urlencoded", "application/json", "multipart/form-data; boundary=x"):
            headers = {"content-type": kind}
            if "json" in kind:
                headers["authorization"] = f"Bearer {secret}"
            path = "/api/v1/requests" if "json" in kind else "/sign-in"
            for body in (b"x" * 1001, iter([b"x" * 600, b"x" * 600])):  # one says its length, one does not
                answer = client.post(path, content=body, headers=headers)
                assert answer.status_code == 413
                assert ("problem+json" in answer.headers["content-type"]) == ("json" in kind)
        assert client.post("/api/v1/requests", content=b"x" * 1001).status_code == 401, "who asks comes first"
        assert client.post("/sign-in", content=b"x" * 900).status_code == 403


def test_a_flood_of_denials_does_not_fill_the_ledger(world: World, settings: ConsoleSettings):
    few = replace(settings, limits=Limits(denials_per_minute=5))
    with TestClient(make_app(world.ledger, few), base_url=URL) as client:
        before = world.ledger.trail.head().number
        headers = {"authorization": "Bearer ff_guess"}
        statuses = [client.get("/api/v1/me", headers=headers).status_code for _ in range(40)]
        assert statuses == [401] * 5 + [429] * 35
        assert world.ledger.trail.head().number == before + 5
        console = client.app.state.console  # type: ignore[attr-defined]
        console.denials.limit = RateLimit(5)
        client.get("/api/v1/me", headers=headers)
        assert denials(world.ledger)[0]["unrecorded_before"] == 35, "how many there were is not lost"


def test_submissions_are_limited(world: World, settings: ConsoleSettings):
    few = replace(settings, limits=Limits(submissions_per_minute=2))
    secret, _ = world.ledger.accounts.make_token("ann", "test", actor="ann")
    headers = {"authorization": f"Bearer {secret}"}
    with TestClient(make_app(world.ledger, few), base_url=URL, headers=headers) as client:
        bodies = [{"federation": "digits", "client": 0, "target": {"kind": "class", "label": 1}, "subject": f"s-{n}",
                   "ground": "objection"} for n in range(3)]  # fmt: skip
        answers = [client.post("/api/v1/requests", json=body) for body in bodies]
        assert [answer.status_code for answer in answers] == [201, 201, 429]
        assert answers[2].json()["title"] == "Too Many Requests"


def test_limits_refill():
    now = [0.0]
    limit = RateLimit(60, now=lambda: now[0])
    assert [limit.take("a") for _ in range(61)][-1] == pytest.approx(1.0)
    assert limit.take("b") == 0
    now[0] += 1.0
    assert limit.take("a") == 0


@pytest.mark.parametrize(
    "url", ["http://forget.example", "http://10.0.0.5:8765", "ftp://x", "nonsense", "https://x/path"]
)
def test_an_address_that_cannot_be_safe_is_refused(url: str):
    with pytest.raises(InputError, match=r"no address for a console|in the clear"):
        ConsoleSettings(url=url)


SETTINGS = {
    "unknown part": ("[colours]\n", "unknown part 'colours'"),
    "unknown limit": ("[limits]\nx = 1\n", "choose from the settings"),
    "no number": ('[limits]\nsign_ins_per_minute = "many"\n', "must be a number above 0"),
    "no TOML": ("[limits", "cannot be read"),
    "no client": ('[oidc]\nissuer = "https://x.example"\n', "needs issuer and client_id"),
    "plain issuer": ('[oidc]\nissuer = "http://x.example"\nclient_id = "a"\n', "must be an https address"),
    "no role": ('[oidc]\nissuer = "https://x.example"\nclient_id = "a"\nnewcomers = "king"\n', "is one of requester"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_wrong_settings_are_one_sentence(tmp_path, case: str):
    text, words = SETTINGS[case]
    (tmp_path / "console.toml").write_text(text)
    with pytest.raises(InputError, match=re.escape(words)):
        read_settings(tmp_path, url=URL)


def test_settings_are_read(tmp_path):
    (tmp_path / "secret").write_text("s3cret\n")
    (tmp_path / "console.toml").write_text(
        f'[limits]\nsubmissions_per_minute = 7\n[session]\nhours = 1\n[oidc]\nissuer = "https://x.example/"\n'
        f'client_id = "f"\nclient_secret_file = "{tmp_path / "secret"}"\nroles = {{ dpo = "officer" }}\n'
    )
    settings = read_settings(tmp_path, url=URL)
    assert (settings.limits.submissions_per_minute, settings.session_hours) == (7, 1)
    assert settings.oidc is not None
    assert (settings.oidc.issuer, settings.oidc.client_secret) == ("https://x.example", "s3cret")
    assert settings.oidc.roles == {"dpo": Role.OFFICER}
