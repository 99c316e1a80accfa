"""Pages: federations, what their clients hold, the lineage of their models, rollback, and the demo."""

from __future__ import annotations

from typing import Annotated

from starlette.responses import JSONResponse, RedirectResponse, Response

from fedforget.console.holdings import description_for
from fedforget.console.lineage import draw_lineage
from fedforget.console.permissions import Permission
from fedforget.console.problems import status_of
from fedforget.console.rendering import render
from fedforget.console.visitors import Posted, Visitor, allow, guarded_router
from fedforget.errors import FedForgetError, InputError
from fedforget.ledger.schema import Request
from fedforget.ledger.states import VersionState

router = guarded_router(include_in_schema=False)
Reader = Annotated[Visitor, allow(Permission.SEE_FEDERATIONS)]
Roller = Annotated[Visitor, allow(Permission.ROLL_BACK)]


@router.get("/federations")
def list_federations(visitor: Reader) -> Response:
    rows = visitor.ledger.federations.all()
    current = {row.name: visitor.ledger.versions.current(row.name) for row in rows[:200]}
    return render(visitor, "federations.html", rows=rows, current=current, demo=visitor.console.demo.progress)


@router.get("/federations/{name}")
def show_federation(visitor: Reader, name: str) -> Response:
    """Its clients for everybody; its models for those who may see them."""
    row = visitor.ledger.federations.get(name)
    versions = visitor.ledger.versions.of(name) if visitor.may(Permission.SEE_VERSIONS) else []
    older = [v for v in versions if v.state == VersionState.SUPERSEDED] if visitor.may(Permission.ROLL_BACK) else []
    served: dict[int, list[Request]] = {}
    for request in visitor.ledger.versions.served(name) if versions else ():
        served.setdefault(request.version or 0, []).append(request)
    about = {number: ", ".join(r.erasure.describe() for r in requests) for number, requests in served.items()}
    picture = draw_lineage(versions, about) if versions else None
    return render(
        visitor, "federation.html", row=row, description=description_for(visitor, row), versions=versions,
        picture=picture, older=older, served=served,
    )  # fmt: skip


@router.get("/federations/{name}/rollback")
def confirm_rollback(visitor: Roller, name: str, to: int = 0) -> Response:
    """What would happen, before it does."""
    return _confirm(visitor, name, to)


def _confirm(visitor: Visitor, name: str, to: int, problem: str = "", status: int = 200) -> Response:
    target, current = visitor.ledger.versions.get(name, min(to, 2**31 - 1)), visitor.ledger.versions.current(name)
    undone = [request for request in visitor.ledger.versions.served(name) if (request.version or 0) > target.number]
    return render(
        visitor, "rollback.html", status, name=name, target=target, current=current, undone=undone, problem=problem
    )


@router.post("/federations/{name}/rollback")
def roll_back(visitor: Roller, name: str, form: Posted) -> Response:
    text = form.get("to", "")
    to = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    try:
        if form.get("confirm") != "yes":
            raise InputError("Tick the box to confirm the rollback.")
        visitor.ledger.versions.roll_back(name, to, form.get("reason", ""), actor=visitor.name)
    except FedForgetError as error:
        return _confirm(visitor, name, to, str(error), status_of(error))
    visitor.console.glance.forget()
    return RedirectResponse(f"/federations/{name}", 303)


@router.post("/demo")
def start_demo(visitor: Annotated[Visitor, allow(Permission.START_DEMO)]) -> Response:
    """Train the demo federation in the background."""
    visitor.console.demo.start(visitor.name)
    return RedirectResponse("/", 303)


@router.get("/demo")
def demo_progress(visitor: Annotated[Visitor, allow(Permission.START_DEMO)]) -> Response:
    return JSONResponse(visitor.console.demo.progress)
