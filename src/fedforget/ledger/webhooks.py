"""Webhooks: other systems are told of every change of state, signed as https://www.standardwebhooks.com says.

    webhook-id         the same for each try, so that who gets a message twice can tell
    webhook-timestamp  seconds since 1970, of this try
    webhook-signature  v1, and base64 of HMAC-SHA256(secret, id.timestamp.body)

The outbox is the chain itself: a change of state is an event, written in the same transaction. `position` says up to
which event a webhook has been told. So nothing is lost by a kill, what was answered too late comes twice, the order is
that of the events, and no delivery holds up a request. A message that fails is tried again, each time later, and after
the last time given up, with an event that says so.

An admin names the address. It is https, or http on this machine; no redirect is followed, and of the answer only the
status counts. Whoever may add a webhook can have the worker send to any address that it reaches."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from fedforget.errors import FedForgetError, InputError
from fedforget.ledger.checks import check_federation_name, is_loopback
from fedforget.ledger.clock import to_text
from fedforget.ledger.core import Core, head_of, named
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.recorded import recorded
from fedforget.ledger.schema import Event, Request, Webhook
from fedforget.ledger.states import RequestState

log = logging.getLogger(__name__)
PREFIX = "whsec_"
DELAYS = tuple(timedelta(seconds=s) for s in (5, 300, 1800, 7200, 18000, 36000))
"""After each failed try of a message; after the last one it is given up."""
LEASE = timedelta(seconds=60)
"""While one process delivers, others leave this webhook alone."""
TIMEOUT_S = 10.0
POLL_S = 1.0
LAST_S = 5.0
"""So long a worker that ends goes on with what is left."""
LONGEST_URL = 500


@dataclass(frozen=True)
class Message:
    """One change of state, for one webhook."""

    webhook: Webhook
    event: int
    id: str
    body: str


def sign(secret: str, id: str, timestamp: int, body: str) -> str:
    """The signature of a message; here that of the specification's example.

    >>> id = "msg_p5jXN8AQM9LWM0D4loKWxJek"
    >>> sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", id, 1614265330, '{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    key = base64.b64decode(secret.removeprefix(PREFIX))
    made = hmac.new(key, f"{id}.{timestamp}.{body}".encode(), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(made).decode()}"


