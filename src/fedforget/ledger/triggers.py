"""The rules inside the database: whoever writes to it, by whatever program, cannot break them without a trace.

Each rule says when a change of a row is refused, in SQL that both databases read, as a trigger of its own. They are not
part of the migrations: `book.migrate` takes all of them away and makes today's, so they are never half old."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, text

from fedforget.ledger.chain import BEGINNING
from fedforget.ledger.states import TRANSITIONS, VERSION_TRANSITIONS

Change = Literal["INSERT", "UPDATE", "DELETE"]


@dataclass(frozen=True)
class Rule:
    """`when` is what must not be true of OLD and NEW; None: the change is never allowed."""

    name: str
    table: str
    change: Change
    when: str | None
    message: str


def _illegal(transitions: Mapping[Any, frozenset[Any]]) -> str:
    """SQL for: the state becomes one that may not follow."""
    legal = [
        f"(OLD.state = '{old}' AND NEW.state IN ({', '.join(repr(str(state)) for state in sorted(new))}))"
        for old, new in transitions.items()
        if new
    ]
    return f"NEW.state <> OLD.state AND NOT ({' OR '.join(legal)})"


def _changed(*columns: str) -> str:
    """SQL for: one of these columns gets another value, or one where there was none."""
    same = [f"(NEW.{c} = OLD.{c} OR (NEW.{c} IS NULL AND OLD.{c} IS NULL))" for c in columns]
    return f"({' AND '.join(same)}) IS NOT TRUE"


def _set_again(column: str) -> str:
    return f"OLD.{column} IS NOT NULL AND {_changed(column)}"


RULES: tuple[Rule, ...] = (
    Rule("request_begins", "requests", "INSERT",
         "NEW.state <> 'received' OR NEW.version IS NOT NULL OR NEW.extended <> 0", "a request begins as received"),
    Rule("request_moves", "requests", "UPDATE", _illegal(TRANSITIONS),
         "a request cannot go from this state to that one"),
    Rule("request_stays", "requests", "UPDATE",
         _changed("id", "fingerprint", "federation", "asked_by", "subject", "client", "target", "ground", "received",
                  "channel", "words"),
         "what was asked cannot be changed"),
    Rule("request_due", "requests", "UPDATE",
         f"NEW.extended < OLD.extended OR NEW.due < OLD.due OR (NEW.extended = OLD.extended AND {_changed('due')})",
         "a deadline moves by an extension only, and never back"),
    Rule("request_served", "requests", "UPDATE", f"NEW.state = OLD.state AND {_changed('version')}",
         "the version that served a request is set when it is done"),
    Rule("request_effort", "requests", "UPDATE",
         f"{_changed('effort', 'at_most', 'method', 'accuracy_limit', 'keep_days')}"
         " AND OLD.state IN ('forgetting', 'auditing', 'done', 'refused')",
         "how a request is served cannot be changed while a worker has it, nor after it ended"),
    Rule("request_kept", "requests", "DELETE", None, "a request is never deleted"),
    Rule("version_begins", "versions", "INSERT",
         "NEW.state <> 'current' OR NEW.number <> 1 + coalesce((SELECT max(number) FROM versions"
         " WHERE federation = NEW.federation), 0) OR coalesce(NEW.parent, 0) <> NEW.number - 1",
         "a version begins as the current one and follows the last"),
    Rule("version_moves", "versions", "UPDATE", _illegal(VERSION_TRANSITIONS),
         "a version cannot go from this state to that one"),
    Rule("version_stays", "versions", "UPDATE",
         _changed("federation", "number", "sha256", "parent", "kind", "published", "restores", "method", "preset",
                  "settings", "verdict", "accuracy_before", "accuracy_after", "cost", "evidence", "report"),
         "a version cannot be changed"),
    Rule("version_kept", "versions", "DELETE", None, "a version is never deleted"),
    Rule("event_follows", "events", "INSERT",
         "NOT EXISTS (SELECT 1 FROM head WHERE head.number = NEW.number - 1 AND head.hash = NEW.previous)",
         "an event follows the head of the chain"),
    Rule("event_stays", "events", "UPDATE", None, "an event is never changed"),
    Rule("event_kept", "events", "DELETE", None, "an event is never deleted"),
    Rule("head_begins", "head", "INSERT",
         f"NEW.number <> 0 OR NEW.hash <> '{BEGINNING}'", "the chain begins at its beginning"),
    Rule("head_moves", "head", "UPDATE",
         f"NEW.number <> OLD.number + 1 OR {_changed('id', 'ledger')}"
         " OR NOT EXISTS (SELECT 1 FROM events WHERE events.number = NEW.number AND events.hash = NEW.hash)",
         "the head is the newest event"),
    Rule("head_kept", "head", "DELETE", None, "the head is never deleted"),
    Rule("document_stays", "documents", "UPDATE", None, "a document is never changed"),
    Rule("document_kept", "documents", "DELETE", None, "a document is never deleted"),
    Rule("certificate_stays", "certificates", "UPDATE",
         f"{_changed('sha256', 'request', 'federation', 'version', 'key', 'made', 'content')}"
         f" OR ({_set_again('withdrawn')})", "a certificate can only be withdrawn, once"),
    Rule("certificate_kept", "certificates", "DELETE", None, "a certificate is never deleted"),
    Rule("key_stays", "keys", "UPDATE", f"{_changed('id', 'public', 'made')} OR ({_set_again('retired')})",
         "a key can only be retired, once"),
    Rule("key_kept", "keys", "DELETE", None, "a key is never deleted"),
    Rule("remains_stay", "remains", "UPDATE",
         f"{_changed('federation', 'version', 'path', 'kind', 'sha256')} OR ({_set_again('destroyed')})",
         "what remains of a version can only be destroyed, once"),
    Rule("remains_kept", "remains", "DELETE", None, "what remains of a version is never forgotten"),
    Rule("federation_kept", "federations", "DELETE", None, "a federation is never deleted"),
    Rule("webhook_kept", "webhooks", "DELETE", None, "a webhook is disabled, never deleted"),
    Rule("account_kept", "accounts", "DELETE", None, "an account is disabled, never deleted"),
)  # fmt: skip
KEPT = tuple(rule.table for rule in RULES if rule.change == "DELETE")
PREFIX = "rule_"


def _triggers(sqlite: bool) -> dict[str, tuple[str, str]]:
    """(when it fires, what it does) of every trigger, by name."""
    found = {rule.name: (f"BEFORE {rule.change} ON {rule.table}", _refusal(rule, sqlite)) for rule in RULES}
    # An event that is in the chain is its head: not for the program to remember.
    move = "UPDATE head SET number = NEW.number, hash = NEW.hash WHERE id = 1;"
    found["event_is_head"] = ("AFTER INSERT ON events", move if sqlite else f"{move} RETURN NEW;")
    if not sqlite:
        never = _raise("a table of the ledger is never emptied")
        found |= {f"{table}_truncated": (f"BEFORE TRUNCATE ON {table}", never) for table in KEPT}
    return {f"{PREFIX}{name}": trigger for name, trigger in found.items()}


def _refusal(rule: Rule, sqlite: bool) -> str:
    """SQL that ends a change which is against the rule."""
    if sqlite:
        where = "" if rule.when is None else f" WHERE {rule.when}"
        return f"SELECT RAISE(ABORT, 'refused by the ledger: {rule.message}'){where};"
    end = _raise(rule.message)
    return end if rule.when is None else f"IF {rule.when} THEN {end} END IF; RETURN NEW;"


def _raise(message: str) -> str:
    """With the code of a broken constraint, so that both databases' drivers raise the same error."""
    return f"RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'refused by the ledger: {message}';"


