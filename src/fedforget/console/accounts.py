"""One's own account and tokens, and everybody's for an admin.

What makes or changes a way in is for somebody who is signed in, by forms alone. Programs read, and revoke tokens."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import Path
from starlette.responses import RedirectResponse, Response

from fedforget.console.models import AccountOut, MeOut, TokenOut
from fedforget.console.permissions import Permission
from fedforget.console.problems import API
from fedforget.console.rendering import render, shown_on
from fedforget.console.sign_in import let_in
from fedforget.console.visitors import Posted, Visitor, allow, guarded_router, whole_number
from fedforget.errors import InputError
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.states import Role

api = guarded_router(prefix=API, tags=["accounts"])
pages = guarded_router(include_in_schema=False)
Id = Annotated[str, Path(max_length=64)]
Member = Annotated[Visitor, allow(Permission.KEEP_OWN_ACCOUNT)]
Admin = Annotated[Visitor, allow(Permission.KEEP_ACCOUNTS)]
Owner = Annotated[Visitor, allow(Permission.KEEP_OWN_ACCOUNT, in_person=True)]
Keeper = Annotated[Visitor, allow(Permission.KEEP_ACCOUNTS, in_person=True)]
MOST_TOKENS = 50
"""Of one account, at a time."""


@api.get("/me")
def me(visitor: Member) -> MeOut:
    """Who you are, and what your role allows."""
    assert visitor.person is not None
    granted = [permission.value for permission in Permission if visitor.may(permission)]
    return MeOut(name=visitor.name, role=visitor.person.role, expires=visitor.person.expires, may=granted)


@pages.get("/account")
def own_account(visitor: Member, saved: str = "") -> Response:
    return _own(visitor, saved=bool(saved))


def _own(visitor: Visitor, *, secret: str = "", saved: bool = False, **more: Any) -> Response:
    account, tokens = visitor.ledger.accounts.get(visitor.name), visitor.ledger.accounts.tokens(visitor.name)
    return render(visitor, "account.html", account=account, tokens=tokens, secret=secret, saved=saved, **more)


@pages.post("/account/password")
async def change_password(visitor: Owner, form: Posted) -> Response:
    """The old one is asked for where there is one. All other sessions end."""
    return await run_sync(partial(_change_password, visitor, form=form), limiter=visitor.console.hashers)


@shown_on(_own)
def _change_password(visitor: Visitor, form: dict[str, str]) -> Response:
    accounts, password = visitor.ledger.accounts, form.get("new_password", "")
    if accounts.get(visitor.name).password is not None:
        if visitor.console.sign_in_limit.take(f"account {visitor.name}"):
            raise InputError("Too many attempts; wait a minute.")
        if accounts.authenticate(visitor.name, form.get("password", "")) is None:
            raise InputError("The old password is not right.")
    if password != form.get("again", ""):
        raise InputError("The two new passwords are not the same.")
    accounts.change(visitor.name, password=password, actor=visitor.name)
    assert visitor.person is not None
    return let_in(visitor, visitor.person, "password", "/account?saved=1")


@api.get("/tokens")
def list_tokens(visitor: Member) -> list[TokenOut]:
    """Your own tokens, without their secrets."""
    return [TokenOut.of(token) for token in visitor.ledger.accounts.tokens(visitor.name)]


@pages.post("/account/tokens")
@shown_on(_own)
def make_token(visitor: Owner, form: Posted) -> Response:
    """A token for scripts, in the visitor's name; the secret is shown this once."""
    now, accounts = visitor.ledger.clock(), visitor.ledger.accounts
    days = whole_number(form.get("days", "90"))
    if days is None or not 1 <= days <= 3650:
        raise InputError("A token lasts 1 to 3650 days.")
    alive = [t for t in accounts.tokens(visitor.name) if not t.revoked and (not t.expires or t.expires > now)]
    if len(alive) >= MOST_TOKENS:
        raise ConflictError(f"You have {MOST_TOKENS} tokens; revoke one that you do not use.")
    label, lasting = form.get("label", ""), timedelta(days=days)
    return _own(visitor, secret=accounts.make_token(visitor.name, label, actor=visitor.name, lasting=lasting)[0])


@api.delete("/tokens/{id}", status_code=204)
def revoke_token(visitor: Member, id: Id) -> Response:
    """One of your own tokens, or, for an admin, anybody's."""
    _revoke_token(visitor, id)
    return Response(status_code=204)


@pages.post("/account/tokens/{id}/revoke")
def revoke_token_by_form(visitor: Member, id: str) -> Response:
    _revoke_token(visitor, id)
    return RedirectResponse("/account", 303)


def _revoke_token(visitor: Visitor, id: str) -> None:
    """Another's token is as if it were not there, except for an admin."""
    owner = None if visitor.may(Permission.KEEP_ACCOUNTS) else visitor.name
    if id not in {token.id for token in visitor.ledger.accounts.tokens(owner)}:
        raise MissingError("There is no such token, or it was revoked before.")
    visitor.ledger.accounts.revoke_token(id, actor=visitor.name)


@api.get("/accounts")
def list_accounts(visitor: Admin) -> list[AccountOut]:
    return [AccountOut.of(row) for row in visitor.ledger.accounts.all()]


@pages.get("/accounts")
def show_accounts(visitor: Admin) -> Response:
    return _accounts(visitor)


def _accounts(
    visitor: Visitor, *, link: str = "", about: str = "", form: dict[str, str] | None = None, **more: Any
) -> Response:
    """`form`: of an account that could not be added."""
    rows, given = visitor.ledger.accounts.all(), form if form and form.get("name") else {}
    return render(visitor, "accounts.html", rows=rows, roles=list(Role), link=link, about=about, given=given, **more)


@pages.post("/accounts")
@shown_on(_accounts)
def add_account(visitor: Keeper, form: Posted) -> Response:
    """A new account, and a link to sign in with."""
    account = visitor.ledger.accounts.add(
        form.get("name", ""), form.get("role", ""), identity=form.get("identity") or None, actor=visitor.name
    )
    return _with_link(visitor, account.name)


@pages.post("/accounts/{name}/change")
@shown_on(_accounts)
def change_account(visitor: Keeper, name: str, form: Posted) -> Response:
    """Another role, or switched off or on; all its sessions end. A password is its owner's to set."""
    choices = {"": None, "yes": True, "no": False}
    if (disabled := form.get("disabled", "")) not in choices:
        raise InputError("An account is disabled, yes or no.")
    visitor.ledger.accounts.change(name, role=form.get("role") or None, disabled=choices[disabled], actor=visitor.name)
    return RedirectResponse("/accounts", 303)


@pages.post("/accounts/{name}/link")
@shown_on(_accounts)
def make_link(visitor: Keeper, name: str) -> Response:
    """A link that signs this account in once, within an hour; older ones end."""
    return _with_link(visitor, name)


def _with_link(visitor: Visitor, name: str) -> Response:
    if visitor.ledger.accounts.get(name).disabled is not None:
        raise InputError("The account is disabled; enable it first.")
    secret = visitor.ledger.accounts.make_link(name, actor=visitor.name)
    return _accounts(visitor, link=f"{visitor.console.settings.url.rstrip('/')}/link/{secret}", about=name)
