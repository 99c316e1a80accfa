"""Pages: one's own account, and everybody's for an admin."""

from __future__ import annotations

from typing import Annotated, Any

from anyio.to_thread import run_sync
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from fedforget.console import people
from fedforget.console.models import AccountChange
from fedforget.console.permissions import Permission
from fedforget.console.rendering import render, shown_on
from fedforget.console.sign_in import let_in
from fedforget.console.visitors import Posted, Visitor, allow, guarded_router
from fedforget.errors import InputError
from fedforget.ledger.states import Role

router = guarded_router(include_in_schema=False)
Member = Annotated[Visitor, allow(Permission.KEEP_OWN_ACCOUNT)]
Admin = Annotated[Visitor, allow(Permission.KEEP_ACCOUNTS)]
Owner = Annotated[Visitor, allow(Permission.KEEP_OWN_ACCOUNT, in_person=True)]
Keeper = Annotated[Visitor, allow(Permission.KEEP_ACCOUNTS, in_person=True)]


@router.get("/account")
def own_account(visitor: Member) -> Response:
    return _own(visitor)


def _own(visitor: Visitor, *, secret: str = "", problem: str = "", status: int = 200) -> Response:
    account = visitor.ledger.accounts.get(visitor.name)
    return render(
        visitor, "account.html", status, account=account, tokens=visitor.ledger.accounts.tokens(visitor.name),
        secret=secret, problem=problem,
    )  # fmt: skip


@router.post("/account/password")
async def change_password(visitor: Owner, form: Posted) -> Response:
    """The old one is asked for where there is one. All other sessions end."""
    return await run_sync(_change_password, visitor, form, limiter=visitor.console.hashers)


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
    return let_in(visitor, visitor.person, "password", "/account")


@router.post("/account/tokens")
@shown_on(_own)
def make_token(visitor: Owner, form: Posted) -> Response:
    days = form.get("days", "90")
    if not (days.isascii() and days.isdigit() and 1 <= len(days) <= 4 and 1 <= int(days) <= 3650):
        raise InputError("A token lasts 1 to 3650 days.")
    secret, _ = people.make_token(visitor, form.get("label", ""), int(days))
    return _own(visitor, secret=secret)


@router.post("/account/tokens/{id}/revoke")
def revoke_token(visitor: Member, id: str) -> Response:
    people.revoke_token(visitor, id)
    return RedirectResponse("/account", 303)


@router.get("/accounts")
def list_accounts(visitor: Admin) -> Response:
    return _accounts(visitor)


def _accounts(visitor: Visitor, *, link: str = "", about: str = "", problem: str = "", status: int = 200) -> Response:
    return render(
        visitor, "accounts.html", status, rows=visitor.ledger.accounts.all(), roles=list(Role), link=link, about=about,
        problem=problem,
    )  # fmt: skip


@router.post("/accounts")
@shown_on(_accounts)
def add_account(visitor: Keeper, form: Posted) -> Response:
    """A new account, and a link to sign in with."""
    account = visitor.ledger.accounts.add(
        form.get("name", ""), form.get("role", ""), identity=form.get("identity") or None, actor=visitor.name
    )
    return _accounts(visitor, link=people.link(visitor, account.name), about=account.name)


@router.post("/accounts/{name}/change")
@shown_on(_accounts)
def change_account(visitor: Keeper, name: str, form: Posted) -> Response:
    values: dict[str, Any] = {}
    if form.get("role"):
        values["role"] = form["role"]
    if form.get("disabled") in ("yes", "no"):
        values["disabled"] = form["disabled"] == "yes"
    try:
        wanted = AccountChange(**values)
    except ValidationError:
        raise InputError("Choose one of the roles.") from None
    people.change(visitor, name, wanted)
    return RedirectResponse("/accounts", 303)


@router.post("/accounts/{name}/link")
@shown_on(_accounts)
def make_link(visitor: Keeper, name: str) -> Response:
    return _accounts(visitor, link=people.link(visitor, name), about=name)
