"""Federations, what their clients hold, their models' versions, rollback, and the demo: as pages and as an API."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from fastapi import Path
from starlette.responses import JSONResponse, RedirectResponse, Response

from fedforget.audit.case import Level
from fedforget.console.lineage import draw_lineage
from fedforget.console.models import LARGEST_NUMBER, FederationIn, FederationOut, RollbackIn, VersionOut
from fedforget.console.permissions import Permission
from fedforget.console.problems import API
from fedforget.console.rendering import render, shown_on
from fedforget.console.visitors import Posted, Visitor, allow, counted, decimal, guarded_router, whole_number
from fedforget.errors import InputError
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.federations import Settings
from fedforget.ledger.schema import Federation, Request
from fedforget.ledger.states import VersionState
from fedforget.methods import LADDER, METHODS, RUNGS

api = guarded_router(prefix=API, tags=["federations"])
pages = guarded_router(include_in_schema=False)
Name = Annotated[str, Path(max_length=64)]
Number = Annotated[int, Path(ge=1, le=LARGEST_NUMBER)]
Reader = Annotated[Visitor, allow(Permission.SEE_FEDERATIONS)]
VersionReader = Annotated[Visitor, allow(Permission.SEE_VERSIONS)]
Roller = Annotated[Visitor, allow(Permission.ROLL_BACK)]
Changer = Annotated[Visitor, allow(Permission.CHOOSE)]
Starter = Annotated[Visitor, allow(Permission.START_DEMO)]


@api.get("/federations")
def list_federations(visitor: Reader) -> list[FederationOut]:
    """What a request can be about: clients and classes; how many samples of each, for who may see that."""
    return [FederationOut.of(row, **visitor.description(row)) for row in visitor.console.glance.federations()]


@pages.get("/federations")
def show_federations(visitor: Reader) -> Response:
    rows = visitor.ledger.federations.all()
    current = {row.name: visitor.ledger.versions.current(row.name) for row in rows[:200]}
    return render(visitor, "federations.html", rows=rows, current=current, demo=visitor.console.demo.progress)


@api.get("/federations/{name}")
def one_federation(visitor: Reader, name: Name) -> FederationOut:
    row = visitor.ledger.federations.get(name)
    return FederationOut.of(row, **visitor.description(row))


@api.post("/federations/{name}/change")
def change_federation(visitor: Changer, name: Name, change: FederationIn) -> FederationOut:
    """How its requests are served from now on, with the reason."""
    row = _change(visitor, name, change.reason, change.said())
    return FederationOut.of(row, **visitor.description(row))


def _change(visitor: Visitor, name: str, reason: str, changes: Settings) -> Federation:
    """Who may not decide alone does not switch four eyes off for a moment either."""
    lifts = changes.get("four_eyes") is False and visitor.ledger.federations.get(name).four_eyes
    if lifts and not visitor.may(Permission.LIFT_FOUR_EYES):
        raise ConflictError(f"{name} wants four eyes; only an admin can switch that off.")
    row = visitor.ledger.federations.change(name, reason, actor=visitor.name, **changes)
    visitor.console.glance.forget()
    return row


@pages.get("/federations/{name}")
def show_federation(visitor: Reader, name: str) -> Response:
    """Its clients for everybody; its models for those who may see them."""
    return _federation(visitor, name)


def _federation(visitor: Visitor, name: str, form: dict[str, str] | None = None, **more: Any) -> Response:
    row = visitor.ledger.federations.get(name)
    versions = visitor.ledger.versions.of(name) if visitor.may(Permission.SEE_VERSIONS) else []
    older = [v for v in versions if v.state == VersionState.SUPERSEDED] if visitor.may(Permission.ROLL_BACK) else []
    served: dict[int, list[Request]] = {}
    for request in visitor.ledger.versions.served(name) if versions else ():
        served.setdefault(request.version or 0, []).append(request)
    names = row.description["classes"]
    about = {at: ", ".join(r.erasure.describe(names) for r in requests) for at, requests in served.items()}
    picture = draw_lineage(versions, about) if versions else None
    return render(
        visitor, "federation.html", row=row, description=visitor.description(row), versions=versions,
        picture=picture, older=older, served=served, given=form or {}, rungs=RUNGS, methods=(LADDER, *METHODS),
        levels=get_args(Level), **more,
    )  # fmt: skip


@pages.post("/federations/{name}/change")
@shown_on(_federation)
def change_by_form(visitor: Changer, name: str, form: Posted) -> Response:
    row, method = visitor.ledger.federations.get(name), form.get("method", "")
    changes: Settings = {
        "method": method,
        "audit_level": form.get("audit_level", ""),
        "accuracy_limit": decimal(form.get("accuracy_limit", ""), "accuracy limit"),
        "keep_days": counted(form.get("keep_days", ""), "number of days"),
        "allowance": counted(form.get("allowance", ""), "allowance"),
        "four_eyes": form.get("four_eyes") == "yes",
    }
    if method == LADDER:
        at_most = form.get("at_most") or row.settings.get("at_most", RUNGS[-1])
        own = at_most if row.method != LADDER or at_most != row.settings.get("at_most", RUNGS[-1]) else None
        exact = form.get("exact_below", "")
        changes["settings"] = ({"at_most": own} if own else {}) | (
            {"exact_below": decimal(exact, "number of seconds")} if exact else {}
        )
    _change(visitor, name, form.get("reason", ""), changes)
    return RedirectResponse(f"/federations/{name}", 303)


@api.get("/federations/{name}/versions")
def list_versions(visitor: VersionReader, name: Name) -> list[VersionOut]:
    """All model versions, oldest first; `parent` makes the lineage."""
    return [VersionOut.of(row) for row in visitor.ledger.versions.of(name)]


@api.get("/federations/{name}/versions/{number}")
def one_version(visitor: VersionReader, name: Name, number: Number) -> VersionOut:
    return VersionOut.of(visitor.ledger.versions.get(name, number))


@api.post("/federations/{name}/rollback")
def roll_back(visitor: Roller, name: Name, rollback: RollbackIn) -> VersionOut:
    """Make an older version's weights current again; requests served since then fail, their certificates are
    withdrawn."""
    return VersionOut.of(visitor.ledger.versions.roll_back(name, rollback.to, rollback.reason, actor=visitor.name))


@pages.get("/federations/{name}/rollback")
def confirm_rollback(visitor: Roller, name: str, to: int = 0) -> Response:
    """What would happen, before it does."""
    return _confirm(visitor, name, {"to": str(to)})


def _confirm(visitor: Visitor, name: str, form: dict[str, str], **more: Any) -> Response:
    versions = visitor.ledger.versions
    target, current = versions.get(name, whole_number(form.get("to", "")) or 0), versions.current(name)
    undone = [request for request in versions.served(name) if (request.version or 0) > target.number]
    return render(visitor, "rollback.html", name=name, target=target, current=current, undone=undone, **more)


@pages.post("/federations/{name}/rollback")
@shown_on(_confirm)
def roll_back_by_form(visitor: Roller, name: str, form: Posted) -> Response:
    if form.get("confirm") != "yes":
        raise InputError("Tick the box to confirm the rollback.")
    to = whole_number(form.get("to", "")) or 0
    visitor.ledger.versions.roll_back(name, to, form.get("reason", ""), actor=visitor.name)
    visitor.console.glance.forget()
    return RedirectResponse(f"/federations/{name}", 303)


@pages.post("/demo")
def start_demo(visitor: Starter) -> Response:
    """Train the demo federation in the background."""
    visitor.console.demo.start(visitor.name)
    return RedirectResponse("/", 303)


@pages.get("/demo")
def demo_progress(visitor: Starter) -> Response:
    return JSONResponse(visitor.console.demo.progress)
