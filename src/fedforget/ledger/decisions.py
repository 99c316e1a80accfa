"""What an officer can do with a request that waits for a decision or failed, and what each would cost and buy.

Publishing and rejecting what waits is `versions.decide`. Here: have it tried again on a rung, refuse it, and the
figures to choose by. They are this federation's own, from the rungs in its trail: who has no history is told so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedforget.audit.verdict import GONE
from fedforget.ledger.allowance import RUNG, TOP
from fedforget.ledger.checks import check_reason
from fedforget.ledger.core import Core, named
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.eyes import DECIDABLE, taken
from fedforget.ledger.federations import Federations
from fedforget.ledger.intake import Requests
from fedforget.ledger.model_files import ModelFiles
from fedforget.ledger.schema import Candidate, Event, Federation, Request
from fedforget.ledger.serving import check_choices
from fedforget.ledger.states import RequestState
from fedforget.ledger.work import current_version
from fedforget.methods import RUNGS

MOST_EVENTS = 1000
BUYS = {
    "overwrite": "The model's knowledge of the data is overwritten, and the rest recovered. What is overwritten may "
    "come back in later training.",
    "rebuild": "Part of the model is trained anew without the data; a network without normalisation is trained afresh, "
    "and is then exact. It may cost some accuracy.",
    "retrain": "A model that never saw the data, trained for as long as the first one. It is exact, whatever could be "
    "measured, and waits again only if accuracy falls beyond the limit.",
}
PUBLISH = "The model that waits becomes the current one, though {held}. Your name and reason stand on the certificate."
REFUSE = "The model stays as it is. The person must be told why, and that they may complain to the authority."


@dataclass(frozen=True)
class Option:
    """One thing that can be done next: `act` is `again` (with a rung), `publish` or `refuse`."""

    act: str
    effort: str | None
    costs: str
    buys: str

    @property
    def words(self) -> str:
        again = {"retrain": "Have it retrained"}
        named = {"publish": "Publish it all the same", "refuse": "Refuse the request"}
        return named.get(self.act) or again.get(str(self.effort), f"Try the rung {self.effort}")


class Decisions:
    """`ledger.decisions`."""

    def __init__(self, core: Core, models: ModelFiles, federations: Federations, requests: Requests) -> None:
        self._core, self._models, self._federations, self._requests = core, models, federations, requests

    def again(self, id: str, effort: str = TOP, *, actor: str) -> list[Request]:
        """Have a request tried on this one rung, which waits for a decision or failed. What waited is destroyed;
        requests that were served together go on together."""
        name = self._requests.get(id).federation
        with self._core.writing() as session:
            self._federations.lock(session, name)
            requests, candidate = taken(session, name, id, actor)
            if requests[0].state not in DECIDABLE:
                raise ConflictError(f"The request is {requests[0].state}; it cannot be tried again now.")
            if candidate is not None and candidate.parent == current_version(session, name).number:
                _check_not_tried(candidate, effort)
            federation = named(session, Federation, name)
            for request in requests:
                check_choices(federation, request.erasure, {"effort": effort})
            said = {"effort": effort, **self._destroyed(session, candidate)}
            fresh = {"effort": effort, "attempts": 0, "failures": 0, "not_before": self._core.clock()}
            self._requests.move(session, requests, RequestState.QUEUED, actor, said=said, also=fresh)
            return requests

    def refuse(self, id: str, reason: str, *, actor: str) -> Request:
        """Not served, with the reason. Where a result waits for a decision it is destroyed, and the requests that were
        served together with this one are served again, without it."""
        reason, found = check_reason(reason), self._requests.get(id)
        if found.state not in DECIDABLE:
            return self._requests.refuse(id, reason, actor=actor)
        with self._core.writing() as session:
            self._federations.lock(session, found.federation)
            together, candidate = taken(session, found.federation, id, actor)
            said = self._destroyed(session, candidate)
            mine = [request for request in together if request.id == id]
            others = [request for request in together if request.id != id]
            fresh = {"attempts": 0, "failures": 0, "not_before": self._core.clock()}
            why = {"why": "a request that was served together with it was refused"}
            self._requests.move(session, mine, RequestState.REFUSED, actor, reason=reason, said=said)
            self._requests.move(session, others, RequestState.QUEUED, actor, said=why, also=fresh)
            return mine[0]

    def _destroyed(self, session: Session, candidate: Candidate | None) -> dict[str, Any]:
        """What waited is there no more; for the event."""
        return {} if candidate is None else {"destroyed": self._models.destroy_unnamed(session, candidate.sha256)}

    def options(self, request: Request) -> list[Option]:
        """What can be done next, with what it costs and what it buys."""
        if request.state not in DECIDABLE:
            return []
        with self._core.reading() as session:
            candidate = session.scalars(select(Candidate).where(Candidate.claim == request.claim)).one_or_none()
            tried = self._tried(session, request)
            history = _history(session, request.federation)
        waits = candidate if request.state == RequestState.DECIDING else None
        found = [
            Option("again", rung, _costs(rung, history, waits), BUYS[rung])
            for rung in _next(tried, request)
        ]  # fmt: skip
        if waits is not None:
            free = "No more work: it is there."
            found.append(Option("publish", None, free, PUBLISH.format(held=_held(request.reason or ""))))
        return [*found, Option("refuse", None, "No more work.", REFUSE)]

    def _tried(self, session: Session, request: Request) -> set[str]:
        """The rungs that were tried from the version that is current now."""
        version = current_version(session, request.federation).number
        events = select(Event.body).where(Event.request == request.id, Event.kind == RUNG)
        bodies = map(json.loads, session.scalars(events))
        return {body["name"] for body in bodies if body["version"] == version}


def _check_not_tried(candidate: Candidate, effort: str) -> None:
    """The same seed from the same version makes the same bits."""
    rungs = [rung["name"] for rung in candidate.result.get("rungs", ())]
    if TOP in rungs or (candidate.verdict == "exact" and not rungs):
        raise ConflictError("What waits was retrained already, so doing it again would change nothing.")
    if effort in rungs:
        raise ConflictError(f"The rung {effort} was tried already, so doing it again would change nothing.")


def _next(tried: set[str], request: Request) -> list[str]:
    """The next rung above those that were tried, and Retrain."""
    highest = max((RUNGS.index(name) for name in tried), default=-1)
    left = [name for name in RUNGS[highest + 1 :] if not (name == "rebuild" and request.erasure.kind == "feature")]
    return list(dict.fromkeys([*left[:1], *left[-1:]]))


def _history(session: Session, federation: str) -> dict[str, list[dict[str, Any]]]:
    """What the newest events say of each rung that was tried in this federation; and of Retrain's forecasts."""
    own = select(Event.kind, Event.body).join(Request, Request.id == Event.request)
    wanted = (Request.federation == federation, Event.kind.in_([RUNG, RequestState.DONE, RequestState.DECIDING]))
    rows = session.execute(own.where(*wanted).order_by(Event.number.desc()).limit(MOST_EVENTS))
    found: dict[str, list[dict[str, Any]]] = {"forecast": []}
    for kind, body in dict.fromkeys((kind, body) for kind, body in rows):  # one of requests that were served together
        said = json.loads(body)
        if kind == RUNG:
            found.setdefault(said["name"], []).append(said)
        elif said.get("retrain"):
            found["forecast"].append(said["retrain"])
    return found


