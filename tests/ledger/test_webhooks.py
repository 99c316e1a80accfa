"""Other systems are told of every change of state: signed, in order, at least once, also after a kill."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from ledger_worlds import World, change

from fedforget.errors import InputError
from fedforget.ledger import webhooks
from fedforget.ledger.book import Ledger
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.webhooks import DELAYS, LEASE


class Receiver:
    """An address that answers as it is told, and keeps what it got."""

    def __init__(self) -> None:
        self.status, self.got = 204, []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append((dict(self.headers.items()), body))
                self.send_response(receiver.status)
                if receiver.status == 302:
                    self.send_header("location", receiver.url + "/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    got: list[tuple[dict[str, str], bytes]]

    @property
    def states(self) -> list[str]:
        return [json.loads(body)["data"]["state"] for _, body in self.got]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.mark.real
def test_an_address_that_answers_letter_by_letter_holds_nothing_up(world: World, monkeypatch: pytest.MonkeyPatch):
    """Each letter comes in time, and the answer never."""
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                for _ in range(50):
                    connection.sendall(b"x")
                    time.sleep(0.1)

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        world.ledger.webhooks.add("slow", f"http://127.0.0.1:{server.getsockname()[1]}/hook", actor="ada")
        world.ask()
        began = time.monotonic()
        assert world.ledger.webhooks.deliver() == 0
        assert time.monotonic() - began < 3.0
        assert "does not answer (TimeoutError)" in (world.ledger.webhooks.all()[0].problem or "")
        dripping.join(10.0)


def test_every_change_of_state_in_order_and_signed(world: World, receiver: Receiver):
    world.ask()  # before there was a webhook
    row = world.ledger.webhooks.add("case-tool", receiver.url, actor="ada")
    done = world.served(subject="case-77")
    assert world.ledger.webhooks.deliver() == 6
    assert receiver.states == ["received", "accepted", "queued", "forgetting", "auditing", "done"]
    key = base64.b64decode(row.secret.removeprefix("whsec_"))
    for headers, body in receiver.got:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        made = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{made}"
        assert abs(int(headers["webhook-timestamp"]) - world.clock.now.timestamp()) < 5
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 6
    last = json.loads(receiver.got[-1][1])
    assert last["type"] == "request.done"
    assert (last["data"]["request"], last["data"]["subject"], last["data"]["from"]) == (done.id, "case-77", "auditing")
    assert world.ledger.webhooks.deliver() == 0
    assert world.ledger.trail.check().problems == ()


def test_what_fails_is_tried_again_later_each_time_and_then_given_up(world: World, receiver: Receiver):
    world.ledger.webhooks.add("tool", receiver.url, actor="ada")
    receiver.status = 500
    first, second = world.ask(), world.ask()
    for delay in DELAYS:
        assert world.ledger.webhooks.deliver() == 0
        (row,) = world.ledger.webhooks.all()
        assert row.problem == "The address answers with status 500."
        assert abs(row.not_before - world.clock.now - delay).total_seconds() < 1
        assert world.ledger.webhooks.deliver() == 0, "not yet"
        world.clock.go_on(seconds=delay.total_seconds() + 1)
    assert world.ledger.webhooks.deliver() == 0
    assert len(receiver.got) == len(DELAYS) + 1
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1, "the same message each time"
    (event,) = world.ledger.trail.events(kinds=["webhook gave up"])
    assert json.loads(event.body)["problem"] == "The address answers with status 500."
    receiver.status = 200
    assert world.ledger.webhooks.deliver() == 1, "and the next one goes on"
    assert json.loads(receiver.got[-1][1])["data"]["request"] == second.id != first.id


@pytest.mark.parametrize("status", [302, 404, 503])
def test_only_a_success_is_one_and_no_redirect_is_followed(world: World, receiver: Receiver, status: int):
    world.ledger.webhooks.add("tool", receiver.url, actor="ada")
    receiver.status = status
    world.ask()
    assert world.ledger.webhooks.deliver() == 0
    assert len(receiver.got) == 1


def test_who_is_gone_is_told_nothing_more(world: World, receiver: Receiver):
    world.ledger.webhooks.add("tool", receiver.url, actor="ada")
    receiver.status = 410
    world.ask()
    assert world.ledger.webhooks.deliver() == 0
    (row,) = world.ledger.webhooks.all()
    assert row.disabled is not None
    world.ask()
    assert world.ledger.webhooks.deliver() == 0
    assert len(receiver.got) == 1
    assert world.ledger.trail.check().problems == ()


def test_killed_between_the_message_and_its_note_it_comes_again(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    world.ledger.webhooks.add("tool", receiver.url, actor="ada")
    world.ask()

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(webhooks.Webhooks, "_settle", killed)
        with pytest.raises(KeyboardInterrupt):
            world.ledger.webhooks.deliver()
    with Ledger.open(world.ledger.home, world.ledger.database.url, clock=world.clock) as other:
        assert other.webhooks.deliver() == 0, "the lease still runs"
        world.clock.go_on(seconds=LEASE.total_seconds() + 1)
        assert other.webhooks.deliver() == 1
    ids = [headers["webhook-id"] for headers, _ in receiver.got]
    assert len(ids) == 2
    assert len(set(ids)) == 1, "who gets it twice can tell"


def test_a_silent_address_holds_up_no_request(world: World, monkeypatch: pytest.MonkeyPatch):
    world.ledger.webhooks.add("nobody", "http://127.0.0.1:9/", actor="ada")
    assert world.served().state == "done"
    assert world.ledger.webhooks.deliver() == 0
    assert "does not answer" in str(world.ledger.webhooks.all()[0].problem)


@pytest.mark.parametrize(
    "address",
    ["http://example.org/hook", "ftp://127.0.0.1/", "https://", "nonsense", "https://me:secret@example.org/",
     "https://example.org/#x", "https://exa mple.org/", "http://169.254.169.254/latest", "https://example.org:x/"],
)  # fmt: skip
def test_an_address_that_is_none(world: World, address: str):
    with pytest.raises(InputError):
        world.ledger.webhooks.add("tool", address, actor="ada")
    assert world.ledger.webhooks.all() == []


def test_a_webhook_is_held_against_the_trail(world: World):
    world.ledger.webhooks.add("tool", "https://example.org/hook", actor="ada")
    with pytest.raises(ConflictError, match="already"):
        world.ledger.webhooks.add("tool", "https://example.org/other", actor="ada")
    assert world.ledger.trail.check().problems == ()
    told = "".join(event.body for event in world.ledger.trail.events(after=0, limit=500))
    assert world.ledger.webhooks.all()[0].secret not in told
    change(world.ledger, "UPDATE webhooks SET url = 'https://evil.example/'")
    assert world.ledger.trail.check().problems == ("The webhook 'tool' has another url than its events say.",)


def test_nothing_is_told_to_a_disabled_one(world: World, receiver: Receiver):
    world.ledger.webhooks.add("tool", receiver.url, actor="ada")
    world.ledger.webhooks.disable("tool", actor="ada")
    world.ask()
    assert world.ledger.webhooks.deliver() == 0
    assert receiver.got == []
    with pytest.raises(ConflictError, match="disabled already"):
        world.ledger.webhooks.disable("tool", actor="ada")
    assert world.ledger.trail.check().problems == ()


def test_a_worker_delivers_beside_its_work_and_once_more_at_its_end(world: World, receiver: Receiver):
    world.ledger.webhooks.add("tool", receiver.url, actor="ada")
    world.queued()
    with world.ledger.webhooks.beside():
        deadline = time.monotonic() + 20
        while len(receiver.got) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert receiver.states == ["received", "accepted", "queued"]
        world.serve()
    assert receiver.states[3:] == ["forgetting", "auditing", "done"]
