"""The certificate: whatever byte is changed is noticed, offline, with the public key alone; old ones stay good."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from ledger_worlds import World

from fedforget.errors import InputError
from fedforget.ledger.certificate import read_keys, render, verify_certificate
from fedforget.ledger.chain import hash_of
from fedforget.ledger.keys import key_id, public_text, read_public


def certificate_of(world: World, id: str) -> bytes:
    found = world.ledger.versions.certificate_of(id)
    assert found is not None
    return found.content.encode()


def keys_of(world: World) -> list[Ed25519PublicKey]:
    return [read_public(key.public) for key in world.ledger.keys.all()]


@pytest.fixture
def certificate(world: World) -> bytes:
    return certificate_of(world, world.served().id)


def test_it_says_what_was_asked_done_and_measured(world: World, certificate: bytes):
    record = verify_certificate(certificate, keys_of(world))
    (request,) = world.ledger.requests.page().requests
    before, after = world.ledger.versions.of("digits")
    assert record["request"]["id"] == request.id
    assert record["request"]["target"] == {"client": 0, "kind": "class", "label": 1}
    assert record["before"] == {"version": 1, "sha256": before.sha256}
    assert record["after"] == {"version": 2, "sha256": after.sha256}
    assert record["method"] == {"name": "ladder", "preset": "default", "settings": {"epochs": 1}}
    assert record["evidence"] == {"sha256": request.evidence, "level": "quick"}
    assert record["measured"]["verdict"]["word"] == "forgotten"
    assert (record["measured"]["accuracy_before"], record["measured"]["accuracy_after"]) == (90.0, 90.0)
    assert record["decision"] is None
    assert record["ledger"] == world.ledger.trail.head().ledger
    assert [event["kind"] for event in record["trail"]] == [
        "received", "accepted", "queued", "forgetting", "auditing", "done",
    ]  # fmt: skip
    numbers = {event.number: event.hash for event in world.ledger.trail.events(limit=500)}
    assert all(numbers[event["number"]] == event["hash"] for event in record["trail"]), "the ledger's own events"


def test_who_only_looked_stays_out_of_it(world: World):
    request = world.queued()
    world.ledger.trail.append("audrey", "looked", request=request.id)
    world.ledger.requests.extend(request.id, 1, "hard", actor="oscar")
    world.serve()
    data = certificate_of(world, request.id)
    assert b"audrey" not in data
    record = verify_certificate(data, keys_of(world))
    assert [event["kind"] for event in record["trail"]][2:5] == ["queued", "extended", "forgetting"]
    assert world.ledger.trail.check().intact


def test_it_claims_no_more(certificate: bytes):
    words = certificate.decode().lower()
    for boast in ("certified removal", "certifies", "guarantee", "is removed", "proves that"):
        assert boast not in words
    assert "no proof that nothing of the target is left" in words


@pytest.mark.real
def test_every_byte_counts(world: World, certificate: bytes):
    """Each byte in turn, changed in its lowest bit and in its case bit."""
    keys = keys_of(world)
    for place in range(len(certificate)):
        for bit in (1, 0x20):
            changed = bytearray(certificate)
            changed[place] ^= bit
            with pytest.raises(InputError, match=r"schema|changed|no certificate|none of yours"):
                verify_certificate(bytes(changed), keys)
    verify_certificate(certificate, keys)


def test_nothing_is_added_left_out_or_written_otherwise(world: World, certificate: bytes):
    record = json.loads(certificate)
    others = [
        certificate + b"\n", certificate[:-1], b" " + certificate, b"", b"[]", b"null", b"\xff", b"[" * 100_000,
        json.dumps(record).encode(), certificate.replace(b'"level": ', b'"level":  '),
        render({**record, "more": 1}).encode(), render(dict(reversed(record.items()))).encode(),
        *(render({n: v for n, v in record.items() if n != name}).encode() for name in record),
        *(render({**record, name: None}).encode() for name in record if name != "decision"),
        certificate.replace(b'"schema": ', b'"schema": "x", "schema": '),
    ]  # fmt: skip
    for other in others:
        with pytest.raises(InputError, match=r"schema|changed"):
            verify_certificate(other, keys_of(world))


def signed_again(world: World, certificate: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """What somebody with the private key could make of it."""
    with world.ledger.database.reading() as session:
        private = world.ledger.keys.signing(session)
    record = json.loads(certificate)
    change(record)
    record.pop("signature")
    return render({**record, "signature": private.sign(render(record).encode()).hex()}).encode()


def set_at(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(record: Any) -> None:
        for name in path[:-1]:
            record = record[name]
        record[path[-1]] = value

    return change


def with_new_hash(change: Callable[[dict[str, Any]], None], place: int) -> Callable[[dict[str, Any]], None]:
    def both(record: dict[str, Any]) -> None:
        change(record)
        record["trail"][place]["hash"] = hash_of(record["trail"][place])

    return both


@pytest.mark.daily(5)
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (set_at("trail", 1, "actor", value="mallory"), "was changed"),
        (set_at("trail", 0, "body", "client", value=1), "was changed"),
        (set_at("trail", 2, "hash", value="0" * 64), "was changed"),
        (set_at("trail", 1, "more", value=1), "was changed"),
        (with_new_hash(set_at("trail", 1, "actor", value="mallory"), 1), "do not follow each other"),
        (with_new_hash(set_at("trail", 3, "request", value="0" * 32), 3), "another request's"),
        (lambda record: record["trail"].reverse(), "out of order"),
        (lambda record: record["trail"].pop(0), "does not begin with this request"),
        (lambda record: record["trail"].pop(), "does not end with this result"),
        (set_at("request", "subject", value="case-9"), "does not begin with this request"),
        (set_at("request", "target", "label", value=0), "does not begin with this request"),
        (set_at("request", "ground", value="other"), "does not begin with this request"),
        (set_at("after", "sha256", value="0" * 64), "does not end with this result"),
        (set_at("before", "version", value=0), "does not end with this result"),
        (set_at("evidence", "sha256", value="0" * 64), "does not end with this result"),
        (set_at("measured", "verdict", "word", value="over-forgotten"), "does not end with this result"),
        (set_at("trail", value=[]), "has no trail"),
        (set_at("trail", value=[1]), "makes no sense"),
        (set_at("request", value={}), "makes no sense"),
        (set_at("issued", value="yesterday"), "makes no sense"),
        (set_at("schema", value="fedforget/certificate/2"), "has the schema"),
    ],
)
def test_a_genuine_signature_is_not_enough(world: World, certificate: bytes, change: Any, complaint: str):
    """The events must be as they were hashed, and tell the same as the rest."""
    with pytest.raises(InputError, match=complaint):
        verify_certificate(signed_again(world, certificate, change), keys_of(world))


def test_another_key_is_refused(world: World, certificate: bytes):
    other = Ed25519PrivateKey.generate()
    with pytest.raises(InputError, match="none of yours"):
        verify_certificate(certificate, [other.public_key()])
    with pytest.raises(InputError, match="none of yours"):
        verify_certificate(certificate, [])
    record = json.loads(certificate)
    record["key"] = key_id(other.public_key())
    with pytest.raises(InputError, match="another key signed it"):
        verify_certificate(render(record).encode(), [other.public_key()])


def test_old_certificates_verify_after_rotation(world: World):
    signed = []
    for _ in range(3):
        signed.append(certificate_of(world, world.served().id))
        world.ledger.keys.rotate()
    assert len({json.loads(data)["key"] for data in signed}) == 3
    for data in signed:
        verify_certificate(data, keys_of(world))
        own = [key for key in keys_of(world) if key_id(key) == json.loads(data)["key"]]
        verify_certificate(data, own)
    assert world.ledger.trail.check().intact


def test_keys_from_files(world: World, tmp_path: Path):
    world.ledger.keys.rotate()
    assert {key_id(key) for key in read_keys([world.ledger.keys.folder])} == {k.id for k in world.ledger.keys.all()}
    one = next(world.ledger.keys.folder.glob("*.public.pem"))
    assert len(read_keys([one])) == 1
    (tmp_path / "wrong.pem").write_text("no key")
    with pytest.raises(InputError, match=r"wrong\.pem is no public key"):
        read_keys([tmp_path / "wrong.pem"])
    with pytest.raises(InputError, match="cannot be read"):
        read_keys([tmp_path / "missing.pem"])


@pytest.mark.real
def test_offline_with_the_public_key_alone(world: World, certificate: bytes, tmp_path: Path):
    """In a process of its own, in a folder with the certificate and one public key, without network or ledger."""
    (tmp_path / "certificate.json").write_bytes(certificate)
    (tmp_path / "key.pem").write_text(public_text(keys_of(world)[0]))
    code = (
        "import socket, sys; socket.socket.connect = None; socket.create_connection = None; "
        "from fedforget.cli import main; sys.argv = ['fedforget', 'verify', 'certificate.json', '--key', 'key.pem', "
        "'--json']; main()"
    )
    environment = {"PATH": "/usr/bin", "HOME": str(tmp_path), "FEDFORGET_HOME": str(tmp_path / "none")}
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["verified"] is True
    assert not (tmp_path / "none").exists()
