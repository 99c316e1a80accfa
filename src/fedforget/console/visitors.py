"""Who is asking, and may they? `Allowed` stands before every route; what it refuses, the ledger writes down.

Addresses of people are not written into the ledger: it keeps everything for ever."""

from __future__ import annotations

import inspect
import logging
import math
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends
from fastapi.requests import Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from fedforget.console import security
from fedforget.console.permissions import Permission, may
from fedforget.console.problems import DeniedError, for_programs, openapi_responses
from fedforget.errors import InputError
from fedforget.ledger.accounts import Person
from fedforget.ledger.book import Ledger
from fedforget.ledger.checks import is_loopback
from fedforget.ledger.core import SYSTEM
from fedforget.ledger.errors import MissingError
from fedforget.ledger.schema import Federation
from fedforget.ledger.schema import Request as ErasureCase
from fedforget.ledger.states import Role

if TYPE_CHECKING:
    from fedforget.console.state import Console

log = logging.getLogger("fedforget.console")
By = Literal["session", "token", "nothing", "loopback"]


@dataclass(frozen=True)
class Visitor:
    """Somebody who may use the route they are at."""

    console: Console
    person: Person | None
    by: By
    secret: str | None = field(default=None, repr=False)
    """Of the session, or of the visit of somebody who is not signed in."""

    @property
    def ledger(self) -> Ledger:
        return self.console.ledger

    @property
    def role(self) -> Role | None:
        return None if self.person is None else self.person.role

    @property
    def name(self) -> str:
        assert self.person is not None, "the route lets strangers in"
        return self.person.name

    @property
    def csrf(self) -> str:
        return "" if self.secret is None else security.csrf_token(self.secret)

    def may(self, permission: Permission) -> bool:
        return may(self.role, permission)

    @property
    def only_own(self) -> str | None:
        """The one account whose requests they see; None: all."""
        return None if self.may(Permission.SEE_ALL_REQUESTS) else self.name

    def description(self, federation: Federation) -> dict[str, Any]:
        """What it holds: the names for all, since they ask by them, and the numbers of samples for who may see them."""
        known = {"shape": [], "serving": None, **federation.description}
        if self.may(Permission.SEE_COUNTS):
            return known
        return known | {"clients": [{**client, "samples": None, "counts": []} for client in known["clients"]]}

    def request(self, id: str) -> ErasureCase:
        """A request that they may see. Another's is as if it were not there."""
        found = self.ledger.requests.get(id)
        if self.only_own not in (None, found.asked_by):
            said = {"by": self.by, "why": "another's request"}
            self.console.denials.record(f"account {self.name}", self.name, said, found.id)
            raise MissingError(f"There is no request '{id}'.")
        return found


class Allowed:
    """What every route asks for: lets in whom the table allows, with a token where a form could be forged.

    `in_person` is for what makes or changes ways in: somebody who is signed in, and no program. Who found a token could
    otherwise make a password, a link or another token of it, and keep them when the token is revoked."""

    def __init__(self, permission: Permission, *, from_loopback: bool = False, in_person: bool = False) -> None:
        self.permission, self.from_loopback, self.in_person = permission, from_loopback, in_person

    async def __call__(self, request: Request) -> Visitor:
        """For the handler: who was let in."""
        visitor: Visitor = request.state.visitor
        return visitor

    async def let_in(self, request: Request) -> Visitor:
        console: Console = request.app.state.console
        visitor = await self._who(console, request)
        if self.permission is Permission.OPEN_TO_ALL or visitor.by == "loopback":
            return visitor
        where = {"method": request.method, "route": request.scope["route"].path}
        if visitor.person is None:
            if request.method == "GET" and not for_programs(request):
                raise DeniedError(401, "Sign in first.")  # somebody arrives; nothing was claimed, nothing is refused
            await refuse(request, SYSTEM, {"by": "nothing", "why": "not signed in", **where}, 401)
        if not visitor.may(self.permission):
            said = {"by": visitor.by, "why": f"may not {self.permission}", "role": visitor.role, **where}
            await refuse(request, visitor.name, said, 403)
        if self.in_person and visitor.by != "session":
            said = {"by": visitor.by, "why": "only in person", **where}
            await refuse(request, visitor.name, said, 403, "A token cannot do this; sign in to the console for it.")
        if visitor.by == "session" and request.method not in security.SAFE_METHODS:
            await check_forgery(request, visitor)
        return visitor

    async def _who(self, console: Console, request: Request) -> Visitor:
        """By token or session; a wrong one is refused, not ignored."""
        header = request.headers.get("authorization")
        if header is not None:
            kind, _, token = header.partition(" ")
            find = partial(console.ledger.accounts.token, token.strip())
            found = await console.read(find) if kind.lower() == "bearer" else None
            if found is None and self.permission is not Permission.OPEN_TO_ALL:
                await refuse(request, SYSTEM, {"by": "token", "why": "no such token, or not any more"}, 401)
            return Visitor(console, found, "token" if found else "nothing")
        secret = request.cookies.get(console.settings.cookie)
        if secret is not None:
            found = await console.read(partial(console.ledger.accounts.session, secret))
            if found is not None:
                return Visitor(console, found, "session", secret)
            if self.permission is not Permission.OPEN_TO_ALL:
                await refuse(request, SYSTEM, {"by": "session", "why": "no such session, or not any more"}, 401)
        if self.from_loopback and is_direct_loopback(console, request):
            return Visitor(console, None, "loopback")
        return Visitor(console, None, "nothing", security.visit_secret(request, console.settings))


