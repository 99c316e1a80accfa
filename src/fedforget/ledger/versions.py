"""Model versions: published in one transaction or not at all, decided on by an officer, rolled back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import and_, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from fedforget.errors import InputError
from fedforget.ledger.certificate import make_certificate
from fedforget.ledger.chain import sha256_of
from fedforget.ledger.checks import check_id, check_reason, searchable
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.federations import Federations
from fedforget.ledger.keys import Keys, key_id
from fedforget.ledger.results import CheckedResult, Handover, check_result, fall, guard_of
from fedforget.ledger.schema import (
    Candidate,
    Certificate,
    Document,
    Event,
    Federation,
    Remains,
    Request,
    Version,
    held_to,
)
from fedforget.ledger.states import AT_WORK, RequestState, VersionKind, VersionState
from fedforget.ledger.work import Claim, Work


@dataclass(frozen=True)
class Finished:
    """What became of a result."""

    requests: tuple[Request, ...]
    version: Version | None
    """None: an officer must decide; the requests say why."""


class Versions(Federations, Keys, Work):
    """Part of `book.Ledger`."""

    def versions(self, federation: str) -> list[Version]:
        """All versions, oldest first: `parent` makes the picture."""
        query = select(Version).where(Version.federation == self.federation(federation).name).order_by(Version.number)
        with self.database.reading() as session:
            return list(session.scalars(query))

    def version(self, federation: str, number: int) -> Version:
        with self.database.reading() as session:
            return _version(session, federation, number)

    def current_version(self, federation: str) -> Version:
        with self.database.reading() as session:
            return _current(session, self.federation(federation).name)

    def requests_of_version(self, federation: str, number: int) -> list[Request]:
        """The requests that a version forgot."""
        query = select(Request).where(Request.federation == searchable(federation), Request.version == number)
        with self.database.reading() as session:
            return list(session.scalars(query.order_by(Request.received, Request.id)))

    def verdicts(self, requests: Iterable[Request]) -> dict[str, str]:
        """What the audit says, by the request's id, of the version that it was served by, or of what waits for an
        officer; nothing of the others."""
        ids = [request.id for request in requests if request.evidence is not None]
        if not ids:
            return {}
        own = and_(Version.federation == Request.federation, Version.number == Request.version)
        query = (
            select(Request.id, Version.verdict, Candidate.result)
            .outerjoin(Version, own)
            .outerjoin(Candidate, Candidate.claim == Request.claim)
            .where(Request.id.in_(ids))
        )
        with self.database.reading() as session:
            said = {id: verdict or (held and held["verdict"]["word"]) for id, verdict, held in session.execute(query)}
        return {id: word for id, word in said.items() if word}

    def served(self, federation: str) -> list[Request]:
        """All requests that the current version has forgotten, oldest first: a method must know them."""
        query = select(Request).where(Request.federation == searchable(federation), Request.version.is_not(None))
        with self.database.reading() as session:
            return list(session.scalars(query.order_by(Request.version, Request.received, Request.id)))

    def finish(self, claim: Claim, result: Handover) -> Finished:
        """Hand over a result: published if the gate lets it, held for an officer if not. In one transaction, and it
        counts once: a worker that was taken over gets a LeaseLostError."""
        checked = check_result(result, self.home)
        self.check_model(result.model)
        self.check_guard(result.guard)
        actor = f"worker/{claim.worker}"
        with self.database.writing() as session:
            requests = self._claimed(session, claim, RequestState.AUDITING)
            lost = _lost(session, claim.parent)
            reason = checked.reason_to_hold(claim.federation.accuracy_limit, lost)
            if reason is None:
                private = self._signing_key(session)
                version, done = self._publish(session, claim.federation.name, requests, checked, actor, private)
                self._release(session, claim.federation.name)
                return Finished(tuple(done), version)
            held = self._hold_for_decision(session, claim, requests, checked, reason)
            self._release(session, claim.federation.name)
            return Finished(tuple(held), None)

    def _hold_for_decision(
        self, session: Session, claim: Claim, requests: Sequence[Request], result: CheckedResult, reason: str
    ) -> list[Request]:
        self._keep_documents(session, result)
        values = {
            "claim": claim.id, "federation": claim.federation.name, "parent": claim.parent.number,
            "sha256": result.model, "guard": result.values["guard"], "result": result.to_json(), "made": self.clock(),
        }  # fmt: skip
        session.execute(insert(Candidate).values(values))
        papers = {"evidence": result.values["evidence"], "report": result.values["report"]}
        said = {"sha256": result.model, "evidence": papers["evidence"], "verdict": result.verdict["word"]}
        said |= held_to(result.values["guard"])
        actor = f"worker/{claim.worker}"
        return self._move(session, requests, RequestState.DECIDING, actor, reason=reason, said=said, also=papers)

    def decide(self, id: str, publish: bool, reason: str, *, actor: str) -> Finished:
        """An officer publishes what the gate held, or rejects it (failed). Requests served together share the fate."""
        reason = check_reason(reason)
        name = self.request(id).federation
        with self.database.writing() as session:
            self._lock_federation(session, name)
            candidate = session.scalars(
                select(Candidate).join(Request, Request.claim == Candidate.claim).where(Request.id == id)
            ).one_or_none()
            if candidate is None:
                raise ConflictError("The request does not wait for a decision.")
            claim = candidate.claim
            query = select(Request).where(Request.claim == claim).order_by(Request.received, Request.id)
            requests = self._locked(session, query)
            session.execute(delete(Candidate).where(Candidate.claim == claim))
            if not publish:
                why = f"{actor} rejected the result: {reason}"
                said = {"destroyed": self._destroy_unnamed(session, candidate.sha256, candidate.guard)}
                failed = self._move(session, requests, RequestState.FAILED, actor, reason=why, said=said)
                return Finished(tuple(failed), None)
            current = _current(session, name).number
            if current != candidate.parent:
                raise ConflictError(
                    f"This result was made from version {candidate.parent}, and version {current} was published since, "
                    "which publishing it would undo; reject it, and retry the request: it is then served from version "
                    f"{current}."
                )
            private = self._signing_key(session)
            self._interrupt(session, name, actor, "an officer published another version")
            checked = CheckedResult.from_json(candidate.result)
            self.check_model(checked.model)
            guard = checked.values.get("guard")  # one that was held before there were guards has none
            self.check_guard(guard)
            if guard != guard_of(json.loads(session.get_one(Document, checked.values["evidence"]).content)):
                raise InputError("The result that waits was changed: its evidence was measured under another guard.")
            decision = {"officer": actor, "reason": reason, "held": requests[0].reason}
            version, done = self._publish(session, name, requests, checked, actor, private, decision)
            return Finished(tuple(done), version)

    def _publish(
        self,
        session: Session,
        name: str,
        requests: Sequence[Request],
        result: CheckedResult,
        actor: str,
        private: Ed25519PrivateKey,
        decision: Mapping[str, Any] | None = None,
    ) -> tuple[Version, list[Request]]:
        """Everything that makes a version the current one, and its requests done."""
        before = _current(session, name)
        self._keep_documents(session, result)
        version = self._new_version(
            session, before, {"sha256": result.model, "kind": VersionKind.FORGOTTEN, **result.values}
        )
        for kind, path, sha256 in result.remains:
            row = {"federation": name, "version": before.number, "path": path, "kind": kind, "sha256": sha256}
            session.execute(self._insert(Remains).values(row).on_conflict_do_nothing())
        said = _said(version) | {"requests": [request.id for request in requests]}
        self._append(session, actor, "version published", said)
        proof: dict[str, Any] = {
            "version": version.number, "sha256": version.sha256, "parent": before.number,
            "parent_sha256": before.sha256, "evidence": version.evidence, "verdict": version.verdict,
        }  # fmt: skip
        proof |= held_to(version.guard)
        if decision is not None:
            proof["decision"] = dict(decision)
        papers = {"version": version.number, "evidence": version.evidence, "report": version.report}
        done = self._move(session, requests, RequestState.DONE, actor, said=proof, also=papers)
        ledger = self._head(session).ledger
        for request in done:
            # Who only looked at it stays out of a paper that is handed out.
            own = (Event.request == request.id, Event.kind.in_([*RequestState, "extended"]))
            trail = session.scalars(select(Event).where(*own).order_by(Event.number))
            text = make_certificate(
                private, ledger=ledger, issued=self.clock(), request=request, before=before, after=version,
                level=result.level, verdict=result.verdict, decision=decision,
                trail=[event.to_json() for event in trail],
            )  # fmt: skip
            self._keep_certificate(session, request, version, text, key_id(private.public_key()), actor)
        return version, done

    def _new_version(self, session: Session, before: Version, values: Mapping[str, Any]) -> Version:
        now = self.clock()
        old = update(Version).where(Version.federation == before.federation, Version.number == before.number)
        session.execute(
            old.values(state=VersionState.SUPERSEDED, superseded=now), execution_options={"synchronize_session": False}
        )
        row = {
            "federation": before.federation, "number": before.number + 1, "parent": before.number,
            "state": VersionState.CURRENT, "published": now, **values,
        }  # fmt: skip
        return session.scalars(insert(Version).values(row).returning(Version)).one()

    def _keep_documents(self, session: Session, result: CheckedResult) -> None:
        for sha256, (kind, text) in result.documents.items():
            row = {"sha256": sha256, "kind": kind, "content": text, "made": self.clock()}
            session.execute(self._insert(Document).values(row).on_conflict_do_nothing())

    def _keep_certificate(
        self, session: Session, request: Request, version: Version, text: str, key: str, actor: str
    ) -> None:
        row = {
            "sha256": sha256_of(text), "request": request.id, "federation": version.federation,
            "version": version.number, "key": key, "made": self.clock(), "content": text,
        }  # fmt: skip
        session.execute(insert(Certificate).values(row))
        self._append(session, actor, "certified", {"certificate": row["sha256"], "key": key}, request.id)

    def certificate_of(self, id: str) -> Certificate | None:
        """The newest certificate of a request. `withdrawn`: its version was rolled back."""
        query = select(Certificate).where(Certificate.request == check_id(id)).order_by(Certificate.version.desc())
        with self.database.reading() as session:
            found = session.scalars(query.limit(1)).one_or_none()
        if found is None:
            self.request(id)
        return found

    def rollback(self, federation: str, to: int, reason: str, *, actor: str) -> Version:
        """Make an older version's weights current again, and their guard, as a new version. Requests that were served
        since then are not any more: they fail, with this reason, their certificates are withdrawn, and a person queues
        them again."""
        reason = check_reason(reason)
        with self.database.writing() as session:
            self._lock_federation(session, federation)
            before, target = _current(session, federation), _version(session, federation, to)
            if target.number == before.number:
                raise ConflictError(f"Version {to} is the current one.")
            if target.state == VersionState.DESTROYED:
                raise ConflictError(f"The weights of version {to} were destroyed; it cannot come back.")
            self.check_model(target.sha256)
            self.check_guard(target.guard)
            undone = self._undone(session, federation, target)
            self._interrupt(session, federation, actor, "the model was rolled back")
            values = {"sha256": target.sha256, "guard": target.guard, "kind": VersionKind.ROLLBACK, "restores": to}
            version = self._new_version(session, before, values)
            session.execute(
                update(Certificate)
                .where(Certificate.request.in_([request.id for request in undone]), Certificate.withdrawn.is_(None))
                .values(withdrawn=self.clock()),
                execution_options={"synchronize_session": False},
            )
            said = _said(version) | {"restores": to, "reason": reason, "undone": [request.id for request in undone]}
            self._append(session, actor, "rolled back", said)
            why = f"Version {before.number} was rolled back to version {to}: {reason}"
            self._move(session, undone, RequestState.FAILED, actor, reason=why, also={"version": None})
            return version

    def _undone(self, session: Session, federation: str, target: Version) -> list[Request]:
        """The done requests that the weights of `target` do not know. A rollback knows what its original knew."""
        known = target
        while known.restores is not None:
            known = _version(session, federation, known.restores)
        query = select(Request).where(Request.federation == federation, Request.version > known.number)
        return self._locked(session, query.order_by(Request.received, Request.id))

    def _interrupt(self, session: Session, federation: str, actor: str, why: str) -> None:
        """Whoever works on this federation began from a version that is not current any more: its requests wait."""
        query = select(Request).where(Request.federation == federation, Request.state.in_(AT_WORK))
        requests = self._locked(session, query.order_by(Request.received, Request.id))
        self._release(session, federation)
        self._move(session, requests, RequestState.QUEUED, actor, said={"why": why})

    def _lock_federation(self, session: Session, name: str) -> None:
        query = select(Federation.name).where(Federation.name == searchable(name)).with_for_update(key_share=True)
        if session.scalar(query) is None:
            raise MissingError("There is no such federation.")

    def _insert(self, table: Any) -> Any:
        return (sqlite if self.database.is_sqlite else postgresql).insert(table)


def _said(version: Version) -> dict[str, Any]:
    names = ("federation", "sha256", "parent", "kind", "method", "preset", "evidence", "verdict")
    return {"version": version.number, **{name: getattr(version, name) for name in names}, **held_to(version.guard)}


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


def _current(session: Session, federation: str) -> Version:
    query = select(Version).where(Version.federation == federation, Version.state == VersionState.CURRENT)
    found = session.scalars(query).one()
    session.expunge(found)
    return found


def _version(session: Session, federation: str, number: int) -> Version:
    found = session.get(Version, (searchable(federation), number)) if 0 < number < 2**31 else None
    if found is None:
        raise MissingError(f"There is no version {number} of this federation.")
    session.expunge(found)
    return found
