"""What stands between the network and the pages: headers, hosts, body sizes, forgery tokens, cookies.

The policy lets our own files in and nothing else: no inline script or style, no frame, no other site."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedforget.console.settings import ConsoleSettings

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
REPORT_POLICY = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""A report is one file with its style in it. It gets an origin of its own, without cookies, and can run nothing."""
HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-store",
}
HSTS = "max-age=31536000"
CSRF_FIELD = "csrf"
CSRF_HEADER = "x-csrf-token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def csrf_token(secret: str) -> str:
    """What our own forms carry: follows from the cookie's secret, and a stranger's page cannot read either."""
    return hmac.new(secret.encode(errors="replace"), b"fedforget csrf", hashlib.sha256).hexdigest()


def csrf_matches(secret: str, token: str) -> bool:
    return hmac.compare_digest(csrf_token(secret).encode(), token.encode(errors="replace"))


def is_own_origin(settings: ConsoleSettings, headers: Headers) -> bool:
    """Whether a browser says that one of our own pages sent this. A program says nothing: it has no cookies to steal,
    and the token is asked for all the same."""
    origin = headers.get("origin")
    if origin is not None:
        return origin in settings.origins
    return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def set_cookie(
    response: Response, settings: ConsoleSettings, value: str, *, seconds: int | None, part: str = ""
) -> None:
    """`part` names another cookie than the session's; without `seconds` it goes when the browser closes."""
    response.set_cookie(
        settings.cookie + part, value, max_age=seconds, path="/", secure=settings.secure, httponly=True, samesite="lax"
    )


def drop_cookie(response: Response, settings: ConsoleSettings, part: str = "") -> None:
    response.delete_cookie(settings.cookie + part, path="/", secure=settings.secure, httponly=True, samesite="lax")


VISIT = "-visit"
"""The cookie of somebody who is not signed in yet: their forms need a token too."""


def visit_secret(connection: HTTPConnection, settings: ConsoleSettings) -> str | None:
    return connection.cookies.get(settings.cookie + VISIT)


class BodyTooLargeError(HTTPException):
    """FastAPI lets this kind through while it reads a body."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"More than {limit} bytes are too many.")


class Shield:
    """Around the whole app: only for our own host, no endless bodies, and every answer with its headers."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self.app, self.settings, self.hosts = app, settings, settings.hosts
        self.headers = HEADERS | ({"strict-transport-security": HSTS} if settings.secure else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        guarded = self._with_headers(send)
        # A name that is not ours may be another site's that points here (DNS rebinding). Probes ask by address.
        if headers.get("host", "").lower() not in self.hosts and not scope["path"].startswith("/health"):
            refusal = PlainTextResponse("This console is not reached by that name.", 421)
            await refusal(scope, receive, guarded)
            return
        await self.app(scope, _counted(receive, self.settings.limits.body_bytes, _length(headers)), guarded)

    def _with_headers(self, send: Send) -> Send:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    found.setdefault(name, value)
            await send(message)

        return guarded


def _length(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def _counted(receive: Receive, limit: int, announced: int) -> Receive:
    """A body that is too long, or says that it will be, ends where the app begins to read it: who may not ask is
    refused before that, and a program gets its problem+json."""
    seen = 0

    async def counted() -> MutableMapping[str, Any]:
        nonlocal seen
        if announced > limit:
            raise BodyTooLargeError(limit)
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise BodyTooLargeError(limit)
        return message

    return counted
