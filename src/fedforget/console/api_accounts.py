"""The API: one's own account and tokens, and, for an admin, everybody's.

What makes or changes a way in is for somebody who is signed in: a session's cookie, with its forgery token in the
header `x-csrf-token`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from fedforget.console import people
from fedforget.console.models import AccountChange, AccountIn, AccountOut, LinkOut, MeOut, TokenIn, TokenOut
from fedforget.console.permissions import ALLOWED, Permission
from fedforget.console.problems import API
from fedforget.console.visitors import Visitor, allow, guarded_router

router = guarded_router(prefix=API, tags=["accounts"])
Name = Annotated[str, Path(max_length=64)]
Member = Annotated[Visitor, allow(Permission.KEEP_OWN_ACCOUNT)]
Admin = Annotated[Visitor, allow(Permission.KEEP_ACCOUNTS)]
Owner = Annotated[Visitor, allow(Permission.KEEP_OWN_ACCOUNT, in_person=True)]
Keeper = Annotated[Visitor, allow(Permission.KEEP_ACCOUNTS, in_person=True)]


@router.get("/me")
def me(visitor: Member) -> MeOut:
    """Who you are, and what your role allows."""
    assert visitor.person is not None
    granted = [permission.value for permission, roles in ALLOWED.items() if visitor.role in roles]
    return MeOut(name=visitor.name, role=visitor.person.role, expires=visitor.person.expires, may=granted)


@router.get("/tokens")
def list_tokens(visitor: Member) -> list[TokenOut]:
    """Your own tokens, without their secrets."""
    return [TokenOut.of(token, secret=None) for token in visitor.ledger.accounts.tokens(visitor.name)]


@router.post("/tokens", status_code=201)
def make_token(visitor: Owner, wanted: TokenIn) -> TokenOut:
    """A token for scripts, in your name; the secret is shown this once. In person: a token cannot make another."""
    secret, token = people.make_token(visitor, wanted.label, wanted.days)
    return TokenOut.of(token, secret=secret)


@router.delete("/tokens/{id}", status_code=204)
def revoke_token(visitor: Member, id: Annotated[str, Path(max_length=64)]) -> Response:
    """One of your own tokens, or, for an admin, anybody's."""
    people.revoke_token(visitor, id)
    return Response(status_code=204)


@router.get("/accounts")
def list_accounts(visitor: Admin) -> list[AccountOut]:
    return [AccountOut.of(row) for row in visitor.ledger.accounts.all()]


@router.post("/accounts", status_code=201)
def add_account(visitor: Keeper, wanted: AccountIn) -> AccountOut:
    """A new account; in person. Without a password it signs in by link, token or OIDC."""
    return AccountOut.of(
        visitor.ledger.accounts.add(
            wanted.name, wanted.role, password=wanted.password, identity=wanted.identity, actor=visitor.name
        )
    )


@router.patch("/accounts/{name}")
def change_account(visitor: Keeper, name: Name, change: AccountChange) -> AccountOut:
    """Another role or password, or switched off or on; all its sessions end. In person."""
    return AccountOut.of(people.change(visitor, name, change))


@router.post("/accounts/{name}/link", status_code=201)
def make_link(visitor: Keeper, name: Name) -> LinkOut:
    """A link that signs this account in once, within an hour; older ones end. In person."""
    return LinkOut(link=people.link(visitor, name))
