"""The certificate: whatever byte is changed is noticed, offline, with the public key alone; old ones stay good."""

from __future__ import annotations

import base64
import json
import random
import runpy
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jsonschema import Draft202012Validator
from ledger_worlds import World, rung
from securesystemslib.exceptions import VerificationError
from signed_again import signed_again

from fedforget.errors import InputError
from fedforget.ledger.certificate import read_certificate, read_keys, render, verify_certificate
from fedforget.ledger.chain import hash_of
from fedforget.ledger.keys import key_id, public_text, read_public
from fedforget.ledger.statements import WITHDRAWALS, envelope_text, read_statement, sign

OLD = Path(__file__).parents[1] / "reference" / "old_certificate"


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
    words = read_statement(certificate, "it")[1].decode().lower()
    for boast in ("certified removal", "certifies", "guarantee", "is removed", "proves that"):
        assert boast not in words
    assert "no proof that nothing of the target is left" in words


def flipped(data: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= bit
    return bytes(changed)


@pytest.mark.real
def test_every_byte_counts(world: World, certificate: bytes):
    """Each byte in turn, changed in its lowest bit, and every fifth in its case bit."""
    keys = keys_of(world)
    for place in range(len(certificate)):
        for bit in (1,) if place % 5 else (1, 0x20):
            with pytest.raises(InputError, match=r"schema|changed|no certificate|none of yours"):
                verify_certificate(flipped(certificate, place, bit), keys)
    verify_certificate(certificate, keys)


@pytest.mark.parametrize("count", [25, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_flipped_bit_anywhere_is_refused(world: World, certificate: bytes, count: int):
    """In the envelope, in the statement in it, and in the signature."""
    keys, drawn = keys_of(world), random.Random(count)
    envelope = json.loads(certificate)
    payload = base64.b64decode(envelope["payload"])
    for _ in range(count):
        with pytest.raises(InputError):
            verify_certificate(flipped(certificate, drawn.randrange(len(certificate)), 1 << drawn.randrange(8)), keys)
        other = flipped(payload, drawn.randrange(len(payload)), 1 << drawn.randrange(8))
        within = {**envelope, "payload": base64.b64encode(other).decode()}
        with pytest.raises(InputError, match="changed"):
            verify_certificate(envelope_text(within).encode(), keys)
    verify_certificate(certificate, keys)


def test_nothing_is_added_left_out_or_written_otherwise(world: World, certificate: bytes):
    envelope = json.loads(certificate)
    (signature,) = envelope["signatures"]
    letter = signature["sig"][-3]
    loose = signature["sig"][:-3] + chr(ord(letter) + 1) + "=="  # the same bytes: its last bits say nothing
    assert base64.b64decode(loose) == base64.b64decode(signature["sig"])
    others = [
        certificate + b"\n", certificate[:-1], b" " + certificate, b"", b"[]", b"null", b"\xff", b"[" * 100_000,
        json.dumps(envelope).encode(), certificate.replace(b'"payload":', b'"payload": '),
        *(envelope_text({**envelope, **more}).encode() for more in (
            {"more": 1}, {"payload": None}, {"payload": ""}, {"payloadType": "text/plain"}, {"signatures": []},
            {"signatures": [signature, signature]}, {"signatures": [{**signature, "more": 1}]},
            {"signatures": [{**signature, "sig": loose}]}, {"signatures": {}},
        )),
        *(envelope_text({n: v for n, v in envelope.items() if n != name}).encode() for name in envelope),
        certificate.replace(b'"payload":', b'"payload":"x","payload":'),
    ]  # fmt: skip
    for other in others:
        with pytest.raises(InputError, match=r"schema|changed"):
            verify_certificate(other, keys_of(world))


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
        (set_at("schema", value="urn:fedforget:certificate:3"), "has the schema"),
        (set_at("schema", value=WITHDRAWALS), "has the schema"),
        (lambda record: record.pop("decision"), "does not fit together"),
        (set_at("thresholds", "verdict", "level", value=0.5), "has other thresholds"),
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
    envelope = json.loads(certificate)
    envelope["signatures"][0]["keyid"] = key_id(other.public_key())
    with pytest.raises(InputError, match="another key signed it"):
        verify_certificate(envelope_text(envelope).encode(), [other.public_key()])


def test_its_subjects_are_its_models(world: World, certificate: bytes):
    found, _, _ = read_statement(certificate, "it")
    before, after = world.ledger.versions.of("digits")
    assert found.digests == {"digits/1": before.sha256, "digits/2": after.sha256}
    with world.ledger.database.reading() as session:
        private = world.ledger.keys.signing(session)
    others = ({}, {"digits/1": before.sha256}, {"digits/1": after.sha256, "digits/2": after.sha256})
    for other in others:
        with pytest.raises(InputError, match="other models than its subjects"):
            verify_certificate(sign(private, found.kind, other, found.predicate).encode(), keys_of(world))


def test_it_is_written_as_rfc_8785_says_and_signed_as_dsse_says(world: World, certificate: bytes):
    """By a slow twin: json with sorted names, where no number has a fraction that JavaScript would write otherwise."""
    envelope = json.loads(certificate)
    payload, (signature,) = base64.b64decode(envelope["payload"]), envelope["signatures"]
    twin = json.dumps(json.loads(payload), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert payload == twin
    (key,) = keys_of(world)
    assert signature["keyid"] == key_id(key)
    kind = envelope["payloadType"]
    signed = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    key.verify(base64.b64decode(signature["sig"]), signed)
    assert b'"accuracy_before":90,' in payload, "90.0 is written as 90"


def test_its_json_schema(world: World):
    """The one in the package describes what is issued, and nothing less."""
    schema = json.loads(files("fedforget.ledger").joinpath("certificate-2.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    served = [world.served().id]
    served.append(world.queued().id)
    world.serve(rungs=[rung("overwrite", "not forgotten"), rung("rebuild", "exact")], says="exact", fell=9.0)
    world.ledger.versions.decide(served[-1], True, "It is fine.", actor="oscar")
    for id in served:
        payload = json.loads(base64.b64decode(json.loads(certificate_of(world, id))["payload"]))
        Draft202012Validator(schema).validate(payload)
        for name in payload["predicate"]:
            less = {n: v for n, v in payload["predicate"].items() if n != name}
            assert not Draft202012Validator(schema).is_valid({**payload, "predicate": less}), name


@pytest.mark.real
def test_a_script_without_fedforget_verifies_it(world: World, certificate: bytes, tmp_path: Path):
    """`examples/verify_certificate.py` with securesystemslib, in a process that cannot import fedforget."""
    (tmp_path / "certificate.json").write_bytes(certificate)
    (tmp_path / "key.pem").write_text(public_text(keys_of(world)[0]))
    script = Path(__file__).parents[2] / "examples" / "verify_certificate.py"

    def run() -> subprocess.CompletedProcess[str]:
        code = (
            f"import runpy, sys; sys.modules['fedforget'] = None; runpy.run_path({str(script)!r}, run_name='__main__')"
        )
        words = [sys.executable, "-c", code, "certificate.json", "key.pem"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    said = run()
    assert said.returncode == 0, said.stderr
    after = world.ledger.versions.current("digits")
    assert said.stdout.splitlines()[1:3] == ["Asked: class 1 of client 0 of digits", "Verdict: forgotten"]
    assert f"Model digits/2 SHA-256 {after.sha256}" in said.stdout
    forged = certificate.replace(b'"sig":"', b'"sig":"A', 1)
    (tmp_path / "certificate.json").write_bytes(forged)
    said = run()
    assert (said.returncode, said.stdout[:8]) == (1, "Refused:"), said.stderr


@pytest.mark.parametrize("count", [25, pytest.param(5000, marks=pytest.mark.slow)])
def test_securesystemslib_refuses_what_says_otherwise(world: World, certificate: bytes, count: int):
    """Of the flipped bits it takes those alone that change nothing of what was signed, nor who signed it."""
    verified = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "verify_certificate.py"))["verified"]
    pem, drawn = public_text(keys_of(world)[0]).encode(), random.Random(count)
    statement = verified(certificate, pem)
    for _ in range(count):
        other = flipped(certificate, drawn.randrange(len(certificate)), 1 << drawn.randrange(8))
        try:
            assert verified(other, pem) == statement
        except (VerificationError, ValueError, KeyError, TypeError, AttributeError):
            continue


# As it was before it was a signed statement


def test_a_certificate_of_the_first_schema_still_verifies():
    """Made by commit 8c33605: two rungs, and an officer's decision."""
    data, keys = (OLD / "certificate-1.json").read_bytes(), read_keys([OLD])
    record = verify_certificate(data, keys)
    assert record == read_certificate(data.decode())
    assert (record["measured"]["verdict"]["word"], record["decision"]["reason"]) == (
        "exact", "The loss is known; Zoë agreed.",
    )  # fmt: skip
    assert [rung["name"] for rung in record["method"]["rungs"]] == ["overwrite", "rebuild"]
    with pytest.raises(InputError, match="none of yours"):
        verify_certificate(data, [Ed25519PrivateKey.generate().public_key()])
    altered = render({**record, "issued": "2026-02-01T12:00:00.000034Z"}).encode()
    with pytest.raises(InputError, match="changed after it was signed"):
        verify_certificate(altered, keys)


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_every_byte_of_an_old_one_counts(step: int):
    data, keys = (OLD / "certificate-1.json").read_bytes(), read_keys([OLD])
    for place in range(0, len(data), step):
        with pytest.raises(InputError, match=r"schema|changed|no certificate|none of yours"):
            verify_certificate(flipped(data, place, 1), keys)


def test_old_certificates_verify_after_rotation(world: World):
    signed = []
    for _ in range(3):
        signed.append(certificate_of(world, world.served().id))
        world.ledger.keys.rotate()
    assert len({read_certificate(data.decode())["key"] for data in signed}) == 3
    for data in signed:
        verify_certificate(data, keys_of(world))
        own = [key for key in keys_of(world) if key_id(key) == read_certificate(data.decode())["key"]]
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
