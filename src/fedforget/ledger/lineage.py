"""Where withdrawn data lives on: every file in the home, looked into, and what of it is beyond our reach.

A request's data is in each model that was trained with it: earlier versions, checkpoints, the history of training,
oracles, results that wait for an officer, backups, what nodes keep. The whole home is looked through, file by file, and
not the ledger's own list: so a copy that nobody wrote down is found too. Each file is shown to be clean, or listed with
what becomes of it. Nothing is destroyed here but by `destruction` and its rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from fedforget.audit.evidence import code_version
from fedforget.errors import InputError
from fedforget.ledger.clock import MOST_JUMP, Jumps, to_text
from fedforget.ledger.contents import Contents, look
from fedforget.ledger.core import Core, head_of
from fedforget.ledger.destruction import Destruction, kept_until
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.executor_flower import FlowerExecutor
from fedforget.ledger.keys import Keys
from fedforget.ledger.model_files import ModelFiles
from fedforget.ledger.schema import Candidate, Event, Federation, Remains, Request, Version
from fedforget.ledger.statements import LINEAGE, sign
from fedforget.ledger.states import RequestState, VersionState

MEANING = (
    "Every file in the ledger's folder was looked into. Those that may hold what this request withdrew are listed, "
    "with what becomes of each; the others were shown to hold no model, or a model without it."
)
BACKUP, LINK = "a backup", "a link to"
Fate = Literal["in use", "kept until", "kept", "destroyed", "out of our hands", "needs a person"]


@dataclass(frozen=True)
class Trace:
    """One place in which the data lives on, may live on, or did."""

    place: str
    """The path under the home, or from the root; or in words, where nobody can look."""
    what: str
    sha256: str | None
    fate: Fate
    until: str | None
    """When it is destroyed, or was."""
    why: str


@dataclass(frozen=True)
class Lineage:
    """What came of looking for a request's data."""

    request: str
    federation: str
    made: str
    traces: tuple[Trace, ...]
    clean: dict[str, str]
    """Why each of the other files in the home holds nothing of it."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"traces": [asdict(trace) for trace in self.traces]}


class Traces:
    """`ledger.lineage`."""

    def __init__(self, core: Core, models: ModelFiles, keys: Keys, destruction: Destruction) -> None:
        self._core, self._models, self._keys, self._destruction = core, models, keys, destruction
        self._jumps = Jumps(core.clock)

    def of(self, request: Request) -> Lineage:
        """Look through the whole home, and the run folder if it lies elsewhere."""
        home, now = self._core.home, self._core.clock()
        with self._core.reading() as session:
            known = _Known(session, request, home)
            beyond = [*_runs_elsewhere(known, home), *_at_nodes(known), *_backups(session, known)]
            gone = list(_gone(session, known))
        traces, clean = [], {}
        for path in sorted(home.rglob("*")):
            name = path.relative_to(home).as_posix()
            found = _looked(path, home)
            if found is None:
                continue
            told = found.what if found.kind == "clean" else known.shown_clean(name, found)
            if told is not None:
                clean[name] = told
            else:
                traces.append(known.trace(name, found))
        here = {trace.sha256 for trace in traces} - {None}
        beyond = [trace for trace in beyond if trace.what != BACKUP or trace.sha256 not in here]
        return Lineage(request.id, request.federation, to_text(now), (*traces, *beyond, *gone), clean)

    def destroy_due(self, *, actor: str) -> None:
        """Destroy what is due and was announced a day ago, announce what is due next: by the rules of `destruction`. As
        a worker does nothing by a clock that went ahead of the machine's own, nor does this."""
        if (jump := self._jumps.jump()) > MOST_JUMP:
            raise ConflictError(
                f"The clock went ahead by {jump} since this program began; nothing is destroyed until it is right, or "
                "the program is begun anew."
            )
        self._destruction.destroy_superseded(actor=actor)
        self._models.sweep(actor=actor)

    def receipt(self, found: Lineage, *, actor: str) -> str:
        """The same, signed; and an event that says that it was."""
        with self._core.writing() as session:
            private, head = self._keys.signing(session), head_of(session)
            subject = {trace.place: trace.sha256 for trace in found.traces if trace.sha256 is not None}
            said = {"statement": MEANING, "fedforget": code_version(), "ledger": head.ledger, "event": head.number}
            text = sign(private, LINEAGE, subject, {**said, **found.to_json()})
            fates: dict[str, int] = {}
            for trace in found.traces:
                fates[trace.fate] = fates.get(trace.fate, 0) + 1
            self._core.append(
                session, actor, "lineage told", {"fates": fates, "clean": len(found.clean)}, found.request
            )
        return text


