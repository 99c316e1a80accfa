"""Pages of requests: the queue, a new request, one request with what can be done to it, and its live progress."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends
from starlette.responses import JSONResponse, RedirectResponse, Response

from fedforget.console import requests as cases
from fedforget.console.evidence_view import evidence_view, is_drawn
from fedforget.console.permissions import Permission
from fedforget.console.problems import status_of
from fedforget.console.queue_search import VERDICTS, Search
from fedforget.console.rendering import day, deadline, features, render, shown_on, tone
from fedforget.console.visitors import Posted, Visitor, allow, counted, decimal, guarded_router, whole_number
from fedforget.errors import FedForgetError, InputError
from fedforget.ledger.certificate import read_certificate
from fedforget.ledger.papers import for_people
from fedforget.ledger.schema import Request
from fedforget.ledger.serving import CHOICES, Choices, check_choices
from fedforget.ledger.states import CLOSED, OPEN, Channel, Ground, RequestState
from fedforget.methods import LADDER, METHODS, RUNGS
from fedforget.requests import ErasureRequest

router = guarded_router(include_in_schema=False)
Reader = Annotated[Visitor, allow(Permission.SEE_REQUESTS)]
PAGE = 30
MOST_IN_ADDRESS = 200
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
    visitor: Reader, asked: Annotated[Search, Depends()], view: str = "open", after: str = "", welcome: str = ""
) -> Response:
    """What is due first stands first."""
    return _queue(visitor, asked, view, after, welcome=bool(welcome))


def _queue(visitor: Visitor, asked: Search, view: str = "open", after: str = "", **more: Any) -> Response:
    view = view if view in VIEWS else "open"
    wanted, problem = asked.wanted()
    ledger, own = visitor.ledger, visitor.only_own
    counts, urgent = _figures(visitor)
    federations = visitor.console.glance.federations()
    wanted |= {"states": VIEWS[view][1], "asked_by": own}
    page = ledger.requests.page(
        **wanted,
        order="due" if view not in ("all", "done", "refused") else "received", limit=PAGE, after=after[:100] or None,
    )  # fmt: skip
    progress = cases.progress_of(visitor, page.requests)
    kept = asked.given()
    tabs = [
        (name, words, sum(counts[state] for state in wanted or RequestState), f"/?{urlencode({**kept, 'view': name})}")
        for name, (words, wanted) in VIEWS.items()
    ]
    following = f"/?{urlencode({**kept, 'view': view, 'after': page.next})}" if page.next else None
    return render(
        visitor, "queue.html", rows=_rows(visitor, page.requests), progress=progress, tabs=tabs, view=view,
        asked=asked, federations=federations, following=following, later=bool(after), urgent=urgent,
        demo=visitor.console.demo.progress, grounds=list(Ground), verdicts=VERDICTS,
        **{"welcome": False, "accepted": (), "problem": problem, **more},
    )  # fmt: skip


@router.post("/requests/accept")
def accept_many(visitor: Annotated[Visitor, allow(Permission.ACCEPT)], form: Posted) -> Response:
    """All that are ticked; what could not be accepted is said, and stays ticked by nobody."""
    ids = [name.removeprefix("id-") for name in form if name.startswith("id-")][:500]
    accepted = cases.accept_all(visitor, ids)
    visitor.console.glance.forget()
    problem = "" if ids else "Tick the requests to accept."
    return _queue(visitor, Search(), "new", accepted=accepted, **({"problem": problem} if problem else {}))


def _rows(visitor: Visitor, requests: Sequence[Request]) -> list[tuple[Any, ...]]:
    """Each request with what is to be forgotten, its verdict, its tone, the kind and words of its deadline, and its
    days: here, since a template is slow."""
    now, said = visitor.ledger.clock(), visitor.ledger.versions.verdicts(requests)
    names = {row.name: row.description["classes"] for row in visitor.console.glance.federations()}
    return [
        (
            row, row.erasure.describe(names.get(row.federation, ())), word, tone(row.state, word),
            *deadline(row.state, row.due, now), day(row.due), day(row.received),
        )
        for row, word in ((row, said.get(row.id)) for row in requests)
    ]  # fmt: skip


def _figures(visitor: Visitor) -> tuple[dict[str, int], dict[str, int]]:
    """How many requests are in each state; how many open ones are past their date or due within a week, and for how
    many seconds the oldest has been waiting while no worker has anything."""
    own, glance = visitor.only_own, visitor.console.glance
    figures = glance.figures() if own is None else visitor.ledger.trail.figures(asked_by=own)
    idle = int(figures["oldest_queued_seconds"]) if own is None and not figures["held"] else 0
    return figures["requests"], {"overdue": figures["overdue"], "soon": figures["due_soon"], "idle": idle}


@router.get("/requests/new")
def new_request(
    visitor: Annotated[Visitor, allow(Permission.SUBMIT)], federation: str = "", client: str = "", kind: str = "class",
    label: str = "", sample_ids: str = "", feature: str = "", subject: str = "",
) -> Response:  # fmt: skip
    given = {"federation": federation, "client": client, "kind": kind, "label": label, "sample_ids": sample_ids}
    return _form(visitor, given | {"feature": feature, "subject": subject})


def _same_again(request: Request) -> str:
    """The form for a new request about the same data. Of one that was served the reference is another, since the same
    one is on file; and too many samples for an address are typed again."""
    target, served = request.erasure, request.state != RequestState.REFUSED
    given = {
        "federation": request.federation, "client": target.client, "kind": target.kind,
        "label": "" if target.label is None else target.label, "feature": ",".join(map(str, target.feature)),
        "sample_ids": ", ".join(map(str, target.sample_ids[:MOST_IN_ADDRESS])),
        "subject": f"{request.subject[:58]}-again" if served else request.subject,
    }  # fmt: skip
    return f"/requests/new?{urlencode({name: value for name, value in given.items() if value != ''})}"


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
        grounds=list(Ground), channels=list(Channel), offers=offers, demo=visitor.console.demo.progress,
        today=visitor.ledger.clock().date(), rungs=RUNGS, methods=(LADDER, *METHODS), **more,
    )  # fmt: skip


@router.post("/requests")
@shown_on(_form)
def submit_request(visitor: Annotated[Visitor, allow(Permission.SUBMIT)], form: Posted) -> Response:
    choices = _choices(form) if visitor.may(Permission.CHOOSE) else {}
    if choices:  # before anything is written: what cannot be chosen is said beside the form
        check_choices(visitor.ledger.federations.get(form.get("federation", "")), _target(form), choices)
    found = cases.submit(
        visitor, form.get("federation", ""), _target(form), subject=form.get("subject", ""),
        ground=form.get("ground", ""), received=_day(form.get("received", "")), channel=form.get("channel") or None,
    )  # fmt: skip
    if found.created and choices:
        visitor.ledger.requests.choose(found.request.id, choices, actor=visitor.name)
    if found.created and form.get("accept") and visitor.may(Permission.ACCEPT):
        cases.accept(visitor, found.request.id)
    return RedirectResponse(f"/requests/{found.request.id}{'' if found.created else '?known=1'}", 303)


def _choices(form: dict[str, str]) -> Choices:
    """What was said of how one request is served; an empty field leaves it to the federation."""
    found: Choices = {}
    if form.get("effort", "").startswith("at most "):
        found["at_most"] = form["effort"].removeprefix("at most ")
    elif form.get("effort"):
        found["effort"] = form["effort"]
    if form.get("method"):
        found["method"] = form["method"]
    if form.get("accuracy_limit"):
        found["accuracy_limit"] = decimal(form["accuracy_limit"], "accuracy limit")
    if form.get("keep_days"):
        found["keep_days"] = counted(form["keep_days"], "number of days")
    return found


def _day(text: str) -> date | None:
    """A day as a form sends it; None: today, nobody said another."""
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise InputError(f"'{text[:40]}' is no day; write it as 2026-01-31.") from None


def _target(form: dict[str, str]) -> ErasureRequest:
    kind = form.get("kind", "class")
    if kind == "class" and not form.get("label"):
        raise InputError("Choose the class that is to be forgotten.")
    return ErasureRequest.parse(
        form.get("client") or None,
        label=form.get("label") if kind == "class" else None,
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
        about=request.erasure.describe(ledger.federations.get(request.federation).description["classes"]),
        options=ledger.decisions.options(request) if visitor.may(Permission.DECIDE) else [],
        rungs=RUNGS, methods=(LADDER, *METHODS), same_again=_same_again(request),
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
            ledger.decisions.refuse(id, reason, actor=actor)
        elif act == "extend":
            ledger.requests.extend(id, whole_number(form.get("months", "")) or 0, reason, actor=actor)
        elif act == "again":
            ledger.decisions.again(id, form.get("effort", ""), actor=actor)
        elif act == "choose":
            nothing: Choices = dict.fromkeys(CHOICES)  # type: ignore[assignment]
            ledger.requests.choose(id, {**nothing, **_choices(form)}, actor=actor)
        elif act == "identity":
            ledger.requests.note_identity(id, form.get("how", ""), actor=actor)
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
    reached = {
        "stage": progress and progress.stage and for_people(progress.stage),
        "fraction": progress and progress.fraction,
    }
    settled = request.state in CLOSED
    return JSONResponse({"state": request.state, "reason": request.reason, **reached, "settled": settled})
