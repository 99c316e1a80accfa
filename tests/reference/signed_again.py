"""What somebody with the private key could make of a certificate."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from ledger_worlds import World

from fedforget.ledger.certificate import read_certificate
from fedforget.ledger.chain import canonical
from fedforget.ledger.statements import envelope_text, read_statement, sign


def signed_again(world: World, certificate: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """Changed, and signed with the ledger's own key; its subjects are the models that it speaks of then."""
    record = read_certificate(certificate.decode())
    change(record)
    kind, _ = record.pop("schema"), record.pop("key")
    subject = dict(read_statement(certificate, "it")[0].digests)
    try:
        name = record["request"]["federation"]
        subject = {f"{name}/{model['version']}": model["sha256"] for model in (record["before"], record["after"])}
        record["trail"] = [{**event, "body": canonical(event["body"])} for event in record["trail"]]
    except (KeyError, TypeError):
        pass  # it makes no sense any more, and is signed all the same
    with world.ledger.database.reading() as session:
        return sign(world.ledger.keys.signing(session), kind, subject, record).encode()


def forged(certificate: str, old: str, new: str) -> str:
    """The same words in what was signed are others; the signature is the old one."""
    envelope = json.loads(certificate)
    payload = base64.b64decode(envelope["payload"]).decode()
    assert old in payload
    return envelope_text({**envelope, "payload": base64.b64encode(payload.replace(old, new).encode()).decode()})
