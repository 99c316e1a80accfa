"""Signed statements: an in-toto Statement v1, as RFC 8785 writes JSON, in a DSSE envelope. Anybody's tools read them.

    envelope    payloadType, payload (the statement's bytes, in base64), signatures: one, with its keyid
    statement   _type, subject (names and SHA-256 of what it is about), predicateType, predicate
    signature   Ed25519 over PAE = "DSSEv1" SP len(type) SP type SP len(payload) SP payload

The predicates are a certificate, a list of withdrawals, and a receipt of what became of old models: see
docs/certificate.md. There is one way only to write each byte of the file, so a changed one cannot hide, in the envelope
either."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedforget.audit.evidence import SENSELESS
from fedforget.errors import InputError
from fedforget.ledger.keys import key_id

STATEMENT = "https://in-toto.io/Statement/v1"
PAYLOAD = "application/vnd.in-toto+json"
CERTIFICATE = "urn:fedforget:certificate:2"
WITHDRAWALS = "urn:fedforget:withdrawals:1"
LINEAGE = "urn:fedforget:lineage:1"
"""Predicate types. A name, not an address: nobody else has to stay online for a paper to be read."""
EXACT_INTEGERS = 2**53


@dataclass(frozen=True)
class Statement:
    """What somebody signed."""

    kind: str
    """The predicate type."""
    subject: Sequence[Mapping[str, Any]]
    predicate: dict[str, Any]
    key: str
    """The id of the key that signed it."""

    @property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of each subject, by its name."""
        return {item["name"]: item["digest"]["sha256"] for item in self.subject}


def sign(private: Ed25519PrivateKey, kind: str, subject: Mapping[str, str], predicate: Mapping[str, Any]) -> str:
    """The text of a signed statement about `subject`: SHA-256 by name."""
    about = [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in subject.items()]
    statement = {"_type": STATEMENT, "subject": about, "predicateType": kind, "predicate": dict(predicate)}
    payload = canonical_bytes(statement)
    signature = private.sign(pae(PAYLOAD, payload))
    return envelope_text(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": PAYLOAD,
            "signatures": [{"keyid": key_id(private.public_key()), "sig": base64.b64encode(signature).decode()}],
        }
    )


def pae(kind: str, payload: bytes) -> bytes:
    """What is signed (DSSE's pre-authentication encoding).

    >>> pae("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    return b"DSSEv1 %d %b %d %b" % (len(kind.encode()), kind.encode(), len(payload), payload)


def canonical_bytes(values: Any) -> bytes:
    """The one text of some plain values by RFC 8785.

    >>> canonical_bytes({"b": 90.0, "a": "ü"}).decode()
    '{"a":"ü","b":90}'
    """
    try:
        return rfc8785.dumps(values)
    except (rfc8785.CanonicalizationError, UnicodeError) as error:
        raise InputError(f"This cannot be written in the one way that is signed: {error}.") from None


def envelope_text(envelope: Mapping[str, Any]) -> str:
    return canonical_bytes(envelope).decode() + "\n"


def is_envelope(data: bytes) -> bool:
    """Whether something wants to be one, right or wrong."""
    return re.match(rb'\s*\{\s*"payload(Type)?"\s*:', data[:200]) is not None


def read_statement(data: bytes, where: str) -> tuple[Statement, bytes, bytes]:
    """(what it says, what was signed, the signature) of an envelope that is written as we write it; nothing is said of
    who wrote it."""
    envelope = _json(data, f"{where} is no certificate, or it was changed: it is not readable JSON.")
    try:
        if canonical_bytes(envelope) + b"\n" != data or envelope.keys() != {"payload", "payloadType", "signatures"}:
            raise _changed(where)
        (given,) = envelope["signatures"]
        if given.keys() != {"keyid", "sig"}:
            raise _changed(where)
        payload, signature = _base64(envelope["payload"], where), _base64(given["sig"], where)
        if envelope["payloadType"] != PAYLOAD:
            raise _changed(where)
        values = _json(payload, f"{where} was changed: what it holds is not readable JSON.")
        if canonical_bytes(values) != payload or values["_type"] != STATEMENT or values.keys() != KEYS:
            raise _changed(where)
        found = Statement(values["predicateType"], values["subject"], values["predicate"], given["keyid"])
        if len(found.digests) != len(found.subject) or not isinstance(found.predicate, dict):
            raise ValueError
        return found, pae(PAYLOAD, payload), signature
    except SENSELESS:
        raise InputError(f"{where} is no certificate, or it was changed: what it holds makes no sense.") from None


KEYS = {"_type", "subject", "predicateType", "predicate"}


def open_statement(
    data: bytes, keys: Iterable[Ed25519PublicKey], kind: str, where: str, what: str = "certificate"
) -> Statement:
    """A statement of this kind that one of `keys` signed; anything else is refused with one sentence."""
    found, signed, signature = read_statement(data, where)
    key = next((key for key in keys if key_id(key) == found.key), None)
    if key is None:
        raise InputError(f"{where} was signed with the key {found.key!r:.40}, which is none of yours.")
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        raise InputError(f"{where} was changed after it was signed, or another key signed it.") from None
    if found.kind != kind:
        raise InputError(
            f"{where} has the schema {found.kind!r:.80}, but a {what} has {kind}; if it is one, check it with the "
            "fedforget that wrote it."
        )
    return found


def _json(data: bytes, complaint: str) -> dict[str, Any]:
    try:
        values = json.loads(data.decode(), parse_int=_number)
        if not isinstance(values, dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise InputError(complaint) from None
    return values


def _number(text: str) -> int | float:
    """RFC 8785 writes 1e20 as digits; beyond 2^53 a number is no integer any more."""
    number = int(text)
    return number if abs(number) < EXACT_INTEGERS else float(number)


def _base64(text: str, where: str) -> bytes:
    data = base64.b64decode(text, validate=True)
    if base64.b64encode(data).decode() != text:  # its last letter has bits that say nothing
        raise _changed(where)
    return data


def _changed(where: str) -> InputError:
    return InputError(f"{where} was changed after it was written.")