class _Known:
    """What the ledger knows of models, to judge what is found by."""

    def __init__(self, session: Session, request: Request, home: Path) -> None:
        self.request, self.home = request, home
        every = list(session.scalars(select(Version).order_by(Version.federation, Version.number)))
        self.federations = {row.name: row for row in session.scalars(select(Federation))}
        mine = self.federations[request.federation]
        hashes = {version.sha256 for version in every if version.federation == mine.name}
        self.kin = {row.name for row in self.federations.values() if row.place == mine.place}
        """This federation under each of its names: one run may be registered twice, or its model."""
        self.kin |= {version.federation for version in every if version.sha256 in hashes}
        by_number = {version.number: version for version in every if version.federation == mine.name}
        self.versions: dict[str, list[Version]] = {}
        for version in every:
            self.versions.setdefault(version.sha256, []).append(version)
        self.forgot = {
            version.sha256 for version in by_number.values() if request.version in _line(by_number, version.number)
        }
        self.waiting = {row.sha256: row for row in session.scalars(select(Candidate))}
        self.remains = {row.path: row for row in session.scalars(select(Remains).where(Remains.destroyed.is_(None)))}
        self.every = every
        self.until = {
            version: kept_until(session, version, self.federations[version.federation].keep_days) for version in every
        }

    def shown_clean(self, name: str, found: Contents) -> str | None:
        """Why a model holds nothing of the request; None: that cannot be shown."""
        if found.kind == "archive":
            inside = {self._clean_bits(sha256) for sha256 in found.models.values()}
            return None if None in inside else f"{found.what}: {'; '.join(sorted(filter(None, inside)))}"
        if found.kind != "model":
            return None
        parts = name.split("/")
        if parts[0] == "work" and len(parts) > 1 and parts[1] in self.federations.keys() - self.kin:
            return f"a job of the federation {parts[1]}, which is another"
        for row in self.federations.values():
            if row.name not in self.kin and _within(self.home / name, Path(row.place)):
                return f"the run of the federation {row.name}, which is another"
        return self._clean_bits(found.sha256)

    def _clean_bits(self, sha256: str) -> str | None:
        named = self.versions.get(sha256, [])
        if sha256 in self.waiting and self.waiting[sha256].federation in self.kin:
            return None
        if named and not {version.federation for version in named} & self.kin:
            return f"version {named[0].number} of {named[0].federation}, which is another federation"
        if sha256 in self.forgot:
            number = max(v.number for v in named if v.federation == self.request.federation)
            return f"version {number}, which has forgotten it"
        return None

    def trace(self, name: str, found: Contents) -> Trace:
        """What becomes of a file that holds it, or may."""

        def told(what: str, fate: Fate, why: str, until: datetime | None = None) -> Trace:
            return Trace(name, what, found.sha256 or None, fate, None if until is None else to_text(until), why)

        if found.kind == "unknown" and found.what.startswith(LINK):
            return told(found.what, "needs a person", "It leads out of the folder, so nobody looked there; do that.")
        if found.kind == "unknown":
            return told(found.what, "needs a person", "Nobody can say what it holds; look at it, and delete it.")
        if found.kind == "archive":
            why = "The ledger destroys no archive; delete it when it is not needed to restore from."
            return told(f"{found.what}, such as a backup", "out of our hands", why)
        row, parts = self.remains.get(name), name.split("/")
        if row is not None:
            due = self._due(version for version in self.every if (version.federation, version.number) == _key(row))
            why = f"It goes with version {row.version}."
            return told(row.kind, "kept until" if due else "kept", why, due)
        named = [version for version in self.versions.get(found.sha256, ()) if version.state != VersionState.DESTROYED]
        if name == f"models/{found.sha256}.safetensors" and named:
            words = "weights of " + ", ".join(f"version {v.number} of {v.federation}" for v in named)
            if any(version.state == VersionState.CURRENT for version in named):
                return told(words, "in use", "It is the current model. Serve the request, and it is kept no longer.")
            return told(words, "kept until", "It is kept for a rollback.", self._due(named))
        if found.sha256 in self.waiting and name.startswith("models/"):
            return told("a result that waits for an officer", "kept", "It is published or destroyed by the decision.")
        if parts[0] == "models":
            why = "Nothing names it: a worker that died left it. It is swept a day after it was written."
            return told("left over", "kept", why)
        if parts[0] == "work":
            kind = "oracle" if "oracles" in parts else "a file of a job"
            why = "It goes with the version before the next one that is published." if kind == "oracle" else (
                "It is cleared when the job is done, or began from a version that is not current any more."
            )  # fmt: skip
            return told(kind, "kept", why)
        if any(_within(self.home / name, run) for _, run in self.run_folders()):
            why = "It lies in the run folder. It goes with the version that the next request supersedes, if its method "
            return told(found.what, "kept", why + "does not need it; else delete it yourself.")
        return told(found.what, "needs a person", "Nothing in the ledger names it; look at it, and delete it.")

    def run_folders(self) -> Iterator[tuple[Federation, Path]]:
        """Where the kin were trained."""
        for name in sorted(self.kin):
            row = self.federations[name]
            try:
                yield row, FlowerExecutor().run_folder(row.place) if row.kind == "flower" else Path(row.place)
            except InputError:
                yield row, Path(row.place)

    def _due(self, versions: Iterable[Version]) -> datetime | None:
        """When the last of these is kept no longer; None: one is in use."""
        found = []
        for version in versions:
            if (until := self.until[version]) is None:
                return None
            found.append(until)
        return max(found, default=None)


