"""Finding requests: by any part of a word, in any case, in every state, alike in both databases.

Case is folded here and not by a database, since SQLite folds ASCII alone. `Request.words` has what a request is found
by; % and _ are letters like all others."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, TypedDict, Unpack

from sqlalchemy import ColumnElement, and_, exists, false, or_

from fedforget.ledger.checks import check_word, searchable
from fedforget.ledger.schema import Candidate, Request, Version
from fedforget.ledger.states import Ground, RequestState


class Wanted(TypedDict, total=False):
    """What must be true of a request; what is left out or None may be anything."""

    states: Collection[str] | None
    federation: str | None
    asked_by: str | None
    subject: str | None
    text: str | None
    """Words of which each must be part of `Request.words`."""
    ground: str | None
    verdict: str | None
    received_from: datetime | None
    received_before: datetime | None
    due_before: datetime | None


def words_of(*said: object) -> str:
    """What a request is found by.

    >>> words_of("Case-17", "digits", "class 3 (Straße)")
    'case-17 digits class 3 (strasse)'
    """
    return " ".join(map(str, said)).casefold()


def conditions(**wanted: Unpack[Wanted]) -> list[ColumnElement[bool]]:
    """The same in SQL."""
    given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    found: list[ColumnElement[bool]] = []
    if "states" in given:
        found.append(Request.state.in_([check_word(RequestState, word, "state") for word in given["states"]]))
    for column in (Request.federation, Request.asked_by, Request.subject):
        if column.key in given:
            found.append(column == searchable(given[column.key]))
    if "ground" in given:
        found.append(Request.ground == check_word(Ground, given["ground"], "legal ground"))
    if "verdict" in given:
        found.append(_judged(searchable(given["verdict"])))
    for name, before in (("received_from", False), ("received_before", True)):
        if name in given:
            found.append(Request.received < given[name] if before else Request.received >= given[name])
    if "due_before" in given:
        found.append(Request.due < given["due_before"])
    text = given.get("text", "")
    for word in text.casefold().split():
        found.append(Request.words.contains(word, autoescape=True) if word.isprintable() else false())
    return found


def _judged(verdict: str) -> ColumnElement[bool]:
    """Of the version that served it, or of what waits for an officer."""
    own = and_(Version.federation == Request.federation, Version.number == Request.version)
    held = and_(Candidate.claim == Request.claim, Candidate.verdict == verdict)
    return or_(exists().where(own, Version.verdict == verdict), exists().where(held))
