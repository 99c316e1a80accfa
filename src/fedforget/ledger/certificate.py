"""The certificate: what was asked, what was done and what was measured, signed. It says no more than that.

A signed statement (`statements`) about two models, the one before and the one after. Its predicate, of which
`certificate-2.schema.json` is the JSON schema and docs/certificate.md the explanation:

    statement, fedforget, ledger, issued
    request        id, federation, subject, target, legal ground, received, due
    before, after  the model versions: number and SHA-256 of the weights, as in the subjects
    method         name, preset and settings; where the ladder was climbed, each rung that was tried: what it was
                   forecast to cost (as a part of Retrain), what it cost, the digest of its weights, and what the check
                   measured and said
    thresholds     what the check and the audit hold their measures against, as it was written down before the first
                   rung; null: a fedforget served it that did not write them down
    evidence       SHA-256 of the evidence file, and its level
    measured       the verdict as the evidence has it (`exact` says how the model was made, and needs no measure); for
                   how many rounds of further training the audit looked ahead; retained accuracy before and after; of a
                   feature request, how sensitive the model is to the feature, was before, and is expected to be if it
                   never saw it; the evidence's notes, such as that a feature had no samples left and only another could
                   be measured
    decision       who published it although the gate said no, and why; null: nobody had to
    trail          the request's own events, each with its hash and the hash of the one before it in the ledger; what an
                   event says is the very text that was hashed

Checked offline with the public key alone: the signature, the hash of each event, and that the events tell the same.
Older certificates have the schema 1: one JSON object with `key` and `signature` in it. They are read as ever."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedforget.audit.evidence import SENSELESS, code_version
from fedforget.audit.thresholds import held_against
from fedforget.errors import InputError
from fedforget.ledger.chain import BEGINNING, HASHED, canonical, hash_of
from fedforget.ledger.clock import from_text, to_text
from fedforget.ledger.keys import key_id, read_public
from fedforget.ledger.results import CheckedResult
from fedforget.ledger.schema import Request, Version
from fedforget.ledger.statements import (
    CERTIFICATE,
    Statement,
    envelope_text,
    is_envelope,
    open_statement,
    read_statement,
    sign,
)
from fedforget.ledger.states import RequestState

OLD_SCHEMA = "fedforget/certificate/1"
STATEMENT = (
    "This records what was asked, what was done and what was measured, as the ledger has it. The verdict is the "
    "audit's and holds within what the audit can see, save 'exact', which follows from how the model was made; it is "
    "no proof that nothing of the target is left."
)
SHAPE: dict[str, type | tuple[type, ...]] = {
    "statement": str, "fedforget": str, "ledger": str, "issued": str, "request": dict, "before": dict, "after": dict,
    "method": dict, "evidence": dict, "measured": dict, "decision": (dict, type(None)), "trail": list,
}  # fmt: skip
NEW_SHAPE = {**SHAPE, "thresholds": (dict, type(None))}
OLD_SHAPE = {**SHAPE, "schema": str, "key": str, "signature": str}
ASKED = ("id", "federation", "subject", "client", "target", "describes", "ground", "received", "due")
"""What it says of the request."""


def make_certificate(
    private: Ed25519PrivateKey,
    *,
    ledger: str,
    issued: datetime,
    request: Request,
    before: Version,
    after: Version,
    result: CheckedResult,
    decision: Mapping[str, Any] | None,
    trail: Iterable[Mapping[str, Any]],
) -> str:
    """The text of a signed certificate. Nothing is signed that would not verify."""
    asked, told = request.to_json(), list(trail)
    accuracy = {"accuracy_before": after.accuracy_before, "accuracy_after": after.accuracy_after}
    method = {"name": after.method, "preset": after.preset, "settings": after.settings}
    content = {
        "statement": STATEMENT,
        "fedforget": code_version(),
        "ledger": ledger,
        "issued": to_text(issued),
        "request": {name: asked[name] for name in ASKED},
        "before": {"version": before.number, "sha256": before.sha256},
        "after": {"version": after.number, "sha256": after.sha256},
        "method": {**method, "rungs": list(result.rungs)} if result.rungs else method,
        "thresholds": thresholds_of(told),
        "evidence": {"sha256": after.evidence, "level": result.level},
        "measured": {"verdict": result.verdict, **accuracy},
        "decision": None if decision is None else dict(decision),
        # RFC 8785 writes 90.0 as 90, and the hash is over 90.0.
        "trail": [{**event, "body": canonical(event["body"])} for event in told],
    }
    text = sign(private, CERTIFICATE, _subject(content), content)
    verify_certificate(text.encode(), [private.public_key()])
    return text


def _subject(content: Mapping[str, Any]) -> dict[str, str]:
    """The two models by their names."""
    name, versions = content["request"]["federation"], (content["before"], content["after"])
    return {f"{name}/{version['version']}": version["sha256"] for version in versions}


def thresholds_of(trail: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What a request's events say of its thresholds: those of the claim that served it."""
    claims = [event["body"] for event in trail if event["kind"] == RequestState.FORGETTING]
    return claims[-1].get("thresholds") if claims else None


def render(record: Mapping[str, Any]) -> str:
    """The one text of a certificate's JSON, so a changed byte cannot hide."""
    if "payload" in record:
        return envelope_text(record)
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def read_certificate(text: str) -> dict[str, Any]:
    """What a certificate of this ledger says, whatever its age. Nothing is checked: that is `verify_certificate`."""
    if not is_envelope(text.encode()):
        return json.loads(text)
    return _content(read_statement(text.encode(), "The certificate")[0])


