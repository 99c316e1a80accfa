"""What a request can be about: a registered federation, its clients, its classes, and how many samples of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, Unpack

import torch
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from torch import Tensor

from fedforget.audit.examine import check_level
from fedforget.errors import InputError
from fedforget.ledger.checks import (
    MOST_DAYS,
    check_federation_name,
    check_limit,
    check_reason,
    check_whole,
    searchable,
)
from fedforget.ledger.core import SYSTEM, Core, named
from fedforget.ledger.errors import ConflictError, MissingError, NotHeldError
from fedforget.ledger.model_files import ModelFiles
from fedforget.ledger.recorded import recorded
from fedforget.ledger.run_folders import check_fits, read_run
from fedforget.ledger.schema import Federation, Version
from fedforget.ledger.states import VersionKind, VersionState
from fedforget.methods import DEFAULT_METHOD, LADDER, QUICK_S, check_prepared, method_settings
from fedforget.requests import ErasureRequest, check_feature
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run

Kind = Literal["local", "flower"]


class Holding(TypedDict):
    """What one client holds, in numbers only: no sample, no id, no picture."""

    client: int
    name: str
    samples: int
    counts: list[int]
    """Of each class; empty where the client does not say how its samples are spread."""


class Description(TypedDict):
    """What requests can be about, as the ledger keeps it."""

    classes: list[str]
    clients: list[Holding]
    shape: list[int]
    """Of one sample, [columns] or [channels, height, width]: where its features can lie. Empty: nobody said."""
    serving: NotRequired[str]
    """What it has and what a request comes to, where it prepared for forgetting (`models.Prepared`)."""


def describe(classes: Iterable[str], counts: Mapping[int, Sequence[int]], shape: Sequence[int] = ()) -> Description:
    """Of clients that say how many samples of each class they hold."""
    clients: list[Holding] = [
        {"client": client, "name": f"client {client}", "samples": sum(held), "counts": list(held)}
        for client, held in sorted(counts.items())
    ]
    return {"classes": list(classes), "clients": clients, "shape": list(shape)}


def check_there(request: ErasureRequest, described: Mapping[str, Any]) -> None:
    """Refuse what is not there to be forgotten, as a `Description` has it."""
    clients: dict[int, Holding] = {held["client"]: held for held in described["clients"]}
    if request.client not in clients:
        raise InputError(f"Client {request.client} does not exist; there are {_listed(sorted(clients))}.")
    held, classes = clients[request.client], described["classes"]
    shape = tuple(described.get("shape", ()))  # a ledger from before features has none
    if request.kind == "feature" and shape:
        check_feature(request.feature, shape)
    if request.kind == "class":
        assert request.label is not None
        if request.label >= len(classes):
            raise InputError(f"Class {request.label} does not exist; there are 0 to {len(classes) - 1}.")
        if held["counts"] and not held["counts"][request.label]:
            raise InputError(f"Client {request.client} has no samples of class {request.label}.")
    elif request.kind == "samples" and len(request.sample_ids) > held["samples"]:
        many = f"The request names {len(request.sample_ids)} samples, more than client {request.client} has."
        raise NotHeldError(request.client, many)


def describe_run(folder: Path) -> tuple[Description, dict[str, Tensor]]:
    """What a trained run folder's clients hold, and its model."""
    run, model = read_run(folder)
    dataset = run.config.load_dataset()
    federation = run.config.build_federation(dataset)
    check_fits(model, federation.model.state_dict(), folder)
    counts = {}
    for client in federation.clients:
        labels = federation.client(client).samples.true_labels
        counts[client] = torch.bincount(labels, minlength=len(dataset.classes)).tolist()
    return prepared(describe(map(str, dataset.classes), counts, dataset.shape), run.config), model


def prepared(description: Description, config: RunConfig) -> Description:
    """With a word on what the federation prepared, if it did."""
    return {**description, "serving": config.serving} if config.serving is not None else description


class Settings(TypedDict, total=False):
    """How a federation's requests are served."""

    method: str
    preset: str | None
    settings: Mapping[str, Any]
    audit_level: str
    accuracy_limit: float
    keep_days: int
    together: int
    allowance: int
    four_eyes: bool


DEFAULTS: Settings = {
    "method": DEFAULT_METHOD, "preset": None, "settings": {}, "audit_level": "quick", "accuracy_limit": 2.0,
    "keep_days": 30, "together": 1, "allowance": 3, "four_eyes": False,
}  # fmt: skip


