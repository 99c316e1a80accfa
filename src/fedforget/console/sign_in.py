"""Signing in and out: by password, and by a link that works once."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi.requests import Request
from starlette.responses import RedirectResponse, Response

from fedforget.console.permissions import Permission
from fedforget.console.rendering import render
from fedforget.console.security import VISIT, drop_cookie, set_cookie
from fedforget.console.visitors import Posted, Visitor, address_of, allow, check_forgery, guarded_router, too_often
from fedforget.ledger.accounts import Person

router = guarded_router(include_in_schema=False)
Stranger = Annotated[Visitor, allow(Permission.OPEN_TO_ALL)]
Member = Annotated[Visitor, allow(Permission.KEEP_OWN_ACCOUNT)]


def local_address(where: str | None) -> str:
    """A place on this console to go on to; anything else is the first page.

    >>> local_address("/requests/new"), local_address("//evil.example"), local_address("https://evil.example")
    ('/requests/new', '/', '/')
    """
    if not where or not where.startswith("/") or where[1:2] in ("/", "\\") or not where.isprintable():
        return "/"
    return where


@router.get("/sign-in")
def sign_in_page(visitor: Stranger, next: str = "/") -> Response:
    if visitor.person is not None:
        return RedirectResponse(local_address(next), 303)
    return _sign_in_page(visitor, local_address(next))


def _sign_in_page(visitor: Visitor, next: str, *, name: str = "", **more: Any) -> Response:
    oidc = visitor.console.settings.oidc
    return _form(visitor, "sign_in.html", next=next, name=name, oidc_label=oidc.label if oidc else None, **more)


def _form(visitor: Visitor, template: str, **values: Any) -> Response:
    """A page whose form carries a token, also for somebody who has no session yet."""
    if visitor.secret is not None:
        return render(visitor, template, **values)
    secret = secrets.token_urlsafe(24)
    response = render(replace(visitor, secret=secret), template, **values)
    set_cookie(response, visitor.console.settings, secret, seconds=None, part=VISIT)
    return response


def check_attempts(visitor: Visitor, request: Request, *accounts: str) -> None:
    """Nobody tries to sign in too often, from one address or for one account."""
    keys = [f"address {address_of(request)}", *(f"account {name[:64]}" for name in accounts)]
    wait = max(map(visitor.console.sign_in_limit.take, keys))
    if wait:
        raise too_often(wait, "Too many attempts to sign in; wait a minute.")


@router.post("/sign-in")
async def sign_in(request: Request, visitor: Stranger, form: Posted) -> Response:
    await check_forgery(request, visitor)
    name, next = form.get("name", "").lower(), local_address(form.get("next"))
    check_attempts(visitor, request, name)
    person = await run_sync(
        visitor.ledger.accounts.authenticate, name, form.get("password", ""), limiter=visitor.console.hashers
    )
    if person is None:
        problem = "This name and password do not belong together."
        return await run_sync(lambda: _sign_in_page(visitor, next, status=401, problem=problem, name=name[:64]))
    return await run_sync(let_in, visitor, person, "password", next)


def let_in(visitor: Visitor, person: Person, by: str, next: str) -> Response:
    """Open a session, always a new one, and go on."""
    settings = visitor.console.settings
    if visitor.by == "session" and visitor.secret is not None:
        visitor.ledger.accounts.close_session(visitor.secret)
    lasting = timedelta(hours=settings.session_hours)
    secret = visitor.ledger.accounts.open_session(person.name, by=by, lasting=lasting)
    response = RedirectResponse(next, 303)
    set_cookie(response, settings, secret, seconds=int(lasting.total_seconds()))
    drop_cookie(response, settings, VISIT)
    return response


@router.get("/link/{secret}")
def link_page(visitor: Stranger, secret: str) -> Response:
    """Only a button: a mail program that looks at links first must not use this one up."""
    return _form(visitor, "link.html", link=secret[:100])


@router.post("/link")
async def use_link(request: Request, visitor: Stranger, form: Posted) -> Response:
    await check_forgery(request, visitor)
    check_attempts(visitor, request)
    person = await run_sync(visitor.ledger.accounts.redeem_link, form.get("link", "")[:100])
    if person is None:
        problem = "This link was used before, or its time is over. Ask for a new one."
        return await run_sync(lambda: _sign_in_page(visitor, "/", status=401, problem=problem))
    return await run_sync(let_in, visitor, person, "link", "/?welcome=1")


@router.post("/sign-out")
def sign_out(visitor: Member) -> Response:
    if visitor.secret is not None:
        visitor.ledger.accounts.close_session(visitor.secret)
    response = RedirectResponse("/sign-in", 303)
    drop_cookie(response, visitor.console.settings)
    return response


@router.get("/glossary")
def glossary(visitor: Stranger) -> Response:
    """The words of the pages."""
    return render(visitor, "glossary.html")