def _content(found: Statement) -> dict[str, Any]:
    trail = [{**event, "body": json.loads(event["body"])} for event in found.predicate["trail"]]
    return {**found.predicate, "trail": trail, "schema": found.kind, "key": found.key}


def verify_certificate(data: bytes, keys: Iterable[Ed25519PublicKey], where: str = "The certificate") -> dict[str, Any]:
    """The content of a certificate that one of `keys` signed; anything else is refused with one sentence."""
    try:
        record = _new(data, keys, where) if is_envelope(data) else _old(data, keys, where)
        problem = _problem_of_trail(record) or _problem_of_rungs(record)
    except SENSELESS:
        raise InputError(f"{where} is no certificate, or it was changed: what it holds makes no sense.") from None
    if problem is not None:
        raise InputError(f"{where} does not fit together: {problem}")
    return record


def _new(data: bytes, keys: Iterable[Ed25519PublicKey], where: str) -> dict[str, Any]:
    found = open_statement(data, keys, CERTIFICATE, where)
    record = _content(found)
    if not _has(found.predicate, NEW_SHAPE) or found.digests != _subject(record):
        raise InputError(f"{where} does not fit together: it is about other models than its subjects.")
    return record


def _old(data: bytes, keys: Iterable[Ed25519PublicKey], where: str) -> dict[str, Any]:
    """As it was before it was a signed statement."""
    try:
        text = data.decode("ascii")
        record = json.loads(text)
        if not isinstance(record, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise InputError(f"{where} is no certificate, or it was changed: it is not readable JSON.") from None
    if record.get("schema") != OLD_SCHEMA:
        raise InputError(
            f"{where} has the schema {record.get('schema')!r:.80}, but this fedforget reads {OLD_SCHEMA} and "
            f"{CERTIFICATE}; check it with the fedforget that wrote it."
        )
    if not _has(record, OLD_SHAPE) or render(record) != text or not re.fullmatch(r"[0-9a-f]{128}", record["signature"]):
        raise InputError(f"{where} was changed after it was written.")
    key = next((key for key in keys if key_id(key) == record["key"]), None)
    if key is None:
        raise InputError(f"{where} was signed with the key {record['key']!r:.40}, which is none of yours.")
    content = {name: value for name, value in record.items() if name != "signature"}
    try:
        key.verify(bytes.fromhex(record["signature"]), render(content).encode())
    except InvalidSignature:
        raise InputError(f"{where} was changed after it was signed, or another key signed it.") from None
    return record


def _has(record: Mapping[str, Any], shape: Mapping[str, Any]) -> bool:
    return record.keys() == shape.keys() and all(isinstance(record[name], kind) for name, kind in shape.items())


def _problem_of_trail(record: Mapping[str, Any]) -> str | None:
    """Every event is as it was hashed, they follow each other, and they tell what the certificate says."""
    trail, request = record["trail"], record["request"]
    before: Mapping[str, Any] = {"number": 0, "hash": BEGINNING}
    for event in trail:
        if event.keys() != {*HASHED, "hash"} or hash_of(event) != event["hash"]:
            return "an event in its trail was changed."
        if event["request"] != request["id"] or event["number"] <= before["number"]:
            return "an event in its trail is another request's, or out of order."
        if event["number"] == before["number"] + 1 and event["previous"] != before["hash"]:
            return "two events in its trail do not follow each other."
        before = event
    if not trail:
        return "it has no trail."
    first, last = trail[0], trail[-1]
    said = {**first["body"], "received": first["at"]}
    asked = {name: request[name] for name in ("federation", "subject", "client", "target", "ground")}
    if first["kind"] != RequestState.RECEIVED or any(said[name] != value for name, value in asked.items()):
        return "its trail does not begin with this request."
    served = {
        "version": record["after"]["version"],
        "sha256": record["after"]["sha256"],
        "parent": record["before"]["version"],
        "parent_sha256": record["before"]["sha256"],
        "evidence": record["evidence"]["sha256"],
        "verdict": record["measured"]["verdict"]["word"],
    }
    told = [event["body"] for event in trail if event["kind"] == "rung"]
    if any({"version": record["before"]["version"], **rung} not in told for rung in record["method"].get("rungs", ())):
        return "its trail tells of other rungs of the ladder."
    if last["kind"] != RequestState.DONE or any(last["body"][name] != value for name, value in served.items()):
        return "its trail does not end with this result."
    from_text(record["issued"])
    return None


def _problem_of_rungs(record: Mapping[str, Any]) -> str | None:
    """No rung was tried before its thresholds were written down, and none was held against others."""
    if record.get("thresholds") != thresholds_of(record["trail"]):
        return "its trail has other thresholds."
    written = None
    tried = record["method"].get("rungs", ()) if record.get("thresholds") else ()
    before = {"version": record["before"]["version"]}
    for event in record["trail"]:
        if event["kind"] == RequestState.FORGETTING:
            written = event["body"].get("thresholds")
        told = event["kind"] == "rung" and event["body"] in [{**before, **rung} for rung in tried]
        if told and (written is None or written["check"] != record["thresholds"]["check"]):
            return "a rung was tried before its thresholds were written down."
    if any(not held_against(rung, record["thresholds"]) for rung in tried):
        return "a rung was held against other thresholds than those written down before it."
    return None


def read_keys(paths: Iterable[Path]) -> list[Ed25519PublicKey]:
    """Public keys from files; a folder gives all of its own."""
    found = []
    for path in paths:
        files = sorted(path.glob("*.public.pem")) if path.is_dir() else [path]
        for file in files:
            try:
                found.append(read_public(file.read_text(errors="replace"), str(file)))
            except OSError as error:
                raise InputError(f"The key {file} cannot be read: {error.strerror}.") from None
    return found
