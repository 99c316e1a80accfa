"""What a worker does to the ledger: claim, say how far it is, hand over a result, fail.

A claim holds a federation: its requests are served one after another, or several in one go (`Federation.together`). The
claim is a lease. Who does not renew it in time is taken for dead, and the next worker takes its requests over; whatever
the dead one does afterwards is refused, since the federation names another claim by then."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from fedforget.audit.feature_sensitivity import about_features
from fedforget.audit.thresholds import thresholds
from fedforget.errors import InputError
from fedforget.ledger.allowance import RUNG, TOP, below_the_top, beyond
from fedforget.ledger.chain import canonical
from fedforget.ledger.checks import LONGEST_REASON, check_reason, searchable
from fedforget.ledger.core import Core
from fedforget.ledger.errors import LeaseLostError
from fedforget.ledger.intake import Requests, locked
from fedforget.ledger.schema import Event, Federation, Progress, Request, Version
from fedforget.ledger.serving import limit_of
from fedforget.ledger.states import AT_WORK, RequestState, VersionState

MOST_FAILURES = 3
"""After this many failures in a row a person must look."""
MOST_ATTEMPTS = 100
"""A request that was begun this often is what kills its worker."""
ALIKE = ("effort", "at_most", "method", "accuracy_limit")
"""What requests that are served together have in common."""
FIRST_BACK_OFF = timedelta(seconds=30)
"""Doubled with every failure."""


@dataclass(frozen=True)
class Claim:
    """What a worker holds: all calls below want it."""

    id: str
    worker: str
    federation: Federation
    requests: tuple[Request, ...]
    """In the order they came; more than one are served together, by one new version."""
    parent: Version
    """The version to begin from."""
    at_most: str | None = None
    """The rung that it must end at, where its clients have no allowance left; see `allowance`."""
    thresholds: Mapping[str, Any] = field(default_factory=dict)
    """What its measures are held against, as it stands in the trail before the first rung."""

    @property
    def actor(self) -> str:
        """Who the trail says did it."""
        return f"worker/{self.worker}"


class Work:
    """`ledger.work`."""

    def __init__(self, core: Core, requests: Requests) -> None:
        self._core, self._requests = core, requests

    def claim(self, worker: str, lease_seconds: float = 60.0, *, federation: str | None = None) -> Claim | None:
        """The next thing to do, or None. Its requests are `forgetting` now, and this worker's until the lease ends."""
        if not worker or len(worker) > 120 or not worker.isprintable():
            raise InputError("A worker needs a name of 1 to 120 characters that can be printed.")
        now = self._core.clock()
        with self._core.writing() as session:
            found = self._free_federation(session, now, federation)
            if found is None:
                return None
            id, actor = uuid.uuid4().hex, f"worker/{worker}"
            requests = self._take(session, found, now, actor)
            if not requests:
                self.release(session, found.name)
                return None
            found.claim, found.worker, found.lease_until = id, worker, now + timedelta(seconds=lease_seconds)
            parent = current_version(session, found.name)
            over = beyond(session, found, requests, now)
            at_most = below_the_top(found, requests[0]) if over else None
            fixed = thresholds() | {"accuracy_limit": limit_of(found, requests[0]), "audit_level": found.audit_level}
            said = {"claim": id, "version": parent.number, "thresholds": fixed}
            said |= {"at_most": at_most} if over else {}
            for request in requests:
                request.claim, request.worker, request.attempts = id, worker, request.attempts + 1
            self._requests.move(session, requests, RequestState.FORGETTING, actor, said=said)
            return Claim(id, worker, found, tuple(requests), parent, at_most, fixed)

    def _free_federation(self, session: Session, now: datetime, only: str | None) -> Federation | None:
        """The federation with the oldest thing to do that nobody holds; locked."""
        waiting = and_(Request.state == RequestState.QUEUED, Request.not_before <= now)
        oldest = (
            select(Request.received)
            .where(Request.federation == Federation.name, or_(waiting, Request.state.in_(AT_WORK)))
            .order_by(Request.received)
            .limit(1)
            .correlate(Federation)
            .scalar_subquery()
        )
        query = (
            select(Federation)
            .where(or_(Federation.lease_until.is_(None), Federation.lease_until <= now), oldest.is_not(None))
            .order_by(oldest)
            .limit(1)
            .with_for_update(skip_locked=True, key_share=True, of=Federation)
        )
        if only is not None:
            query = query.where(Federation.name == searchable(only))
        return session.scalars(query).one_or_none()

    def _take(self, session: Session, federation: Federation, now: datetime, actor: str) -> list[Request]:
        """What to serve: first what a dead worker left, else what waits longest."""
        mine = Request.federation == federation.name
        left = locked(session, mine, Request.state.in_(AT_WORK))
        hopeless = [request for request in left if request.attempts >= MOST_ATTEMPTS]
        if hopeless:
            why = f"The worker died {MOST_ATTEMPTS} times over this request; look at its log before you retry it."
            self._requests.move(session, hopeless, RequestState.FAILED, actor, reason=why)
        left = [request for request in left if request not in hopeless]
        if left:
            said = {"taken over from": left[0].worker}
            self._requests.move(session, left, RequestState.QUEUED, actor, said=said)
            return left
        waiting = (mine, Request.state == RequestState.QUEUED, Request.not_before <= now)
        found = locked(session, *waiting, limit=federation.together)
        if found and found[0].effort == TOP:  # exact whatever is served with it: one Retrain for all that wait for it
            found = locked(session, *waiting, Request.effort == TOP)
        if found and found[0].failures:
            return found[:1]  # alone: it may be the one that makes the others fail
        together = [request for request in found if not request.failures]
        # Features and samples are judged by different measures, so one version cannot be judged for both. And nobody
        # ends below Retrain because of another client's requests.
        over = beyond(session, federation, together, now)
        alike = {r.id: (about_features([r.erasure]), *map(partial(getattr, r), ALIKE), r.id in over) for r in together}
        return [r for r in together if alike[r.id] == alike[together[0].id]]

    def heartbeat(self, claim: Claim, lease_seconds: float = 60.0) -> None:
        """Renew the lease. LeaseLostError: somebody else has it."""
        until = self._core.clock() + timedelta(seconds=lease_seconds)
        with self._core.writing() as session:
            self._hold(session, claim).lease_until = until

    def _hold(self, session: Session, claim: Claim) -> Federation:
        """Lock the claim's federation, if it is still the claim's."""
        query = select(Federation).where(Federation.name == claim.federation.name).with_for_update(key_share=True)
        federation = session.scalars(query).one()
        if federation.claim != claim.id:
            raise LeaseLostError(f"Another worker serves {federation.name} by now; this result is not wanted any more.")
        return federation

    def claimed(self, session: Session, claim: Claim, *states: RequestState) -> list[Request]:
        """The claim's requests, locked, if they are still in one of these states."""
        self._hold(session, claim)
        found = locked(session, Request.claim == claim.id)
        if not found or any(request.state not in states for request in found):
            raise LeaseLostError(f"The requests of this claim on {claim.federation.name} have moved on.")
        return found

    def release(self, session: Session, federation: str) -> None:
        held = session.get_one(Federation, federation)
        held.claim = held.worker = held.lease_until = None

    def interrupt(self, session: Session, federation: str, actor: str, why: str) -> None:
        """Whoever works on this federation began from a version that is not current any more: its requests wait."""
        requests = locked(session, Request.federation == federation, Request.state.in_(AT_WORK))
        self.release(session, federation)
        self._requests.move(session, requests, RequestState.QUEUED, actor, said={"why": why})

    def start_audit(self, claim: Claim) -> None:
        """forgetting -> auditing."""
        with self._core.writing() as session:
            requests = self.claimed(session, claim, RequestState.FORGETTING)
            self._requests.move(session, requests, RequestState.AUDITING, claim.actor)

    def give_back(self, claim: Claim) -> None:
        """The worker stops, through no fault of the requests: they wait again, for anybody."""
        with self._core.writing() as session:
            requests = self.claimed(session, claim, *AT_WORK)
            self._requests.move(session, requests, RequestState.QUEUED, claim.actor, said={"why": "the worker stops"})
            self.release(session, claim.federation.name)

    def fail(self, claim: Claim, reason: str, *, retry: bool = True) -> list[Request]:
        """It did not work. Waits and is tried again, each time longer; at last, or without `retry`, it has failed."""
        printable = "".join(letter if letter.isprintable() else " " for letter in reason[:LONGEST_REASON])
        reason, now = check_reason(printable), self._core.clock()
        with self._core.writing() as session:
            requests = self.claimed(session, claim, *AT_WORK)
            for request in requests:
                request.failures, state = request.failures + 1, RequestState.FAILED
                if retry and request.failures < MOST_FAILURES:
                    request.not_before = now + FIRST_BACK_OFF * 2 ** (request.failures - 1)
                    state = RequestState.QUEUED
                self._requests.move(session, [request], state, claim.actor, reason=reason)
            self.release(session, claim.federation.name)
            return requests

    def tell_rungs(self, claim: Claim, rungs: Iterable[Mapping[str, Any]]) -> None:
        """What a climb has tried so far, as `results.rung_told` gives it."""
        with self._core.writing() as session:
            self.append_rungs(session, claim, self.claimed(session, claim, *AT_WORK), rungs)

    def append_rungs(
        self, session: Session, claim: Claim, requests: Sequence[Request], rungs: Iterable[Mapping[str, Any]]
    ) -> None:
        """An event for each rung of each request, but for those that are told already: a climb that was interrupted
        goes on with what it has. In the caller's transaction."""
        for request in requests:
            told = set(session.scalars(select(Event.body).where(Event.request == request.id, Event.kind == RUNG)))
            for rung in rungs:
                body = {"version": claim.parent.number, **rung}
                if canonical(body) not in told:
                    self._core.append(session, claim.actor, RUNG, body, request.id)

    def set_progress(self, claim: Claim, stage: str, fraction: float) -> None:
        """How far the claim's requests are, for people who watch. It writes: not more than twice a second, please."""
        now, fraction = self._core.clock(), min(max(float(fraction), 0.0), 1.0)
        with self._core.writing() as session:
            mine = session.scalars(select(Request.id).where(Request.claim == claim.id)).all()
            if not mine:
                return  # taken over
            rows = [{"request": id, "stage": stage[:64], "fraction": fraction, "at": now} for id in mine]
            new = self._core.insert(Progress).values(rows)
            told = {name: new.excluded[name] for name in ("stage", "fraction", "at")}
            session.execute(new.on_conflict_do_update(index_elements=["request"], set_=told))

    def progress(self, ids: Collection[str]) -> dict[str, Progress]:
        """How far these requests are, where somebody has said."""
        found = self._core.rows(select(Progress).where(Progress.request.in_(list(ids)[:1000])))
        return {row.request: row for row in found}


def current_version(session: Session, federation: str) -> Version:
    query = select(Version).where(Version.federation == federation, Version.state == VersionState.CURRENT)
    return session.scalars(query).one()