class GuardedRoute(APIRoute):
    """Asks who it is before anything of the request is read: a stranger learns nothing from how it is refused.

    A plain function as handler runs where `Console.read` or `Console.write` puts it, by what its method is for."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        changes = not set(more.get("methods") or ()) <= security.SAFE_METHODS
        if not inspect.iscoroutinefunction(endpoint):
            endpoint = _placed(endpoint, changes)
        super().__init__(path, endpoint, **more)

    @property
    def allowed(self) -> Allowed:
        """The line of the table that the route names; one that names none, or two, is a mistake."""
        found = [item.call for item in self.dependant.dependencies if isinstance(item.call, Allowed)]
        if len(found) != 1:
            raise AssertionError(f"{self.path} must name the permission it needs, once; it names {len(found)}")
        return found[0]

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, allowed = super().get_route_handler(), self.allowed

        async def guarded(request: Request) -> Response:
            request.state.visitor = await allowed.let_in(request)
            return await handle(request)

        return guarded


def _placed(endpoint: Callable[..., Any], changes: bool) -> Callable[..., Coroutine[Any, Any, Any]]:
    @wraps(endpoint)
    async def handler(*, visitor: Visitor, **values: Any) -> Any:
        work = partial(endpoint, visitor=visitor, **values)
        return await (visitor.console.write(work) if changes else visitor.console.read(work))

    return handler


def guarded_router(prefix: str = "", **more: Any) -> APIRouter:
    """With a prefix: one of the API, whose description names the errors that any of its routes may answer with."""
    return APIRouter(prefix=prefix, route_class=GuardedRoute, responses=openapi_responses() if prefix else None, **more)


def allow(permission: Permission, *, from_loopback: bool = False, in_person: bool = False) -> Any:
    """For a route's signature: `visitor: Annotated[Visitor, allow(...)]`."""
    return Depends(Allowed(permission, from_loopback=from_loopback, in_person=in_person))


async def check_forgery(request: Request, visitor: Visitor) -> None:
    """A changing request by cookie must come from a page of ours and carry its token."""
    token = request.headers.get(security.CSRF_HEADER)
    if token is None and request.headers.get("content-type", "").partition(";")[0].strip() in FORMS:
        found = (await request.form()).get(security.CSRF_FIELD)
        token = found if isinstance(found, str) else None
    settings = visitor.console.settings
    own = security.is_own_origin(settings, request.headers)
    if own and visitor.secret is not None and security.csrf_matches(visitor.secret, token or ""):
        return
    why = "forgery token missing or wrong" if own else "sent by another site"
    who = SYSTEM if visitor.person is None else visitor.name
    said = {"by": visitor.by, "why": why, "method": request.method, "route": request.scope["route"].path}
    await refuse(
        request, who, said, 403, "This form is out of date, or it came from another site; reload and send again."
    )


FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


async def refuse(request: Request, who: str, said: dict[str, Any], status: int, detail: str | None = None) -> None:
    """Write a denial down, and answer. Who is denied too often is turned away without more writing."""
    console: Console = request.app.state.console
    address = address_of(request)
    wait = await run_in_threadpool(console.denials.record, address, who, said)
    if wait:
        raise too_often(wait, "Too many refused requests; wait a little.")
    log.warning("denied %s from %s: %s", who, address, said)
    headers = {"www-authenticate": 'Bearer realm="fedforget"'} if status == 401 else {}
    words = {401: "Sign in first, or send a token that is valid.", 403: "Your role does not allow this."}
    raise DeniedError(status, detail or words[status], headers)


def too_often(wait: float, detail: str) -> DeniedError:
    return DeniedError(429, detail, {"retry-after": str(math.ceil(wait))})


def address_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def is_direct_loopback(console: Console, request: Request) -> bool:
    """From this machine, and not through a proxy on it."""
    forwarded = any(name in request.headers for name in ("forwarded", "x-forwarded-for", "x-real-ip", "via"))
    return not forwarded and not console.settings.behind_proxy and is_loopback(address_of(request))


async def posted(request: Request) -> dict[str, str]:
    """The fields of a form, each once, as text."""
    if request.headers.get("content-type", "").partition(";")[0].strip() not in FORMS:
        return {}
    form = await request.form()
    fields: dict[str, str] = {}
    for name, value in form.multi_items():
        if isinstance(value, str):
            fields[name] = value.strip() if name != "password" else value
        else:
            fields[name] = (await value.read()).decode("utf-8", "replace")
    return fields


Posted = Annotated[dict[str, str], Depends(posted)]


def counted(text: str, what: str) -> int:
    """A number that a form must have as one."""
    found = whole_number(text)
    if found is None:
        raise InputError(f"The {what} is '{text[:40]}', but it must be a whole number.")
    return found


def decimal(text: str, what: str) -> float:
    """The same with a part behind a point, or behind a comma."""
    if re.fullmatch(r"\d{1,9}([.,]\d{1,9})?", text, re.ASCII) is None:
        raise InputError(f"The {what} is '{text[:40]}', but it must be a number such as 2.5.")
    return float(text.replace(",", "."))


def whole_number(text: str, digits: int = 9) -> int | None:
    """A number from a form; None where the text is none, or longer than `digits`."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None