def _looked(path: Path, folder: Path) -> Contents | None:
    """What is in a file; None for what is none, or was taken away just now. What a link leads to is looked into where
    it lies, if that is in the folder."""
    try:
        if path.is_symlink():
            return Contents("clean" if _within(path, folder) else "unknown", f"{LINK} {path.resolve()}", "")
        return look(path) if path.is_file() else None
    except FileNotFoundError:
        return None
    except OSError as error:
        return Contents("unknown", f"cannot be read: {error.strerror}", "")


def _line(by_number: Mapping[int, Version], number: int) -> set[int]:
    """The versions that a version's weights came through."""
    line: set[int] = set()
    at: int | None = number
    while at is not None and at not in line:
        version = by_number[at]
        if version.restores is None:  # a rollback's weights are those of the version that it restores
            line.add(at)
        at = version.restores or version.parent
    return line


def _key(row: Remains) -> tuple[str, int]:
    return row.federation, row.version


def _within(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _runs_elsewhere(known: _Known, home: Path) -> Iterator[Trace]:
    """The run folders that lie outside the home: we may look, and no more."""
    for row, run in known.run_folders():
        if _within(run, home) or not run.is_dir():
            if not run.is_dir():
                yield Trace(str(run), "the run folder", None, "out of our hands", None, "It is not there any more.")
            continue
        for path in sorted(run.resolve().rglob("*")):
            found = _looked(path, run)
            if found is not None and found.kind != "clean" and known.shown_clean("", found) is None:
                why = f"The run folder of {row.name} is not in the ledger's folder; delete it yourself."
                yield Trace(str(path), found.what, found.sha256 or None, "out of our hands", None, why)


def _at_nodes(known: _Known) -> Iterator[Trace]:
    """What Flower's nodes keep between messages: sketches, Fisher matrices, models."""
    for name in sorted(known.kin):
        row = known.federations[name]
        if row.kind == "flower":
            for held in row.description["clients"]:
                why = "It is kept at the node, in its state-dir, until its keeper deletes it. Nobody here can look."
                place = f"the node of client {held['client']} of {name}"
                yield Trace(place, "sketches and models between messages", None, "out of our hands", None, why)


def _backups(session: Session, known: _Known) -> Iterator[Trace]:
    """Every backup that was made while a model with the data was there."""
    first = min(known.federations[name].registered for name in known.kin)
    for event in session.scalars(select(Event).where(Event.kind == "backup made").order_by(Event.number)):
        held = [
            version for version in known.every
            if version.federation in known.kin and version.sha256 not in known.forgot
            and version.published <= event.at and (version.destroyed is None or version.destroyed > event.at)
        ]  # fmt: skip
        if event.at < first or not held:
            continue
        body = json.loads(event.body)
        place = body.get("file") or f"the backup of {to_text(event.at)} (event {event.number})"
        numbers = ", ".join(f"{version.number} of {version.federation}" for version in held)
        why = f"It was made on {to_text(event.at)}, with version {numbers}. The ledger destroys no backup; delete it."
        yield Trace(place, BACKUP, body.get("sha256"), "out of our hands", None, why)


def _gone(session: Session, known: _Known) -> Iterator[Trace]:
    """What held it and was destroyed: versions, what lay beside them, results that were rejected or replaced."""
    for version in known.every:
        if version.federation in known.kin and version.destroyed is not None and version.sha256 not in known.forgot:
            what, until = f"weights of version {version.number} of {version.federation}", to_text(version.destroyed)
            place = f"models/{version.sha256}.safetensors"
            yield Trace(place, what, version.sha256, "destroyed", until, "It was kept no longer.")
    for row in session.scalars(select(Remains).where(Remains.destroyed.is_not(None)).order_by(Remains.path)):
        if row.federation in known.kin and row.destroyed is not None:
            why = f"It went with version {row.version}."
            yield Trace(row.path, row.kind, row.sha256, "destroyed", to_text(row.destroyed), why)
    ended = (RequestState.FAILED, RequestState.QUEUED)
    query = (
        select(Event)
        .join(Request, Request.id == Event.request)
        .where(Request.federation.in_(known.kin), Event.kind.in_(ended))
        .order_by(Event.number)
    )
    for event in session.scalars(query):
        for sha256 in json.loads(event.body).get("destroyed", ()):
            place, why = f"models/{sha256}.safetensors", "An officer did not publish it."
            yield Trace(place, "a rejected result", sha256, "destroyed", to_text(event.at), why)
