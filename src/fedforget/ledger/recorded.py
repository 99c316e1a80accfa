"""Who may come in, and how requests are served: accounts, tokens, federations and console.toml, held against events.

Whoever adds or changes an account, a token or a federation writes the SHA-256 of each of its columns into the event, as
`row`. So what differs later has a name, and nothing of a password or of an identity is in the trail. Events from before
there was a `row` say some columns in the clear. The rest was recorded as it was found, by the migration 0004, which can
contradict no earlier event."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, column, insert, select, table, update

from fedforget.errors import InputError
from fedforget.ledger.chain import HASHED, canonical, hash_of, sha256_of
from fedforget.ledger.clock import to_text, utc_now

COLUMNS: dict[str, tuple[str, ...]] = {
    "account": ("role", "password", "identity", "made", "disabled"),
    "token": ("hash", "account", "label", "made", "expires", "revoked"),
    "federation": (
        "kind", "place", "method", "preset", "settings", "audit_level", "accuracy_limit", "keep_days", "together",
        "allowance", "four_eyes", "description", "registered",
    ),
    "webhook": ("url", "secret", "made", "disabled"),
}  # fmt: skip
"""What is held against events. A federation's lease comes and goes, and so does how far a webhook's deliveries are."""
EVENTS = table("events", *map(column, (*HASHED, "hash")))
HEAD = table("head", column("number"), column("hash"))
KEYS = {"account": "name", "token": "id", "federation": "name", "webhook": "name"}
KINDS = (
    "account added", "account changed", "account found", "token made", "token revoked", "token found",
    "federation registered", "federation changed", "federation found", "webhook added", "webhook changed",
)  # fmt: skip
"""The first word says what it is about, and where the body has its name."""
SETTINGS_FILE = "console.toml"
SETTINGS_NOTED = "console settings"
Row = dict[str, str]
Said = Iterable[tuple[str | None, str, dict[str, Any]]]


def recorded(what: str, row: object) -> dict[str, Row]:
    """What an event says of a row as it is now."""
    return {"row": {name: digest(getattr(row, name)) for name in COLUMNS[what]}}


def digest(value: Any) -> str:
    """Of one column, the same for its value and for what lies in the table.

    >>> digest({"epochs": 1}) == digest('{"epochs":1}'), digest(5) == digest(5.0), digest(None) == digest("")
    (True, True, False)
    """
    if isinstance(value, datetime):
        value = to_text(value)
    elif isinstance(value, Mapping):
        value = canonical(value)
    elif isinstance(value, int | float):
        value = float(value)
    return sha256_of(canonical(value))


def rows_now(connection: Connection, what: str, columns: Iterable[str]) -> Iterator[tuple[str, Row]]:
    """(name, digests) of every row, as it lies in the table."""
    key, names = KEYS[what], list(columns)
    found = table(f"{what}s", column(key), *(column(name) for name in names if name != key))
    for row in connection.execute(select(found).order_by(found.c[key])).mappings():
        yield str(row[key]), {name: digest(row[name]) for name in names}


def append_by_system(connection: Connection, kind: str, body: Mapping[str, Any]) -> None:
    """One more event, for a migration: there are no rules then, so it moves the head itself."""
    number, previous = connection.execute(select(HEAD)).one()
    event: dict[str, Any] = {
        "number": number + 1, "at": to_text(utc_now()), "actor": "system", "kind": kind, "request": None,
        "body": dict(body), "previous": previous,
    }  # fmt: skip
    event["hash"] = hash_of(event)
    connection.execute(insert(EVENTS).values({**event, "body": canonical(event["body"])}))
    connection.execute(update(HEAD).values(number=event["number"], hash=event["hash"]))


def problems_of_rows(connection: Connection, events: Said) -> Iterator[str]:
    """What differs from the `events` of these `KINDS`, oldest first."""
    said: dict[tuple[str, str], Row] = {}
    for _, kind, body in events:
        what, how = kind.split()
        # An older event says columns in the clear. None is true or false: such a value only says that it was set.
        clear = [column for column in COLUMNS[what] if column in body and not isinstance(body[column], bool)]
        name, row = body[what], body.get("row") or {column: digest(body[column]) for column in clear}
        before = said.setdefault((what, name), {})
        if how == "found":
            if not before:
                yield f"The {what} '{name}' was found, but no event added it."
            for column in _differing(before, row):
                yield f"The {what} '{name}' was found with another {column} than its events said."
        before.update(row)
    for what in COLUMNS:
        for name, row in rows_now(connection, what, COLUMNS[what]):
            events_say = said.pop((what, name), None)
            if events_say is None:
                yield f"The {what} '{name}' is there, but no event added it."
            for column in _differing(events_say or {}, row):
                yield f"The {what} '{name}' has another {column} than its events say."
    for what, name in said:
        yield f"The {what} '{name}' has events, but is not there."


def _differing(said: Mapping[str, str], row: Mapping[str, str]) -> list[str]:
    return [name for name, value in row.items() if said.get(name, value) != value]


def load_settings(home: Path) -> dict[str, Any] | None:
    """What console.toml holds; None where there is no such file."""
    path = home / SETTINGS_FILE
    try:
        return tomllib.loads(path.read_text()) if path.exists() else None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}.") from None


def read_settings(home: Path) -> dict[str, Any] | None:
    """Every setting in console.toml, by its path."""
    found = load_settings(home)
    return None if found is None else dict(_flat("", found))


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", json.loads(json.dumps(value, default=str))


def problems_of_settings(home: Path, then: Mapping[str, Any] | None) -> Iterator[str]:
    """What console.toml says now, and did not say when it was last noted."""
    try:
        now = read_settings(home)
    except InputError as error:
        yield str(error)
        return
    if then == now:
        return
    if then is None:
        yield f"{SETTINGS_FILE} is there, but no event speaks of it; a console notes it when it begins."
    elif now is None:
        yield f"{SETTINGS_FILE} was noted, but is not there."
    else:
        for name in sorted(then.keys() | now.keys()):
            if name not in now or name not in then or now[name] != then[name]:
                yield f"{SETTINGS_FILE} has another {name} than its last event says."
