"""The app: all routes, what stands around them, and what every error becomes."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import anyio.to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedforget.audit.evidence import code_version
from fedforget.console import (
    accounts,
    federations,
    monitoring,
    oidc,
    opendsr,
    papers,
    problems,
    request_pages,
    requests,
    sign_in,
    trail,
)
from fedforget.console.monitoring import Meters
from fedforget.console.problems import DeniedError, Problem, for_programs, problem_response
from fedforget.console.rendering import render
from fedforget.console.security import HEADERS, Shield, drop_cookie, visit_secret
from fedforget.console.settings import ConsoleSettings
from fedforget.console.state import THREADS, Console
from fedforget.console.visitors import GuardedRoute, Visitor
from fedforget.errors import FedForgetError
from fedforget.ledger.book import Ledger

log = logging.getLogger("fedforget.console")
ROUTERS = (
    monitoring.router, sign_in.router, oidc.router, request_pages.router, requests.pages, federations.pages,
    trail.pages, papers.pages, accounts.pages, requests.api, opendsr.router, federations.api, trail.api, papers.api,
    accounts.api,
)  # fmt: skip


def make_app(ledger: Ledger, settings: ConsoleSettings, *, with_worker: bool = False) -> FastAPI:
    """The console over an opened ledger. The caller closes the ledger when the app has stopped."""
    console = Console(ledger, settings, with_worker=with_worker)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        console.start()
        yield
        await anyio.to_thread.run_sync(console.stop)

    app = FastAPI(
        title="fedforget", version=code_version(), lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None,
        description="Erasure requests, evidence, model versions and events of a fedforget ledger.",
    )  # fmt: skip
    app.state.console = console
    for router in ROUTERS:
        app.router.routes.extend(router.routes)  # one flat list: found fast, and checked below
    app.mount("/static", Assets(packages=[("fedforget.console", "static")]))
    app.exception_handler(DeniedError)(_denied)
    app.exception_handler(FedForgetError)(_refused)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(Exception)(_unforeseen)
    app.add_middleware(Shield, settings=settings)
    app.add_middleware(Metered, meters=console.meters)
    check_every_route(app)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return app


def check_every_route(app: FastAPI) -> None:
    """Nothing is served that names no permission, except the files of style."""
    for route in app.routes:
        style = isinstance(route, Mount) and isinstance(route.app, Assets)
        if not style and not isinstance(route, GuardedRoute):
            raise AssertionError(f"{route} is served without a permission")


class Assets(StaticFiles):
    """Our own style and script. Their addresses change with their content."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


class Metered:
    """Counts answers and their time, by route and not by address: an address may hold a secret."""

    def __init__(self, app: ASGIApp, meters: Meters) -> None:
        self.app, self.meters = app, meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()

        async def metered(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "none")
                self.meters.observe(scope["method"], route, message["status"], time.perf_counter() - began)
            await send(message)

        await self.app(scope, receive, metered)


def _route(request: Request) -> str:
    """For the log: never the address itself, which may hold a secret."""
    return getattr(request.scope.get("route"), "path", "no route")


def _answer(request: Request, status: int, detail: str, **more: Any) -> Response:
    """The same problem for a program and for a person."""
    if for_programs(request):
        return problem_response(status, detail, **more)
    console: Console = request.app.state.console
    secret = request.cookies.get(console.settings.cookie)
    try:
        person = None if secret is None else console.ledger.accounts.session(secret)
    except FedForgetError:
        person = None
    visitor = Visitor(console, person, "nothing", secret or visit_secret(request, console.settings))
    response = render(visitor, "problem.html", status, problem_status=status, detail=detail)
    response.headers.update(more.get("headers") or {})
    return response


def _denied(request: Request, error: DeniedError) -> Response:
    if error.status_code == 401 and not for_programs(request) and request.method in ("GET", "HEAD"):
        where = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        back = f"?next={quote(where)}" if where != "/" else ""
        response: Response = RedirectResponse(f"/sign-in{back}", 303)
    else:
        response = _answer(request, error.status_code, error.detail, headers=error.headers)
    settings = request.app.state.console.settings
    if error.status_code == 401 and settings.cookie in request.cookies:
        drop_cookie(response, settings)
    return response


def _refused(request: Request, error: FedForgetError) -> Response:
    status = problems.status_of(error)
    if status >= 500:
        log.error("%s %s: %s", request.method, _route(request), error)
    return _answer(request, status, str(error))


def _invalid(request: Request, error: RequestValidationError) -> Response:
    fields = problems.validation_fields(error)
    detail = "; ".join(f"{name}: {words}" for name, words in fields.items())
    return _answer(request, 422, detail[:1000], fields=fields)


def _http(request: Request, error: HTTPException) -> Response:
    known = {404: "There is nothing here.", 405: "This address does not take that method."}
    return _answer(request, error.status_code, known.get(error.status_code, error.detail), headers=error.headers)


def _unforeseen(request: Request, error: Exception) -> Response:
    """A mistake of ours. The log has it; the answer says nothing of it."""
    log.error("%s %s failed", request.method, _route(request), exc_info=error)
    words = "Something went wrong here; the log of the console says what."
    response = problem_response(500, words) if for_programs(request) else PlainTextResponse(words, 500)
    response.headers.update(HEADERS)  # this one is made outside the shield
    return response


def describe(app: FastAPI) -> dict[str, Any]:
    """The API's own description, with the shape of its errors, and how to sign in."""
    if app.openapi_schema is None:
        described = FastAPI.openapi(app)
        parts = described["components"]
        parts["schemas"]["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"token": []}]
        app.openapi_schema = described
    return app.openapi_schema
