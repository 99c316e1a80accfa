"""Pages of requests: the queue, a new request, one request with what can be done to it, and its live progress."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from starlette.responses import JSONResponse, RedirectResponse, Response

from fedforget.console import requests as cases
from fedforget.console.evidence_view import evidence_view, is_drawn
from fedforget.console.permissions import Permission
from fedforget.console.problems import status_of
from fedforget.console.rendering import day, deadline, features, render, shown_on, tone
from fedforget.console.visitors import Posted, Visitor, allow, guarded_router, whole_number
from fedforget.errors import FedForgetError, InputError
from fedforget.ledger.certificate import read_certificate
from fedforget.ledger.schema import Request
from fedforget.ledger.states import CLOSED, OPEN, Ground, RequestState
from fedforget.requests import ErasureRequest

router = guarded_router(include_in_schema=False)
Reader = Annotated[Visitor, allow(Permission.SEE_REQUESTS)]
PAGE = 30
VIEWS: dict[str, tuple[str, list[RequestState] | None]] = {
    "open": ("Open", sorted(OPEN)),
    "new": ("To accept", [RequestState.RECEIVED, RequestState.ACCEPTED]),
    "attention": ("Needs a person", [RequestState.DECIDING, RequestState.FAILED]),
    "done": ("Done", [RequestState.DONE]),
    "refused": ("Refused", [RequestState.REFUSED]),
    "all": ("All", None),
}


@router.get("/")
def queue(
    visitor: Reader, view: str = "open", federation: str = "", subject: str = "", after: str = "", welcome: str = ""
) -> Response:
    """What is due first stands first."""
    view = view if view in VIEWS else "open"
    ledger, own = visitor.ledger, visitor.only_own
    counts, urgent = _figures(visitor)
    federations = visitor.console.glance.federations()
    states = VIEWS[view][1]
    page = ledger.requests.page(
        states=states, federation=federation[:64] or None, subject=subject[:64] or None, asked_by=own,
        order="due" if view not in ("all", "done", "refused") else "received", limit=PAGE, after=after[:100] or None,
    )  # fmt: skip
    progress = cases.progress_of(visitor, page.requests)
    kept = {name: value for name, value in (("federation", federation), ("subject", subject)) if value}
    tabs = [
        (name, words, sum(counts[state] for state in wanted or RequestState), f"/?{urlencode({**kept, 'view': name})}")
        for name, (words, wanted) in VIEWS.items()
    ]
    following = f"/?{urlencode({**kept, 'view': view, 'after': page.next})}" if page.next else None
    return render(
        visitor, "queue.html", rows=_rows(visitor, page.requests), progress=progress, tabs=tabs, view=view,
        federation=federation, subject=subject, federations=federations, following=following, welcome=bool(welcome),
        later=bool(after), urgent=urgent, demo=visitor.console.demo.progress,
    )  # fmt: skip


def _rows(visitor: Visitor, requests: Sequence[Request]) -> list[tuple[Request, str | None, str, str, str, str, str]]:
    """Each request with its verdict, its tone, the kind and words of its deadline, and its days: here, since a template
    is slow."""
    now, said = visitor.ledger.clock(), visitor.ledger.versions.verdicts(requests)
    return [
        (row, word, tone(row.state, word), *deadline(row.state, row.due, now), day(row.due), day(row.received))
        for row, word in ((row, said.get(row.id)) for row in requests)
    ]


def _figures(visitor: Visitor) -> tuple[dict[str, int], dict[str, int]]:
    """How many requests are in each state; how many open ones are past their date or due within a week, and for how
    many seconds the oldest has been waiting while no worker has anything."""
    own, glance = visitor.only_own, visitor.console.glance
    figures = glance.figures() if own is None else visitor.ledger.trail.figures(asked_by=own)
    idle = int(figures["oldest_queued_seconds"]) if own is None and not figures["held"] else 0
    return figures["requests"], {"overdue": figures["overdue"], "soon": figures["due_soon"], "idle": idle}


@router.get("/requests/new")
def new_request(
    visitor: Annotated[Visitor, allow(Permission.SUBMIT)], federation: str = "", client: str = ""
) -> Response:
    return _form(visitor, {"federation": federation, "client": client})


def _form(visitor: Visitor, form: dict[str, str], **more: Any) -> Response:
    """Offers what there is: federations, their clients, their classes, and their features in words; with numbers for
    who may see them."""
    federations = visitor.console.glance.federations()
    chosen = next((row for row in federations if row.name == form.get("federation")), None)
    chosen = chosen or (federations[0] if federations else None)
    described = {row.name: visitor.description(row) for row in federations}
    clients = described[chosen.name]["clients"] if chosen else []
    client = next((c for c in clients if str(c["client"]) == form.get("client")), clients[0] if clients else None)
    offers = {name: {**what, "features": features(what["shape"])} for name, what in described.items()}
    return render(
        visitor, "new_request.html", federations=federations, chosen=chosen, clients=clients, client=client, given=form,
        grounds=list(Ground), offers=offers, demo=visitor.console.demo.progress, **more,
    )  # fmt: skip


@router.post("/requests")
@shown_on(_form)
def submit_request(visitor: Annotated[Visitor, allow(Permission.SUBMIT)], form: Posted) -> Response:
    about = {name: form.get(name, "") for name in ("subject", "ground")}
    found = cases.submit(visitor, form.get("federation", ""), _target(form), **about)
    if found.created and form.get("accept") and visitor.may(Permission.ACCEPT):
        cases.accept(visitor, found.request.id)
    return RedirectResponse(f"/requests/{found.request.id}{'' if found.created else '?known=1'}", 303)


def _target(form: dict[str, str]) -> ErasureRequest:
    kind = form.get("kind", "class")
    return ErasureRequest.parse(
        form.get("client") or None,
        label=(form.get("label") or None) if kind == "class" else None,
        samples=form.get("sample_ids", "") if kind == "samples" else None,
        feature=form.get("feature", "")[:60] if kind == "feature" else None,
        whole=kind == "client",
    )


@router.get("/requests/{id}")
async def show_request(visitor: Reader, id: str, known: str = "") -> Response:
    request = await visitor.console.read(lambda: visitor.request(id))
    show = partial(_show, visitor, request, known=bool(known))
    drawn = request.evidence is None or is_drawn(request.evidence)
    return await (visitor.console.read(show) if drawn else visitor.console.compute(show))


def _show(visitor: Visitor, request: Request, *, known: bool = False, **more: Any) -> Response:
    ledger, id = visitor.ledger, request.id
    evidence = ledger.requests.evidence_of(id) if request.evidence else None
    certificate = ledger.versions.certificate_of(id) if request.evidence else None
    served = None if request.state != RequestState.DONE else certificate
    return render(
        visitor, "request.html", request=request, known=known, **more,
        events=ledger.trail.events(request=id, after=0, limit=500),
        progress=cases.progress_of(visitor, [request]).get(id),
        certificate=certificate, why_withdrawn=None if certificate is None else ledger.withdrawals.reason(certificate),
        decision=None if served is None else read_certificate(served.content)["decision"],
        verdict=ledger.versions.verdicts([request]).get(id), actions=cases.offered(visitor, request),
        evidence=None if evidence is None or request.evidence is None else evidence_view(request.evidence, evidence),
    )  # fmt: skip


def _acted(visitor: Visitor, id: str, act: str, form: dict[str, str]) -> Response:
    """Do it, and show the request again: with the reason, where it could not be done."""
    ledger, reason, actor = visitor.ledger, form.get("reason", ""), visitor.name
    visitor.request(id)
    try:
        if act == "accept":
            cases.accept(visitor, id)
        elif act == "refuse":
            ledger.requests.refuse(id, reason, actor=actor)
        elif act == "extend":
            ledger.requests.extend(id, whole_number(form.get("months", "")) or 0, reason, actor=actor)
        elif act == "retrain":
            ledger.decisions.again(id, actor=actor)
        elif act == "retry":
            ledger.requests.retry(id, actor=actor)
        elif act == "withdraw":
            ledger.withdrawals.withdraw(id, reason, actor=actor)
        elif form.get("publish") in ("yes", "no"):
            ledger.versions.decide(id, form["publish"] == "yes", reason, actor=actor)
        else:
            raise InputError("Choose whether to publish the new model or to reject it.")
    except FedForgetError as error:
        return _show(visitor, visitor.request(id), problem=str(error), status=status_of(error))
    visitor.console.glance.forget()
    return RedirectResponse(f"/requests/{id}", 303)


def _take(act: str, permission: Permission) -> None:
    @router.post(f"/requests/{{id}}/{act}")
    def acted(id: str, form: Posted, visitor: Visitor = allow(permission)) -> Response:  # noqa: B008
        return _acted(visitor, id, act, form)


for act, (permission, _) in cases.ACTIONS.items():
    _take(act, permission)


@router.get("/requests/{id}/progress")
def live_progress(visitor: Reader, id: str) -> Response:
    """How far it is, for a page that asks again and again until the request is settled."""
    request = visitor.request(id)
    progress = cases.progress_of(visitor, [request]).get(id)
    reached = {"stage": progress and progress.stage, "fraction": progress and progress.fraction}
    settled = request.state in CLOSED
    return JSONResponse({"state": request.state, "reason": request.reason, **reached, "settled": settled})
