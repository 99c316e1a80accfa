"""Keys: only their owner reads them, a new one takes over, and a wrong file is never signed with."""

from __future__ import annotations

import stat

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from ledger_worlds import World

from fedforget.errors import InputError
from fedforget.ledger.book import Ledger
from fedforget.ledger.core import Core
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.keys import read_public


def private_files(ledger: Ledger) -> list[str]:
    return sorted(path.name for path in ledger.keys.folder.glob("*.pem") if ".public." not in path.name)


def test_nobody_else_reads_a_key(ledger: Ledger):
    key = ledger.keys.make()
    path = ledger.keys.folder / f"{key.id}.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(ledger.keys.folder.stat().st_mode) == 0o700
    assert (ledger.keys.folder / f"{key.id}.public.pem").read_text() == key.public
    assert key.id in str(read_public(key.public) and key.id)
    assert "PRIVATE" not in key.public
    assert ledger.keys.check_signing() == key.id


def test_there_is_one_first_key(ledger: Ledger):
    with pytest.raises(InputError, match="no key to sign with; make one"):
        ledger.keys.check_signing()
    key = ledger.keys.make(actor="ann")
    with pytest.raises(ConflictError, match="rotate"):
        ledger.keys.make()
    assert private_files(ledger) == [f"{key.id}.pem"], "nothing is left of the one that was refused"
    assert [event.kind for event in ledger.trail.events(actor="ann")] == ["key made"]


def test_rotation(ledger: Ledger):
    old = ledger.keys.make()
    new = ledger.keys.rotate(actor="ann")
    assert ledger.keys.check_signing() == new.id != old.id
    assert [(key.id, key.retired is None) for key in ledger.keys.all()] == [(old.id, False), (new.id, True)]
    assert private_files(ledger) == [f"{new.id}.pem"], "the old private key is gone"
    assert len(list(ledger.keys.folder.glob("*.public.pem"))) == 2
    assert [event.kind for event in ledger.trail.events(actor="ann")] == ["key made", "key retired"]
    assert ledger.trail.check().intact


def test_interrupted_the_old_key_still_signs(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    old = ledger.keys.make()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Core, "append", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger.keys.rotate()
    assert ledger.keys.check_signing() == old.id
    assert private_files(ledger) == [f"{old.id}.pem"]


def test_a_key_that_others_can_read_does_not_sign(world: World):
    path = world.ledger.keys.folder / f"{world.ledger.keys.check_signing()}.pem"
    path.chmod(0o640)
    with pytest.raises(InputError, match="can be read by others"):
        world.ledger.keys.check_signing()


def pem(key: object) -> bytes:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "is damaged"),
        (b"no key", "is damaged"),
        (pem(Ed25519PrivateKey.generate()), "is not the key"),
        (pem(generate_private_key(65537, 2048)), "is not the key"),
    ],
)
def test_a_wrong_file_does_not_sign(world: World, data: bytes, complaint: str):
    path = world.ledger.keys.folder / f"{world.ledger.keys.check_signing()}.pem"
    path.write_bytes(data)
    with pytest.raises(InputError, match=complaint):
        world.ledger.keys.check_signing()
    path.unlink()
    with pytest.raises(InputError, match="is not there; copy it"):
        world.ledger.keys.check_signing()
    world.ledger.keys.rotate()
    world.served()


def test_only_ed25519(ledger: Ledger):
    other = generate_private_key(65537, 2048).public_key()
    text = other.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    with pytest.raises(InputError, match="Ed25519"):
        read_public(text)
