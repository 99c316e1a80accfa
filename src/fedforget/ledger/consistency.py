"""Do the rows tell the same as the events, and the files the same as the rows?

The chain shows that the events are as they were written. This shows that nobody changed what they speak of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedforget.data.files import sha256_of_file
from fedforget.errors import InputError
from fedforget.ledger.certificate import verify_certificate
from fedforget.ledger.chain import sha256_of
from fedforget.ledger.keys import read_public
from fedforget.ledger.model_files import model_file, named_files
from fedforget.ledger.recorded import KINDS, SETTINGS_NOTED, problems_of_rows, problems_of_settings
from fedforget.ledger.schema import Base, Candidate, Certificate, Document, Event, Key, Remains, Request, Version
from fedforget.ledger.serving import CHOICES, CHOSEN
from fedforget.ledger.states import RequestState, VersionState

PUBLISHED = ("version published", "rolled back")
ASKED = ("federation", "asked_by", "subject", "client", "target", "ground", "due", "months")
"""What the events of a request say of what was asked, and of the time it may take."""
ASKED_SINCE = ("received", "channel")
"""The same of events that say so; older ones do not."""


def problems_of(session: Session, home: Path) -> Iterator[str]:
    """One sentence for each thing that is not as it was written down."""
    yield from problems_of_rows(session.connection(), _events(session, *KINDS))
    yield from problems_of_settings(home, settings_noted(session))
    yield from _requests(session)
    yield from _candidates(session)
    yield from _versions(session)
    yield from _documents(session)
    yield from _certificates(session)
    yield from _files(session, home)


def _events(session: Session, *kinds: str) -> Iterator[tuple[str | None, str, dict[str, Any]]]:
    """(request, kind, body) of all events of these kinds, oldest first."""
    query = select(Event.request, Event.kind, Event.body).where(Event.kind.in_(kinds)).order_by(Event.number)
    for request, kind, body in session.execute(query, execution_options={"yield_per": 1000}):
        yield request, kind, json.loads(body)


def settings_noted(session: Session) -> dict[str, Any] | None:
    """What console.toml said when a console last began with it, or a backup was made."""
    bodies = [body for _, _, body in _events(session, SETTINGS_NOTED)]
    return bodies[-1]["settings"] if bodies else None


def _requests(session: Session) -> Iterator[str]:
    received = select(Event.request, Event.actor).where(Event.kind == RequestState.RECEIVED)
    said = {row.request: {"asked_by": row.actor} for row in session.execute(received)}  # said so alone, in older events
    for request, kind, body in _events(session, *RequestState, "extended", CHOSEN):
        told = said.setdefault(request, {})
        if kind in (RequestState.RECEIVED, "extended"):
            told |= {name: body[name] for name in (*ASKED, *ASKED_SINCE) if name in body}
        if kind == CHOSEN or (kind == RequestState.QUEUED and "effort" in body):
            told |= {name: body[name] for name in CHOICES if name in body}
        if kind == RequestState.DONE:
            told["result"] = (body.get("version"), body.get("evidence"))
        if kind not in ("extended", CHOSEN):
            told["state"] = kind
    for row in session.scalars(select(Request), execution_options={"yield_per": 1000}):
        told = said.pop(row.id, {})
        if told.get("state") != row.state:
            yield f"Request {row.id} is {row.state}, but its events do not say so."
        now = Base.to_json(row) | {"target": json.loads(row.target), "months": row.extended or None}
        late = [name for name in ASKED_SINCE if name in told]
        if any(told.get(name) != now[name] for name in (*ASKED, *late, *CHOICES)):
            yield f"Request {row.id} is not the one that its events speak of."
        if row.state == RequestState.DONE and told.get("result") != (row.version, row.evidence):
            yield f"Request {row.id} has another version or other evidence than its events say."
    for id in said:
        yield f"Request {id} has events, but is not there."


def _candidates(session: Session) -> Iterator[str]:
    """What an officer would publish is what the worker handed over."""
    held = {request: body for request, _, body in _events(session, RequestState.DECIDING)}
    for row in session.scalars(select(Candidate)):
        waiting = select(Request.id).where(Request.claim == row.claim, Request.state == RequestState.DECIDING)
        said = [held.get(request, {}) for request in session.scalars(waiting)]
        now = (row.sha256, row.result["values"]["evidence"], row.verdict)
        names = ("sha256", "evidence", "verdict")
        same = row.result["model"] == row.sha256 and row.result["values"]["verdict"] == row.verdict
        if not said or not same or any(tuple(map(b.get, names)) != now for b in said):
            yield f"The result of {row.federation} that waits for an officer is not the one that was held."


def _versions(session: Session) -> Iterator[str]:
    said = {(body["federation"], body["version"]): body for _, _, body in _events(session, *PUBLISHED)}
    gone = {(body["federation"], body["version"]) for _, _, body in _events(session, "destroyed")}
    newest: dict[str, int] = {}
    for row in session.scalars(select(Version).order_by(Version.federation, Version.number)):
        name = f"Version {row.number} of {row.federation}"
        body = said.pop((row.federation, row.number), {})
        for column in ("sha256", "parent", "kind", "verdict", "evidence", "method"):
            if body.get(column) != getattr(row, column):
                yield f"{name} is not the one that was published: its {column} is another."
        if ((row.federation, row.number) in gone) != (row.state == VersionState.DESTROYED):
            yield f"{name} is {row.state}, but its events do not say so."
        if row.state == VersionState.CURRENT:
            newest[row.federation] = row.number
        elif newest.get(row.federation, row.number) < row.number:
            yield f"{name} is newer than the current one."
    for federation, number in said:
        yield f"Version {number} of {federation} was published, but is not there."


def _documents(session: Session) -> Iterator[str]:
    for row in session.scalars(select(Document), execution_options={"yield_per": 20}):
        if sha256_of(row.content) != row.sha256:
            yield f"The {row.kind} {row.sha256} was changed."


def _certificates(session: Session) -> Iterator[str]:
    made = {body["key"]: body["public"] for _, _, body in _events(session, "key made")}
    keys = []
    for row in session.scalars(select(Key)):
        if made.get(row.id) != row.public:
            yield f"The key {row.id} is not the one that was made."
        else:
            keys.append(read_public(row.public))
    issued: dict[str, str | None] = {}
    holds: dict[str | None, set[str]] = {}
    for request, kind, body in _events(session, "certified", RequestState.FAILED):
        if kind == "certified":
            issued[body["certificate"]] = request
            holds.setdefault(request, set()).add(body["certificate"])
        elif body["from"] == RequestState.DONE:  # all that it has so far are withdrawn
            holds.pop(request, None)
    for certificate in session.scalars(select(Certificate), execution_options={"yield_per": 100}):
        if issued.pop(certificate.sha256, None) != certificate.request:
            yield f"The certificate {certificate.sha256} was never issued for the request {certificate.request}."
        if (certificate.withdrawn is None) != (certificate.sha256 in holds.get(certificate.request, ())):
            yield f"The certificate {certificate.sha256} is withdrawn or not, but its events do not say so."
        try:
            verify_certificate(certificate.content.encode(), keys, f"The certificate of {certificate.request}")
        except InputError as error:
            yield str(error)
        if sha256_of(certificate.content) != certificate.sha256:
            yield f"The certificate {certificate.sha256} was changed."
    for sha256 in issued:
        yield f"The certificate {sha256} was issued, but is not there."


def _files(session: Session, home: Path) -> Iterator[str]:
    """A file outlives a version where another one, or a waiting decision, has the same."""
    named = named_files(session)
    states = session.execute(select(Version.sha256, Version.state)).all()
    there = {sha256 for sha256, state in states if state != VersionState.DESTROYED}
    for sha256 in sorted({sha256 for sha256, _ in states}):
        path = model_file(home, sha256)
        problem = _problem_of_file(path, sha256) if sha256 in there else None
        if problem is not None:
            yield f"The model file {path.name} {problem}"
        elif sha256 not in named and path.exists():
            yield f"The model file {path.name} was destroyed, but is there."
    for row in session.scalars(select(Remains)):
        path = home / row.path
        if row.destroyed is not None and path.exists() and _problem_of_file(path, row.sha256) is None:
            yield f"{row.path} was destroyed, but is there."


def _problem_of_file(path: Path, sha256: str) -> str | None:
    if not path.exists():
        return "is missing."
    return None if sha256_of_file(path) == sha256 else "was changed."