def _costs(rung: str, history: Mapping[str, Sequence[Mapping[str, Any]]], waits: Candidate | None) -> str:
    """What this rung cost here, and how it ended; without a history, what is known all the same."""
    runs, forecasts = history.get(rung, ()), history["forecast"]
    whole = [one["gradient_evaluations"] for one in forecasts if one.get("gradient_evaluations")]
    if not runs:
        own = (waits.result.get("retrain") or {}) if waits is not None else {}
        seconds = own.get("seconds") or next((one["seconds"] for one in forecasts if one.get("seconds")), None)
        known = f" Retrain is forecast to take {_time(seconds)}." if seconds is not None else ""
        return f"This rung was never tried in this federation, so what it costs here is not known.{known}"
    work = median(run["cost"]["gradient_evaluations"] for run in runs)
    share = f", {100 * work / median(whole):.0f} % of a retraining" if whole and rung != TOP else ""
    words = Counter(run["word"] for run in runs)
    ends = ", ".join(f"{count} {word}" for word, count in words.most_common())
    seconds = median(run["cost"]["seconds"] for run in runs)
    good = sum(words[word] for word in GONE)
    times = "once" if len(runs) == 1 else f"{len(runs)} times"
    return (
        f"Tried here {times}: {_time(seconds)}{' in the middle' if len(runs) > 1 else ''}{share}. It ended {ends}; "
        f"{good} of {len(runs)} would have published."
    )


def _time(seconds: float) -> str:
    """For people.

    >>> _time(0.31), _time(80), _time(7200)
    ('0.3 s', '80 s', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _held(reason: str) -> str:
    """Why it waits, within a sentence."""
    said = reason.rstrip(". ")
    return f"it was held: {said}" if said else "it was held"