def expected(dialect: str) -> dict[str, str]:
    """The text of every trigger, by name, as `installed` gives it."""
    if dialect == "sqlite":
        return {name: f"CREATE TRIGGER {name} {when} BEGIN {do} END" for name, (when, do) in _triggers(True).items()}
    return {name: f"BEGIN {do} END" for name, (_, do) in _triggers(False).items()}


def installed(connection: Connection) -> dict[str, str]:
    """The triggers that are there and switched on."""
    if connection.dialect.name == "sqlite":
        query = f"SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE '{PREFIX}%'"
    else:
        query = (
            "SELECT t.tgname, p.prosrc FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid"
            " JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
            f" WHERE n.nspname = current_schema() AND t.tgname LIKE '{PREFIX}%' AND t.tgenabled = 'O'"
        )
    return {str(name): str(sql) for name, sql in connection.execute(text(query))}


def missing(connection: Connection) -> list[str]:
    """The rules that somebody took away or changed."""
    found = installed(connection)
    return sorted(name for name, sql in expected(connection.dialect.name).items() if found.get(name) != sql)


def drop(connection: Connection) -> None:
    """Take all rules away, where there are any."""
    if connection.dialect.name == "sqlite":
        for name in installed(connection):
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        return
    functions = (
        "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
        f" WHERE n.nspname = current_schema() AND p.proname LIKE '{PREFIX}%'"
    )
    for name in connection.execute(text(functions)).scalars().all():
        connection.exec_driver_sql(f"DROP FUNCTION {name}() CASCADE")


def create(connection: Connection) -> None:
    """Make today's rules; there are none."""
    bodies = expected(connection.dialect.name)
    if connection.dialect.name == "sqlite":
        for statement in bodies.values():
            connection.exec_driver_sql(statement)
        return
    for name, (when, _) in _triggers(False).items():
        each = "STATEMENT" if "TRUNCATE" in when else "ROW"
        function = f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $rule${bodies[name]}$rule$"
        connection.exec_driver_sql(function)
        connection.exec_driver_sql(f"CREATE TRIGGER {name} {when} FOR EACH {each} EXECUTE FUNCTION {name}()")
