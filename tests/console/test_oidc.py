"""Signing in at an OpenID Connect provider: a real one on loopback, which tells the truth, and then lies."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from console_server import running_console
from console_visits import URL, Visit, denials
from fastapi import FastAPI
from ledger_worlds import World
from oidc_provider import Provider, oidc_provider
from starlette.testclient import TestClient

from fedforget.console.app import make_app
from fedforget.console.oidc import Provider as ConsoleProvider
from fedforget.console.settings import ConsoleSettings, OidcSettings
from fedforget.ledger.states import Role


@pytest.fixture
def provider() -> Iterator[Provider]:
    with oidc_provider() as running:
        yield running


def app_of(world: World, oidc: OidcSettings) -> FastAPI:
    return make_app(world.ledger, replace(ConsoleSettings(url=URL), oidc=oidc))


def console(world: World, provider: Provider, **how: Any) -> TestClient:
    oidc = OidcSettings(provider.url, provider.client_id, provider.secret, label="Sign in with Example", **how)
    return TestClient(app_of(world, oidc), base_url=URL, follow_redirects=False)


def there_and_back(client: TestClient, next: str = "/trail") -> httpx.Response:
    """What a browser does: to the provider, and back with what it gives."""
    start = client.get("/oidc/start", params={"next": next})
    assert start.status_code == 303, start.text
    asked = {name: values[0] for name, values in parse_qs(urlsplit(start.headers["location"]).query).items()}
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == f"{URL}/oidc/back"
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    back = httpx.get(start.headers["location"], follow_redirects=False).headers["location"]
    return client.get(back.removeprefix(URL))


def test_who_has_an_account_gets_in(world: World, provider: Provider):
    world.ledger.accounts.add("petra", "auditor", identity=f"{provider.url} 42")
    with console(world, provider) as client:
        assert "Sign in with Example" in client.get("/sign-in").text
        answer = there_and_back(client)
        assert (answer.status_code, answer.headers["location"]) == (303, "/trail")
        assert "petra" in client.get("/trail").text
    assert [(e.actor, e.to_json()["body"]) for e in world.ledger.trail.events(kinds=["signed in"])] == [
        ("petra", {"by": "oidc"})
    ]


def test_who_has_none_is_refused_or_welcome(world: World, provider: Provider):
    with console(world, provider) as client:
        assert there_and_back(client).status_code == 403
        assert denials(world.ledger)[0]["why"] == "no account, or no role, for this person"
    with console(world, provider, newcomers=Role.REQUESTER) as client:
        assert there_and_back(client).status_code == 303
        assert world.ledger.accounts.get("petra").role == "requester"
        assert there_and_back(client).status_code == 303, "and the next time it is the same account"
    assert [row.name for row in world.ledger.accounts.all()].count("petra") == 1


def test_a_newcomer_does_not_take_a_name(world: World, provider: Provider):
    provider.person = {"sub": "7", "preferred_username": "oscar"}
    with console(world, provider, newcomers=Role.REQUESTER) as client:
        assert there_and_back(client).status_code == 403
    assert "name is taken" in denials(world.ledger)[0]["why"]
    assert world.ledger.accounts.get("oscar").identity is None


def test_the_provider_says_the_role(world: World, provider: Provider):
    how = {"role_claim": "groups", "roles": {"dpo": Role.OFFICER, "ml": Role.OPERATOR}}
    provider.person["groups"] = ["ml", "everybody"]
    with console(world, provider, **how) as client:
        assert there_and_back(client).status_code == 303
        assert world.ledger.accounts.get("petra").role == "operator"
        provider.person["groups"] = ["dpo", "ml"]
        assert there_and_back(client).status_code == 303
        assert world.ledger.accounts.get("petra").role == "officer"
        provider.person["groups"] = ["everybody"]
        assert there_and_back(client).status_code == 403, "no role any more, no way in"


def test_a_disabled_account_stays_out(world: World, provider: Provider):
    world.ledger.accounts.add("petra", "auditor", identity=f"{provider.url} 42")
    world.ledger.accounts.change("petra", disabled=True, actor="ada")
    with console(world, provider, newcomers=Role.REQUESTER) as client:
        assert there_and_back(client).status_code == 403


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "another key": ({"other_key": True}, "not genuine"),
    "no signature": ({"unsigned": True}, "no signature that counts"),
    "a shared secret": ({"shared_secret": True}, "no signature that counts"),
    "tampered": ({"tampered": True}, "not genuine"),
    "an unknown key": ({"kid": "nobody"}, "does not publish"),
    "another nonce": ({"claims": {"nonce": "x"}}, "nonce"),
    "no nonce": ({"claims": {"nonce": None}}, "nonce"),
    "for somebody else": ({"claims": {"aud": "other"}}, "not genuine"),
    "for two, and not by us": ({"claims": {"aud": ["fedforget", "other"], "azp": "other"}}, "somebody else"),
    "too old": ({"claims": {"exp": int(time.time()) - 3600}}, "not genuine"),
    "without an end": ({"claims": {"exp": None}}, "not genuine"),
    "nobody": ({"claims": {"sub": None}}, "not genuine"),
    "another issuer": ({"claims": {"iss": "https://evil.example"}}, "not genuine"),
    "another state": ({"state": "x"}, "state"),
    "another provider's answer": ({"iss": "https://evil.example"}, "another provider's"),
    "refused there": ({"refuse": True}, "the provider refused"),
    "a name that cannot be kept": ({"claims": {"sub": "x" * 400}}, "cannot be kept"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_recorded(world: World, provider: Provider, lie: str):
    provider.lies, words = LIES[lie]
    with console(world, provider, newcomers=Role.ADMIN) as client:
        answer = there_and_back(client)
        assert answer.status_code == 403
        assert client.get("/").status_code == 303
    assert words in denials(world.ledger)[0]["why"]
    assert denials(world.ledger)[0]["by"] == "oidc"
    assert "petra" not in [row.name for row in world.ledger.accounts.all()]


def test_a_code_is_for_the_browser_that_started(world: World, provider: Provider):
    """Somebody who slips their own code to another browser gets nowhere: the cookie is not there."""
    with console(world, provider, newcomers=Role.ADMIN) as client:
        start = client.get("/oidc/start")
        back = httpx.get(start.headers["location"], follow_redirects=False).headers["location"].removeprefix(URL)
        client.cookies.clear()
        assert client.get(back).status_code == 403
        assert "did not start here" in denials(world.ledger)[0]["why"]


def test_a_stolen_code_is_no_use_without_the_verifier(world: World, provider: Provider):
    with console(world, provider, newcomers=Role.ADMIN) as mine, console(world, provider) as theirs:
        back = httpx.get(mine.get("/oidc/start").headers["location"], follow_redirects=False).headers["location"]
        code = parse_qs(urlsplit(back).query)["code"][0]
        theirs_start = theirs.get("/oidc/start").headers["location"]
        state = parse_qs(urlsplit(theirs_start).query)["state"][0]
        assert theirs.get("/oidc/back", params={"code": code, "state": state}).status_code == 403
        assert "does not answer as it should" in denials(world.ledger)[0]["why"]


def test_new_keys_are_fetched(world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch):
    with console(world, provider, newcomers=Role.REQUESTER) as client:
        assert there_and_back(client).status_code == 303
        assert there_and_back(client).status_code == 303
        assert provider.asked.count("/keys") == 1, "kept for an hour"
        provider.key, provider.kid = provider.other, "second"
        monkeypatch.setattr("fedforget.console.oidc.time.monotonic", lambda: time.perf_counter() + 100)
        assert there_and_back(client).status_code == 303


def test_a_provider_that_hangs_holds_up_nobody_else(world: World, monkeypatch: pytest.MonkeyPatch):
    """Three visitors wait for it, together and not for long; a page asked for after them comes before them."""
    monkeypatch.setattr("fedforget.console.oidc.FETCH_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        app = app_of(world, OidcSettings(f"http://127.0.0.1:{silent.getsockname()[1]}", "fedforget"))
        come: list[str] = []

        async def visit(client: httpx.AsyncClient, path: str) -> httpx.Response:
            answer = await client.get(path)
            come.append(path)
            return answer

        async def visits() -> list[httpx.Response]:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url=URL) as client, asyncio.timeout(20):
                paths = ["/oidc/start"] * 3 + ["/sign-in"]
                return await asyncio.gather(*(visit(client, path) for path in paths))

        answers = asyncio.run(visits())
        assert come == ["/sign-in", *["/oidc/start"] * 3]
        assert [answer.status_code for answer in answers] == [422, 422, 422, 200]
        assert "does not answer; try again later" in answers[0].text
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()  # one fetch for all three


def test_not_more_than_so_many_codes_are_exchanged_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fedforget.console.oidc.FETCH_SECONDS", 0.3)
    monkeypatch.setattr("fedforget.console.oidc.MOST_EXCHANGES", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"

        async def exchange() -> list[str]:
            asked = ConsoleProvider(OidcSettings("https://login.example", "fedforget"))
            monkeypatch.setattr(asked, "about", lambda: told({"token_endpoint": address}))
            found = await asyncio.gather(*(asked.exchange("c", "v", "r") for _ in range(4)), return_exceptions=True)
            return sorted(map(str, found))

        async def told(about: dict[str, str]) -> dict[str, str]:
            return about

        late = "the provider does not answer as it should (TimeoutError)"
        assert asyncio.run(exchange()) == [late, late, *["too many wait for the provider"] * 2]


@pytest.mark.real
def test_pages_answer_while_a_provider_hangs(tmp_path: Path):
    """The console as people start it, and a provider that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (tmp_path / "home").mkdir(mode=0o700)
        issuer = f"http://127.0.0.1:{silent.getsockname()[1]}"
        (tmp_path / "home" / "console.toml").write_text(f'[oidc]\nissuer = "{issuer}"\nclient_id = "fedforget"\n')
        with running_console(tmp_path / "home", "--no-worker") as console, ThreadPoolExecutor(3) as pool:
            assert httpx.get(f"{console.url}/sign-in").status_code == 200
            asked = [pool.submit(httpx.get, f"{console.url}/oidc/start", timeout=60) for _ in range(3)]
            answered = 0
            with silent.accept()[0], httpx.Client(timeout=60) as another:  # the first fetch has begun, and waits
                while not any(visit.done() for visit in asked):
                    assert another.get(f"{console.url}/sign-in").status_code == 200
                    answered += 1
            assert answered > 1, "a page that waited for the provider would be the only one"
            assert {visit.result().status_code for visit in asked} == {422}


def test_a_provider_that_is_away_is_one_sentence(world: World, provider: Provider, stranger: Visit):
    provider.lies = {"about_issuer": "https://evil.example"}
    with console(world, provider) as client:
        answer = client.get("/oidc/start")
        assert answer.status_code == 422
        assert "does not answer" in answer.text
    assert stranger.get("/oidc/start").status_code == 404, "where no provider is set up, there is nothing"
