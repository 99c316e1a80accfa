"""The certificate: what was asked, what was done and what was measured, signed. It says no more than that.

    schema, statement, fedforget, ledger, issued
    request        id, federation, subject, target, legal ground, received, due
    before, after  the model versions: number and SHA-256 of the weights
    method         name, preset and settings; where the ladder was climbed, each rung that was tried: what it was
                   forecast to cost (as a part of Retrain), what it cost, the digest of its weights, and what the check
                   measured and said
    evidence       SHA-256 of the evidence file, and its level
    measured       the verdict as the evidence has it (`exact` says how the model was made, and needs no measure),
                   retained accuracy before and after; of a feature request, how sensitive the model is to the feature,
                   was before, and is expected to be if it never saw it; the evidence's notes, such as that a feature
                   had no samples left and only another could be measured
    decision       who published it although the gate said no, and why; null: nobody had to
    trail          the request's own events, each with its hash and the hash of the one before it in the ledger
    key, signature Ed25519 over the text of all the rest, as it stands in the file

Checked offline with the public key alone: the signature, the hash of each event, and that the events tell the same."""

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
from fedforget.errors import InputError
from fedforget.ledger.chain import BEGINNING, HASHED, hash_of
from fedforget.ledger.clock import from_text, to_text
from fedforget.ledger.keys import key_id, read_public
from fedforget.ledger.results import CheckedResult
from fedforget.ledger.schema import Request, Version
from fedforget.ledger.states import RequestState

SCHEMA = "fedforget/certificate/1"
STATEMENT = (
    "This records what was asked, what was done and what was measured, as the ledger has it. The verdict is the "
    "audit's and holds within what the audit can see, save 'exact', which follows from how the model was made; it is "
    "no proof that nothing of the target is left."
)
SHAPE: dict[str, type | tuple[type, ...]] = {
    "schema": str, "statement": str, "fedforget": str, "ledger": str, "issued": str, "request": dict, "before": dict,
    "after": dict, "method": dict, "evidence": dict, "measured": dict, "decision": (dict, type(None)), "trail": list,
    "key": str, "signature": str,
}  # fmt: skip
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
    """The text of a signed certificate."""
    asked = request.to_json()
    accuracy = {"accuracy_before": after.accuracy_before, "accuracy_after": after.accuracy_after}
    method = {"name": after.method, "preset": after.preset, "settings": after.settings}
    content = {
        "schema": SCHEMA,
        "statement": STATEMENT,
        "fedforget": code_version(),
        "ledger": ledger,
        "issued": to_text(issued),
        "request": {name: asked[name] for name in ASKED},
        "before": {"version": before.number, "sha256": before.sha256},
        "after": {"version": after.number, "sha256": after.sha256},
        "method": {**method, "rungs": list(result.rungs)} if result.rungs else method,
        "evidence": {"sha256": after.evidence, "level": result.level},
        "measured": {"verdict": result.verdict, **accuracy},
        "decision": None if decision is None else dict(decision),
        "trail": [dict(event) for event in trail],
        "key": key_id(private.public_key()),
    }
    signature = private.sign(render(content).encode()).hex()
    return render({**content, "signature": signature})


def render(record: Mapping[str, Any]) -> str:
    """There is one way only to write a record, so a changed byte cannot hide."""
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def verify_certificate(data: bytes, keys: Iterable[Ed25519PublicKey], where: str = "The certificate") -> dict[str, Any]:
    """The content of a certificate that one of `keys` signed; anything else is refused with one sentence."""
    try:
        text = data.decode("ascii")
        record = json.loads(text)
        if not isinstance(record, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise InputError(f"{where} is no certificate, or it was changed: it is not readable JSON.") from None
    if record.get("schema") != SCHEMA:
        raise InputError(
            f"{where} has the schema {record.get('schema')!r:.80}, but this fedforget reads {SCHEMA}; check it with "
            "the fedforget that wrote it."
        )
    try:
        whole = record.keys() == SHAPE.keys() and all(isinstance(record[name], kind) for name, kind in SHAPE.items())
        if not whole or render(record) != text or re.fullmatch(r"[0-9a-f]{128}", record["signature"]) is None:
            raise InputError(f"{where} was changed after it was written.")
        key = next((key for key in keys if key_id(key) == record["key"]), None)
        if key is None:
            raise InputError(f"{where} was signed with the key {record['key']!r:.40}, which is none of yours.")
        content = {name: value for name, value in record.items() if name != "signature"}
        try:
            key.verify(bytes.fromhex(record["signature"]), render(content).encode())
        except InvalidSignature:
            raise InputError(f"{where} was changed after it was signed, or another key signed it.") from None
        problem = _problem_of_trail(record)
    except SENSELESS:
        raise InputError(f"{where} is no certificate, or it was changed: what it holds makes no sense.") from None
    if problem is not None:
        raise InputError(f"{where} does not fit together: {problem}")
    return record


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
