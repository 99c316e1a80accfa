"""The API: federations and model versions."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from fedforget.console.holdings import description_for
from fedforget.console.models import LARGEST_NUMBER, FederationOut, RollbackIn, VersionOut
from fedforget.console.permissions import Permission
from fedforget.console.problems import API
from fedforget.console.visitors import Visitor, allow, guarded_router

router = guarded_router(prefix=API, tags=["federations"])
Name = Annotated[str, Path(max_length=64)]
Version = Annotated[int, Path(ge=1, le=LARGEST_NUMBER)]


@router.get("/federations")
def list_federations(visitor: Annotated[Visitor, allow(Permission.SEE_FEDERATIONS)]) -> list[FederationOut]:
    """What a request can be about: clients and classes; how many samples of each, for who may see that."""
    return [FederationOut.of(row, **description_for(visitor, row)) for row in visitor.console.glance.federations()]


@router.get("/federations/{name}")
def one_federation(visitor: Annotated[Visitor, allow(Permission.SEE_FEDERATIONS)], name: Name) -> FederationOut:
    row = visitor.ledger.federations.get(name)
    return FederationOut.of(row, **description_for(visitor, row))


@router.get("/federations/{name}/versions")
def list_versions(visitor: Annotated[Visitor, allow(Permission.SEE_VERSIONS)], name: Name) -> list[VersionOut]:
    """All model versions, oldest first; `parent` makes the lineage."""
    return [VersionOut.of(row) for row in visitor.ledger.versions.of(name)]


@router.get("/federations/{name}/versions/{number}")
def one_version(visitor: Annotated[Visitor, allow(Permission.SEE_VERSIONS)], name: Name, number: Version) -> VersionOut:
    return VersionOut.of(visitor.ledger.versions.get(name, number))


@router.post("/federations/{name}/rollback")
def roll_back(visitor: Annotated[Visitor, allow(Permission.ROLL_BACK)], name: Name, rollback: RollbackIn) -> VersionOut:
    """Make an older version's weights current again; requests served since then fail, their certificates are
    withdrawn."""
    return VersionOut.of(visitor.ledger.versions.roll_back(name, rollback.to, rollback.reason, actor=visitor.name))
