"""What a request can be about: a registered federation, its clients, its classes, and how many samples of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import torch
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from torch import Tensor

from fedforget.audit.examine import check_level
from fedforget.errors import InputError
from fedforget.ledger.checks import check_federation_name, searchable
from fedforget.ledger.core import SYSTEM, Core, named
from fedforget.ledger.errors import ConflictError, MissingError
from fedforget.ledger.model_files import ModelFiles
from fedforget.ledger.recorded import recorded
from fedforget.ledger.run_folders import check_fits, read_run
from fedforget.ledger.schema import Federation, Version
from fedforget.ledger.states import VersionKind, VersionState
from fedforget.methods import DEFAULT_METHOD, LADDER, method_settings
from fedforget.requests import ErasureRequest, check_feature

Kind = Literal["local", "flower"]


@dataclass(frozen=True)
class Description:
    """Numbers only: what each client holds of each class. No sample, no id, no picture."""

    classes: tuple[str, ...]
    counts: dict[int, tuple[int, ...]]
    """By client, in the order of `classes`; empty where a client does not say how its samples are spread."""
    names: dict[int, str] = field(default_factory=dict)
    samples: dict[int, int] = field(default_factory=dict)
    """By client; needed only where `counts` is empty."""
    shape: tuple[int, ...] = ()
    """Of one sample, (columns,) or (channels, height, width): where its features can lie. Empty: nobody said."""

    def total(self, client: int) -> int:
        return self.samples.get(client, sum(self.counts[client]))

    def to_json(self) -> dict[str, Any]:
        clients = [
            {
                "client": client,
                "name": self.names.get(client, f"client {client}"),
                "samples": self.total(client),
                "counts": list(self.counts[client]),
            }
            for client in sorted(self.counts)
        ]
        return {"classes": list(self.classes), "clients": clients, "shape": list(self.shape)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Description:
        clients = values["clients"]
        return cls(
            tuple(values["classes"]),
            {int(client["client"]): tuple(client["counts"]) for client in clients},
            {int(client["client"]): client["name"] for client in clients},
            {int(client["client"]): int(client["samples"]) for client in clients},
            tuple(values.get("shape", ())),  # a ledger from before features has none
        )

    def check(self, request: ErasureRequest) -> None:
        """Refuse what is not there to be forgotten."""
        if request.client not in self.counts:
            raise InputError(f"Client {request.client} does not exist; there are {_listed(sorted(self.counts))}.")
        if request.kind == "feature" and self.shape:
            check_feature(request.feature, self.shape)
        counts, total = self.counts[request.client], self.total(request.client)
        if request.kind == "class":
            assert request.label is not None
            if request.label >= len(self.classes):
                raise InputError(f"Class {request.label} does not exist; there are 0 to {len(self.classes) - 1}.")
            if counts and not counts[request.label]:
                raise InputError(f"Client {request.client} has no samples of class {request.label}.")
        elif request.kind == "samples" and len(request.sample_ids) > total:
            raise InputError(
                f"The request names {len(request.sample_ids)} samples, more than client {request.client} has."
            )


def describe_run(folder: Path) -> tuple[Description, dict[str, Tensor]]:
    """What a trained run folder's clients hold, and its model."""
    run, model = read_run(folder)
    dataset = run.config.load_dataset()
    federation = run.config.build_federation(dataset)
    check_fits(model, federation.model.state_dict(), folder)
    counts = {}
    for client in federation.clients:
        labels = federation.client(client).samples.true_labels
        counts[client] = tuple(torch.bincount(labels, minlength=len(dataset.classes)).tolist())
    classes = tuple(str(name) for name in dataset.classes)
    return Description(classes, counts, shape=dataset.shape), model


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


DEFAULTS: Settings = {
    "method": DEFAULT_METHOD, "preset": None, "settings": {}, "audit_level": "quick", "accuracy_limit": 2.0,
    "keep_days": 30, "together": 1, "allowance": 3,
}  # fmt: skip
EXACT_BELOW_S = 60.0
"""Where Retrain is forecast to be done sooner, nothing else is tried, unless a federation's settings say otherwise."""


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
        if not place or not place.isprintable() or not description.counts or not description.classes:
            raise InputError("A federation needs a place, at least one client and at least one class.")
        values = _checked({**DEFAULTS, **settings})
        sha256, now = self._models.store(model), self._core.clock()
        row = {"name": name, "kind": kind, "place": place, "description": description.to_json(), "registered": now}
        version = {
            "federation": name, "number": 1, "sha256": sha256, "kind": VersionKind.FIRST, "state": VersionState.CURRENT,
            "published": now,
        }  # fmt: skip
        try:
            with self._core.writing() as session:
                federation = session.scalars(insert(Federation).values(row | values).returning(Federation)).one()
                session.execute(insert(Version).values(version))
                said = {"federation": name, "kind": kind, "place": place, **values}
                said |= recorded("federation", federation)
                self._core.append(session, actor, "federation registered", said)
                first = {"federation": name, "version": 1, "sha256": sha256, "parent": None, "kind": VersionKind.FIRST}
                self._core.append(session, actor, "version published", first)
                return federation
        except IntegrityError:
            raise ConflictError(f"There is a federation '{name}' already; choose another name.") from None

    def register_run(self, name: str, folder: Path, *, actor: str = SYSTEM, **settings: Unpack[Settings]) -> Federation:
        """A trained run folder as a federation in this process."""
        description, model = describe_run(folder)
        place = str(Path(folder).resolve())
        return self.register(name, "local", place, description, model, actor=actor, **settings)

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


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that can be worked with, the preset by name."""
    settings = {"exact_below": EXACT_BELOW_S} if values["method"] == LADDER else {}
    settings |= values["settings"]
    preset, _ = method_settings(values["method"], values["preset"], **settings)
    check_level(values["audit_level"])
    limit = values["accuracy_limit"]
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit <= 100:
        raise InputError(f"The accuracy limit is {limit!r}, but it must be a number of points from 0 to 100.")
    for name, least, most in (("keep_days", 0, 36500), ("together", 1, 1000), ("allowance", 1, 1000)):
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InputError(
                f"The setting '{name}' is {value!r}, but it must be a whole number from {least} to {most}."
            )
    return {**values, "preset": preset, "settings": settings}


def _listed(clients: Sequence[int]) -> str:
    return ", ".join(map(str, clients[:20])) + (", ..." if len(clients) > 20 else "")