class Federations:
    """`ledger.federations.all`: what there is, and how it is served."""

    def __init__(self, core: Core, models: ModelFiles) -> None:
        self._core, self._models = core, models

    def register(
        self,
        name: str,
        kind: Kind,
        place: str,
        description: Description,
        model: Mapping[str, Tensor],
        *,
        actor: str = SYSTEM,
        **settings: Unpack[Settings],
    ) -> Federation:
        """A new federation, with `model` as its version 1."""
        check_federation_name(name)
        if kind not in ("local", "flower"):
            raise InputError(f"A federation is local or flower, not '{kind}'.")
        if not place or not place.isprintable() or not description["clients"] or not description["classes"]:
            raise InputError("A federation needs a place, at least one client and at least one class.")
        values = _checked({**DEFAULTS, **settings}, description)
        sha256, now = self._models.store(model), self._core.clock()
        row = {"name": name, "kind": kind, "place": place, "description": description, "registered": now}
        federation = Federation(**row, **values)
        try:
            with self._core.writing() as session:
                session.add(federation)
                said = {"federation": name, "kind": kind, "place": place, **values}
                said |= recorded("federation", federation)
                self._core.append(session, actor, "federation registered", said)
                first = {"federation": name, "sha256": sha256, "parent": None, "kind": VersionKind.FIRST}
                session.add(Version(**first, number=1, state=VersionState.CURRENT, published=now))
                self._core.append(session, actor, "version published", {"version": 1, **first})
                return federation
        except IntegrityError:
            raise ConflictError(f"There is a federation '{name}' already; choose another name.") from None

    def register_run(self, name: str, folder: Path, *, actor: str = SYSTEM, **settings: Unpack[Settings]) -> Federation:
        """A trained run folder as a federation in this process."""
        description, model = describe_run(folder)
        config, place = Run(folder).config, str(Path(folder).resolve())
        if config.head is not None and config.head.sha256:
            self._check_backbone(config.head.sha256)
        return self.register(name, "local", place, description, model, actor=actor, **settings)

    def _check_backbone(self, sha256: str) -> None:
        """Refuse a backbone that is a model of a federation here: what is withdrawn there would stay in it."""
        with self._core.reading() as session:
            known = session.scalars(select(Version).where(Version.sha256 == sha256)).first()
        if known is not None:
            raise InputError(
                f"The run's backbone is version {known.number} of the federation '{known.federation}', so it would "
                "keep what is withdrawn there; give one that was trained on other people's data."
            )

    def change(self, name: str, reason: str, *, actor: str, **changes: Unpack[Settings]) -> Federation:
        """Serve its requests in another way from now on; what a worker has begun ends as it began. Single `settings`
        join those there are, but for another method, which begins with none."""
        reason = check_reason(reason)
        with self._core.writing() as session:
            self.lock(session, name)
            row = session.get_one(Federation, name)
            before = {key: getattr(row, key) for key in DEFAULTS}
            same = changes.get("method", row.method) == row.method and "preset" not in changes
            settings = {**(row.settings if same else {}), **changes.get("settings", {})}
            preset = row.preset if same else changes.get("preset")
            values = _checked({**before, **changes, "preset": preset, "settings": settings}, row.description)
            different = {key: value for key, value in values.items() if value != before[key]}
            if not different:
                raise ConflictError("This is how its requests are served already; nothing was changed.")
            for key, value in different.items():
                setattr(row, key, value)
            said = {"federation": name, "reason": reason, "from": {key: before[key] for key in different}, **different}
            self._core.append(session, actor, "federation changed", said | recorded("federation", row))
            return row

    def all(self) -> list[Federation]:
        return self._core.rows(select(Federation).order_by(Federation.name))

    def get(self, name: str) -> Federation:
        with self._core.reading() as session:
            return named(session, Federation, name)

    def lock(self, session: Session, name: str) -> None:
        """Nobody else changes its requests and versions before the caller's transaction is over."""
        locked = select(Federation.name).where(Federation.name == searchable(name)).with_for_update(key_share=True)
        if session.scalar(locked) is None:
            raise MissingError("There is no such federation.")


def _checked(values: Mapping[str, Any], description: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that can be worked with, the preset by name."""
    settings = {"exact_below": QUICK_S} if values["method"] == LADDER else {}
    settings |= values["settings"]
    preset, chosen = method_settings(values["method"], values["preset"], **settings)
    check_prepared(description.get("serving"), values["method"], chosen)
    check_level(values["audit_level"])
    check_limit(values["accuracy_limit"])
    for name, least, most in (("keep_days", 0, MOST_DAYS), ("together", 1, 1000), ("allowance", 1, 1000)):
        check_whole(name, values[name], least, most)
    if not isinstance(values["four_eyes"], bool):
        raise InputError(f"The setting 'four_eyes' is {values['four_eyes']!r}, but it must be true or false.")
    return {**values, "preset": preset, "settings": settings}


def _listed(clients: Sequence[int]) -> str:
    return ", ".join(map(str, clients[:20])) + (", ..." if len(clients) > 20 else "")
