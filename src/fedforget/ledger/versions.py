"""Model versions: published in one transaction or not at all, decided on by an officer, rolled back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, func, insert, select
from sqlalchemy.orm import Session

from fedforget.audit.thresholds import held_against
from fedforget.errors import InputError
from fedforget.ledger.allowance import RUNG, why_held
from fedforget.ledger.certificate import make_certificate
from fedforget.ledger.chain import sha256_of
from fedforget.ledger.checks import check_id, check_reason, searchable
from fedforget.ledger.core import Core, head_of
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.eyes import taken
from fedforget.ledger.federations import Federations
from fedforget.ledger.intake import Requests, locked
from fedforget.ledger.keys import Keys, key_id
from fedforget.ledger.model_files import ModelFiles
from fedforget.ledger.results import CheckedResult, Handover, check_result, fall
from fedforget.ledger.schema import Candidate, Certificate, Document, Event, Remains, Request, Version
from fedforget.ledger.serving import limit_of
from fedforget.ledger.states import RequestState, VersionKind, VersionState
from fedforget.ledger.withdrawals import withdraw_all
from fedforget.ledger.work import Claim, Work, current_version


@dataclass(frozen=True)
class Finished:
    """What became of a result."""

    requests: tuple[Request, ...]
    version: Version | None
    """None: an officer must decide; the requests say why."""


class Versions:
    """Reached as `ledger.versions`: of, current, finish, decide, roll_back, ..."""

    def __init__(
        self, core: Core, models: ModelFiles, keys: Keys, federations: Federations, requests: Requests, work: Work
    ) -> None:
        self._core, self._models, self._keys = core, models, keys
        self._federations, self._requests, self._work = federations, requests, work

    def of(self, federation: str) -> list[Version]:
        """All versions, oldest first: `parent` makes the picture."""
        name = self._federations.get(federation).name
        return self._core.rows(select(Version).where(Version.federation == name).order_by(Version.number))

    def get(self, federation: str, number: int) -> Version:
        with self._core.reading() as session:
            return _version(session, federation, number)

    def current(self, federation: str) -> Version:
        name = self._federations.get(federation).name
        with self._core.reading() as session:
            return current_version(session, name)

    def verdicts(self, requests: Iterable[Request]) -> dict[str, str]:
        """What the audit says, by the request's id, of the version that it was served by, or of what waits for an
        officer; nothing of the others."""
        ids = [request.id for request in requests if request.evidence is not None]
        if not ids:
            return {}
        own = and_(Version.federation == Request.federation, Version.number == Request.version)
        query = (
            select(Request.id, func.coalesce(Version.verdict, Candidate.verdict))
            .outerjoin(Version, own)
            .outerjoin(Candidate, Candidate.claim == Request.claim)
            .where(Request.id.in_(ids))
        )
        with self._core.reading() as session:
            return {id: word for id, word in session.execute(query) if word}

    def served(self, federation: str) -> list[Request]:
        """All requests that the current version has forgotten, oldest first: a method must know them."""
        query = select(Request).where(Request.federation == searchable(federation), Request.version.is_not(None))
        return self._core.rows(query.order_by(Request.version, Request.received, Request.id))

    def finish(self, claim: Claim, result: Handover) -> Finished:
        """Hand over a result: published if the gate lets it, held for an officer if not. In one transaction, and it
        counts once: a worker that was taken over gets a LeaseLostError."""
        checked = check_result(result, self._core.home)
        if not all(held_against(rung, claim.thresholds) for rung in checked.rungs):
            raise InputError(
                "A rung was held against other thresholds than those written down before it; work with the same "
                "fedforget everywhere."
            )
        self._models.check(checked.model)
        with self._core.writing() as session:
            requests = self._work.claimed(session, claim, RequestState.AUDITING)
            self._work.append_rungs(session, claim, requests, checked.rungs)
            for sha256, (kind, text) in checked.documents.items():
                row = {"sha256": sha256, "kind": kind, "content": text, "made": self._core.clock()}
                session.execute(self._core.insert(Document).values(row).on_conflict_do_nothing())
            over = None if claim.at_most is None else why_held(claim.federation, claim.requests)
            limit = limit_of(claim.federation, requests[0])  # what is served together has the same
            reason = checked.reason_to_hold(limit, _lost(session, claim.parent), over)
            if reason is None:
                finished = self._publish(session, claim.federation.name, requests, checked, claim.actor)
            else:
                finished = self._hold_for_decision(session, claim, requests, checked, reason)
            self._work.release(session, claim.federation.name)
            return finished

    def _hold_for_decision(
        self, session: Session, claim: Claim, requests: Sequence[Request], result: CheckedResult, reason: str
    ) -> Finished:
        values = {
            "claim": claim.id, "federation": claim.federation.name, "parent": claim.parent.number,
            "sha256": result.model, "verdict": result.verdict["word"], "result": result.to_json(),
            "made": self._core.clock(),
        }  # fmt: skip
        session.execute(insert(Candidate).values(values))
        papers = {"evidence": result.values["evidence"], "report": result.values["report"]}
        said = {"sha256": result.model, "evidence": papers["evidence"], "verdict": result.verdict["word"]}
        said |= {"retrain": result.retrain} if result.retrain else {}
        self._requests.move(
            session, requests, RequestState.DECIDING, claim.actor, reason=reason, said=said, also=papers
        )
        return Finished(tuple(requests), None)

    def decide(self, id: str, publish: bool, reason: str, *, actor: str) -> Finished:
        """An officer publishes what the gate held, or rejects it (failed). Requests served together share the fate."""
        reason = check_reason(reason)
        name = self._requests.get(id).federation
        with self._core.writing() as session:
            self._federations.lock(session, name)
            requests, candidate = taken(session, name, id, actor)
            if candidate is None:
                raise ConflictError("The request does not wait for a decision.")
            if not publish:
                why = f"{actor} rejected the result: {reason}"
                said = {"destroyed": self._models.destroy_unnamed(session, candidate.sha256)}
                self._requests.move(session, requests, RequestState.FAILED, actor, reason=why, said=said)
                return Finished(tuple(requests), None)
            current = current_version(session, name).number
            if current != candidate.parent:
                raise ConflictError(
                    f"This result was made from version {candidate.parent}, and version {current} was published since, "
                    "which publishing it would undo; reject it, and retry the request: it is then served from version "
                    f"{current}."
                )
            self._work.interrupt(session, name, actor, "an officer published another version")
            checked = CheckedResult(**candidate.result)
            self._models.check(checked.model)
            decision = {"officer": actor, "reason": reason, "held": requests[0].reason}
            return self._publish(session, name, requests, checked, actor, decision)

    def _publish(
        self,
        session: Session,
        name: str,
        requests: Sequence[Request],
        result: CheckedResult,
        actor: str,
        decision: Mapping[str, Any] | None = None,
    ) -> Finished:
        """Everything that makes a version the current one, and its requests done."""
        private, before = self._keys.signing(session), current_version(session, name)
        values = {"sha256": result.model, "kind": VersionKind.FORGOTTEN, **result.values}
        version = self._new_version(session, before, values)
        for kind, path, sha256 in result.remains:
            row = {"federation": name, "version": before.number, "path": path, "kind": kind, "sha256": sha256}
            session.execute(self._core.insert(Remains).values(row).on_conflict_do_nothing())
        said = _said(version) | {"requests": [request.id for request in requests]}
        self._core.append(session, actor, "version published", said)
        proof: dict[str, Any] = {
            "version": version.number, "sha256": version.sha256, "parent": before.number,
            "parent_sha256": before.sha256, "evidence": version.evidence, "verdict": version.verdict,
        }  # fmt: skip
        if decision is not None:
            proof["decision"] = dict(decision)
        proof |= {"retrain": result.retrain} if result.retrain else {}
        papers = {"version": version.number, "evidence": version.evidence, "report": version.report}
        self._requests.move(session, requests, RequestState.DONE, actor, said=proof, also=papers)
        ledger, key = head_of(session).ledger, key_id(private.public_key())
        for request in requests:
            # Who only looked at it stays out of a paper that is handed out.
            own = (Event.request == request.id, Event.kind.in_([*RequestState, "extended", RUNG]))
            trail = session.scalars(select(Event).where(*own).order_by(Event.number))
            text = make_certificate(
                private, ledger=ledger, issued=self._core.clock(), request=request, before=before, after=version,
                result=result, decision=decision, trail=[event.to_json() for event in trail],
            )  # fmt: skip
            row = {
                "sha256": sha256_of(text), "request": request.id, "federation": name, "version": version.number,
                "key": key, "made": self._core.clock(), "content": text,
            }  # fmt: skip
            session.execute(insert(Certificate).values(row))
            self._core.append(session, actor, "certified", {"certificate": row["sha256"], "key": key}, request.id)
        return Finished(tuple(requests), version)

    def _new_version(self, session: Session, before: Version, values: Mapping[str, Any]) -> Version:
        before.state, before.superseded = VersionState.SUPERSEDED, self._core.clock()
        session.flush()  # before the next one comes: there is one current version
        row = {
            "federation": before.federation, "number": before.number + 1, "parent": before.number,
            "state": VersionState.CURRENT, "published": before.superseded, **values,
        }  # fmt: skip
        return session.scalars(insert(Version).values(row).returning(Version)).one()

    def certificate_of(self, id: str) -> Certificate | None:
        """The newest certificate of a request. `withdrawn`: its version was rolled back."""
        query = select(Certificate).where(Certificate.request == check_id(id)).order_by(Certificate.version.desc())
        found = self._core.rows(query.limit(1))
        if not found:
            self._requests.get(id)
        return found[0] if found else None

    def roll_back(self, federation: str, to: int, reason: str, *, actor: str) -> Version:
        """Make an older version's weights current again, as a new version. Requests that were served
        since then are not any more: they fail, with this reason, their certificates are withdrawn, and a person queues
        them again."""
        reason = check_reason(reason)
        with self._core.writing() as session:
            self._federations.lock(session, federation)
            before, target = current_version(session, federation), _version(session, federation, to)
            if target.number == before.number:
                raise ConflictError(f"Version {to} is the current one.")
            if target.state == VersionState.DESTROYED:
                raise ConflictError(f"The weights of version {to} were destroyed; it cannot come back.")
            self._models.check(target.sha256)
            undone = self._undone(session, federation, target)
            self._work.interrupt(session, federation, actor, "the model was rolled back")
            values = {"sha256": target.sha256, "kind": VersionKind.ROLLBACK, "restores": to}
            version = self._new_version(session, before, values)
            ids = [request.id for request in undone]
            withdraw_all(self._core, session, ids)
            said = _said(version) | {"restores": to, "reason": reason, "undone": ids}
            self._core.append(session, actor, "rolled back", said)
            why = f"Version {before.number} was rolled back to version {to}: {reason}"
            self._requests.move(session, undone, RequestState.FAILED, actor, reason=why, also={"version": None})
            return version

    def _undone(self, session: Session, federation: str, target: Version) -> list[Request]:
        """The done requests that the weights of `target` do not know. A rollback knows what its original knew."""
        known = target
        while known.restores is not None:
            known = _version(session, federation, known.restores)
        return locked(session, Request.federation == federation, Request.version > known.number)


def _said(version: Version) -> dict[str, Any]:
    names = ("federation", "sha256", "parent", "kind", "method", "preset", "evidence", "verdict")
    return {"version": version.number, **{name: getattr(version, name) for name in names}}


def _lost(session: Session, version: Version) -> float | None:
    """By how many points retained accuracy fell from the first version to this one: the sum over the versions that its
    weights came through, each beside the one before on the same data. None: it was not measured of one of them."""
    columns = (Version.number, Version.parent, Version.restores, Version.accuracy_before, Version.accuracy_after)
    rows = session.execute(select(*columns).where(Version.federation == version.federation))
    by_number = {row.number: row for row in rows}
    lost, at = 0.0, by_number[version.number]
    while at.parent is not None:
        if at.restores is not None:  # what was rolled back has no part in these weights
            at = by_number[at.restores]
            continue
        points = fall(at.accuracy_before, at.accuracy_after)
        if points is None:
            return None
        lost, at = lost + points, by_number[at.parent]
    return lost


def _version(session: Session, federation: str, number: int) -> Version:
    found = session.get(Version, (searchable(federation), number)) if 0 < number < 2**31 else None
    if found is None:
        raise MissingError(f"There is no version {number} of this federation.")
    return found
