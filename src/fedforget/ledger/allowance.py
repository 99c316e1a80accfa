"""How often one client's requests may send a climb up to Retrain before an officer must say so.

What the check knows of a target, the client that asks has told it. False answers cannot let a rung pass that would not
have passed, but they can send the climb up, request after request, and a Retrain is everybody's work. So each client
has an allowance (`Federation.allowance`) in any `WINDOW`. Beyond it its requests climb as ever and end below Retrain:
what is not forgotten there waits for an officer, who may have it retrained.

It is counted from the trail. Neither a Retrain that an officer ordered counts, nor one that no lower rung came before:
that was the federation's own choice, as where Retrain is quick. So who has used it up has seen that it is not quick."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedforget.ledger.schema import Event, Federation, Request
from fedforget.ledger.serving import serving
from fedforget.ledger.states import AT_WORK, RequestState
from fedforget.methods import LADDER, RUNGS, LadderSettings

RUNG = "rung"
"""What an event of a rung that was tried is called."""
WINDOW = timedelta(days=30)
TOP = RUNGS[-1]


def below_the_top(federation: Federation, request: Request) -> str | None:
    """The highest rung but Retrain that this request tries; None where it tries no other, or never that, and where the
    federation prepared for forgetting, so that it has no other."""
    if "serving" in federation.description:
        return None
    method, _, settings = serving(federation, request)
    rungs = LadderSettings(**settings).rungs if method == LADDER else ()
    return rungs[-2] if len(rungs) > 1 and rungs[-1] == TOP else None


def beyond(session: Session, federation: Federation, requests: Iterable[Request], now: datetime) -> set[str]:
    """The ids of those `requests` whose client has no allowance left. What a person wants retrained needs none."""
    bounded = (r for r in requests if r.effort is None and below_the_top(federation, r) is not None)
    asking = {request.id: request.client for request in bounded}
    if not asking:
        return set()
    query = (
        select(Request.client, Request.claim, Event.body)
        .join(Event, Event.request == Request.id)
        .where(Request.federation == federation.name, Request.client.in_(set(asking.values())))
        # What waits or is at work has not ended: a climb that goes on after its worker died is not held against itself.
        .where(Request.effort.is_(None), Request.state.not_in([RequestState.QUEUED, *AT_WORK]))
        .where(Event.kind == RUNG, Event.at > now - WINDOW)
    )
    climbs: dict[tuple[int, str | None, int], set[str]] = {}
    for client, claim, body in session.execute(query):
        said = json.loads(body)
        climbs.setdefault((client, claim, said["version"]), set()).add(said["name"])
    sent_up = Counter(client for (client, _, _), rungs in climbs.items() if TOP in rungs and len(rungs) > 1)
    return {id for id, client in asking.items() if sent_up[client] >= federation.allowance}


def why_held(federation: Federation, requests: Iterable[Request]) -> str:
    """What an officer is told of requests that ended below Retrain for this."""
    clients = sorted({request.client for request in requests})
    whose = f"client {clients[0]} is" if len(clients) == 1 else f"clients {', '.join(map(str, clients))} is"
    many = f"{federation.allowance} climb{'' if federation.allowance == 1 else 's'}"
    return (
        f"The allowance of {whose} used up, {many} to Retrain in {WINDOW.days} days without an officer: have it "
        "retrained, publish it all the same, or reject it."
    )