class Webhooks:
    """`ledger.webhooks`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def add(self, name: str, url: str, *, actor: str) -> Webhook:
        """Tell this address of every change of state from now on; the row has the secret to check with."""
        check_federation_name(name)
        _check_url(url)
        now, secret = self._core.clock(), PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
        try:
            with self._core.writing() as session:
                row = Webhook(name=name, url=url, secret=secret, made=now, disabled=None, not_before=now, attempts=0)
                row.position = head_of(session).number
                session.add(row)
                said = {"webhook": name, "to": urlsplit(url).hostname, **recorded("webhook", row)}
                self._core.append(session, actor, "webhook added", said)
                return row
        except IntegrityError:
            raise ConflictError(f"There is a webhook '{name}' already, or was; choose another name.") from None

    def disable(self, name: str, *, actor: str) -> Webhook:
        """Tell it nothing more."""
        with self._core.writing() as session:
            row = named(session, Webhook, name)
            if row.disabled is not None:
                raise ConflictError(f"The webhook '{name}' is disabled already.")
            row.disabled = self._core.clock()
            self._core.append(session, actor, "webhook changed", {"webhook": name, **recorded("webhook", row)})
            return row

    def all(self) -> list[Webhook]:
        return self._core.rows(select(Webhook).order_by(Webhook.name))

    def deliver(self, enough: Callable[[], bool] = lambda: False) -> int:
        """Tell each webhook what is due, one message after another, until it is `enough`; how many were taken."""
        told = 0
        for name in [row.name for row in self.all() if row.disabled is None]:
            while not enough() and (message := self._take(name)) is not None:
                problem, gone = send(message, int(self._core.clock().timestamp()))
                self._settle(message, problem, gone)
                if problem is not None:
                    break
                told += 1
        return told

    def _take(self, name: str) -> Message | None:
        """The next message of a webhook, if it is due; nobody else takes it for a while."""
        now, waiting = self._core.clock(), (Event.kind.in_([*RequestState]), Event.request.is_not(None))
        with self._core.reading() as session:  # most often there is nothing, and nothing is locked
            row = named(session, Webhook, name)
            found = select(Event.number).where(Event.number > row.position, *waiting).limit(1)
            if row.not_before > now or session.scalar(found) is None:
                return None
        with self._core.writing() as session:
            query = select(Webhook).where(Webhook.name == name, Webhook.disabled.is_(None), Webhook.not_before <= now)
            locked = session.scalars(query.with_for_update(skip_locked=True)).one_or_none()
            if locked is None:
                return None
            following = select(Event).where(Event.number > locked.position, *waiting).order_by(Event.number).limit(1)
            event = session.scalars(following).one_or_none()
            if event is None:
                return None
            request = session.get_one(Request, event.request)
            locked.not_before = now + LEASE
            ledger = head_of(session).ledger
            return Message(locked, event.number, f"msg_{ledger[:12]}_{event.number}", _body(event, request))

    def _settle(self, message: Message, problem: str | None, gone: bool) -> None:
        """Write down how it went. Who was taken for dead finds the message done, and changes nothing."""
        with self._core.writing() as session:
            query = select(Webhook).where(Webhook.name == message.webhook.name).with_for_update()
            row = session.scalars(query).one()
            if row.position >= message.event:
                return
            row.problem, row.not_before = problem, self._core.clock()
            if problem is not None and not gone and row.attempts < len(DELAYS):
                row.not_before += DELAYS[row.attempts]
                row.attempts += 1
                return
            row.position, row.attempts = message.event, 0
            if gone:
                row.disabled = self._core.clock()
                self._core.append(
                    session, "system", "webhook changed", {"webhook": row.name, **recorded("webhook", row)}
                )
            elif problem is not None:
                said = {"webhook": row.name, "event": message.event, "problem": problem}
                self._core.append(session, "system", "webhook gave up", said)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Deliver in a thread of its own while something else is done; at its end what is left, for a little while."""
        stop = threading.Event()

        def loop() -> None:
            while not stop.wait(POLL_S):
                self._try_to_deliver(stop.is_set)

        thread = threading.Thread(target=loop, name="webhooks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(TIMEOUT_S + 1.0)
            until = time.monotonic() + LAST_S
            self._try_to_deliver(lambda: time.monotonic() > until)

    def _try_to_deliver(self, enough: Callable[[], bool]) -> None:
        try:
            self.deliver(enough)
        except FedForgetError as error:
            log.warning("Webhooks: %s", error)
        except Exception:
            log.exception("Webhooks: something unexpected went wrong.")


def send(message: Message, timestamp: int) -> tuple[str | None, bool]:
    """(what went wrong, if anything; whether the address wants no more: 410)."""
    url = message.webhook.url
    headers = {
        "content-type": "application/json", "webhook-id": message.id, "webhook-timestamp": str(timestamp),
        "webhook-signature": sign(message.webhook.secret, message.id, timestamp, message.body),
    }  # fmt: skip
    try:
        status = asyncio.run(_status(url, message.body.encode(), headers))
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return f"The address does not answer ({type(error).__name__}).", False
    return (None if 200 <= status < 300 else f"The address answers with status {status}."), status == 410


async def _status(url: str, body: bytes, headers: dict[str, str]) -> int:
    """What is answered within `TIMEOUT_S`, however slowly its bytes come."""
    here = is_loopback(urlsplit(url).hostname or "")
    async with (
        asyncio.timeout(TIMEOUT_S),
        httpx.AsyncClient(timeout=None, follow_redirects=False, trust_env=not here) as client,
        client.stream("POST", url, content=body, headers=headers) as answer,
    ):
        return answer.status_code


def _body(event: Event, request: Request) -> str:
    """What is told: the case number, and never a name or a reason."""
    data: dict[str, Any] = {
        "event": event.number, "request": request.id, "subject": request.subject, "federation": request.federation,
        "state": event.kind, "from": json.loads(event.body).get("from"), "due": to_text(request.due),
    }  # fmt: skip
    return json.dumps({"type": f"request.{event.kind}", "timestamp": to_text(event.at), "data": data})


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise InputError("The address of a webhook is https://HOST/PATH, in letters that addresses have.")
    if parts.username is not None or parts.fragment:
        raise InputError("The address of a webhook has neither a name nor a password nor a # in it.")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise InputError("A webhook goes to https; http is for this machine alone, such as http://127.0.0.1:8000/hook.")
