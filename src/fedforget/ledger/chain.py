"""The chain of events: each holds the hash of the one before, so a change anywhere breaks every hash after it.

    hash = SHA-256 of the canonical JSON of number, at, actor, kind, request, body and previous

Who can write to the database can also write a whole new chain. A pin notices that: the ledger's name, a number and that
event's hash, kept somewhere else (a file, a printed line)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedforget.errors import InputError

BEGINNING = "0" * 64
"""What the first event has for the hash of the one before."""
HASHED = ("number", "at", "actor", "kind", "request", "body", "previous")


def canonical(values: Any) -> str:
    """The one text of some plain values.

    >>> canonical({"b": 1, "a": [None, "ü"]})
    '{"a":[null,"\\\\u00fc"],"b":1}'
    """
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def hash_of(event: Mapping[str, Any]) -> str:
    """The hash of an event, from its plain values (`schema.Event.to_json`)."""
    return sha256_of(canonical({name: event[name] for name in HASHED}))


@dataclass(frozen=True)
class Pin:
    """The head of a chain at some time."""

    ledger: str
    number: int
    hash: str

    def __str__(self) -> str:
        return f"fedforget-pin-1 {self.ledger} {self.number} {self.hash}"

    @classmethod
    def read(cls, text: str) -> Pin:
        """From the line that `str` gives, wherever it stands in `text`."""
        found = re.search(r"\bfedforget-pin-1 ([0-9a-f]{32}) ([0-9]{1,18}) ([0-9a-f]{64})\b", text)
        if found is None:
            raise InputError("This is no pin: it must hold a line such as 'fedforget-pin-1 LEDGER NUMBER HASH'.")
        return cls(found[1], int(found[2]), found[3])


@dataclass(frozen=True)
class ChainCheck:
    """What a check of the chain found; no problem means that it is intact."""

    events: int
    head: str
    problems: tuple[str, ...] = ()

    @property
    def intact(self) -> bool:
        return not self.problems


def check_events(
    events: Iterable[Mapping[str, Any]], head: Pin, pins: Iterable[Pin] = (), most: int = 20
) -> ChainCheck:
    """Check all `events`, oldest first, with their raw `body` text, against the head and what was pinned."""
    problems: list[str] = []
    wanted = {pin.number: pin for pin in pins}
    for pin in wanted.values():
        if pin.ledger != head.ledger:
            problems.append(f"The pin is of the ledger {pin.ledger}, but this is {head.ledger}.")
        elif pin.number > head.number:
            problems.append(f"The pin knows event {pin.number}, but the ledger ends at {head.number}.")
    expected, previous = 1, BEGINNING
    for event in events:
        number = event["number"]
        if number != expected:
            problems.append(f"Event {expected} is missing; the next one is {number}.")
        elif event["previous"] != previous:
            problems.append(f"Event {number} does not follow from the one before it.")
        if not _is_genuine(event):
            problems.append(f"Event {number} was changed: its hash is not that of what it holds.")
        pin_here = wanted.get(number)
        if pin_here is not None and pin_here.hash != event["hash"]:
            problems.append(f"Event {number} is not the one that was pinned: the chain was written anew.")
        expected, previous = number + 1, event["hash"]
        if len(problems) >= most:
            return ChainCheck(number, previous, (*problems, "There may be more."))
    if (head.number, head.hash) != (expected - 1, previous):
        problems.append(
            f"The ledger says that event {head.number} is its last, but event {expected - 1} is, or it was changed."
        )
    return ChainCheck(expected - 1, previous, tuple(problems))


def _is_genuine(event: Mapping[str, Any]) -> bool:
    try:
        body = json.loads(event["body"])
        return canonical(body) == event["body"] and hash_of({**event, "body": body}) == event["hash"]
    except (ValueError, TypeError, RecursionError):
        return False
