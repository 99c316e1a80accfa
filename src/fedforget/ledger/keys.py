"""The keys that sign certificates: Ed25519, the private half in a file that only its owner reads, the public halves in
the ledger and in files to hand out.

    <home>/keys/ID.pem          private, mode 0600; only of the key that signs now
    <home>/keys/ID.public.pem   public, of every key there ever was

ID is the beginning of the SHA-256 of the public key's 32 bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from fedforget.data.files import writing
from fedforget.errors import InputError
from fedforget.ledger.core import SYSTEM, Core
from fedforget.ledger.errors import ConflictError
from fedforget.ledger.privacy import make_folder, new_file
from fedforget.ledger.schema import Key


def key_id(public: Ed25519PublicKey) -> str:
    return hashlib.sha256(public.public_bytes_raw()).hexdigest()[:16]


def public_text(public: Ed25519PublicKey) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return public.public_bytes(serialization.Encoding.PEM, form).decode()


def read_public(text: str, where: str = "the public key") -> Ed25519PublicKey:
    try:
        key = serialization.load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(f"{where} is no public key in PEM form.") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{where} is a key of another kind; fedforget signs with Ed25519.")
    return key


class Keys:
    """`ledger.keys`: what signs, and what signed."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def folder(self) -> Path:
        return self._core.home / "keys"

    def make(self, *, actor: str = SYSTEM) -> Key:
        """The ledger's first key."""
        return self._new_key(actor, first=True)

    def rotate(self, *, actor: str = SYSTEM) -> Key:
        """A new key signs from now on. The old private key is deleted; its public key stays, so that what it signed
        still verifies."""
        return self._new_key(actor, first=False)

    def all(self) -> list[Key]:
        """The public halves, oldest first."""
        return self._core.rows(select(Key).order_by(Key.made, Key.id))

    def _new_key(self, actor: str, first: bool) -> Key:
        private = Ed25519PrivateKey.generate()
        id, public, now = key_id(private.public_key()), public_text(private.public_key()), self._core.clock()
        form = serialization.PrivateFormat.PKCS8
        secret = private.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        make_folder(self.folder)
        for name, data in ((f"{id}.pem", secret), (f"{id}.public.pem", public.encode())):
            with writing(), new_file(self.folder / name) as file:
                file.write(data)
        try:
            with self._core.writing() as session:
                old = _key_that_signs(session, to_retire=True)
                if first and old is not None:
                    raise ConflictError(f"There is a key already, {old.id}; replace it with `fedforget keys rotate`.")
                if old is not None:
                    old.retired = now
                    self._core.append(session, actor, "key retired", {"key": old.id})
                key = Key(id=id, public=public, made=now)
                session.add(key)
                self._core.append(session, actor, "key made", {"key": id, "public": public})
        except BaseException as error:
            for name in (f"{id}.pem", f"{id}.public.pem"):
                (self.folder / name).unlink(missing_ok=True)
            if isinstance(error, IntegrityError):
                raise ConflictError("Another key was made at the same moment; see `fedforget keys list`.") from None
            raise
        if old is not None:
            (self.folder / f"{old.id}.pem").unlink(missing_ok=True)
        return key

    def signing(self, session: Session) -> Ed25519PrivateKey:
        """The key that signs now. It is not retired before the caller's transaction is over."""
        key = _key_that_signs(session, to_retire=False)
        if key is None:
            raise InputError("The ledger has no key to sign with; make one with `fedforget keys make`.")
        id, path = key.id, self.folder / f"{key.id}.pem"
        try:
            if path.stat().st_mode & 0o077:
                raise InputError(f"The key {path} can be read by others; allow only its owner: chmod 600 {path}.")
            private = serialization.load_pem_private_key(path.read_bytes(), None)
        except OSError:
            raise InputError(
                f"The private key {path} is not there; copy it from where it was made, or make a new one with "
                "`fedforget keys rotate`."
            ) from None
        except (ValueError, TypeError):
            raise InputError(
                f"The private key {path} is damaged; make a new one with `fedforget keys rotate`."
            ) from None
        if not isinstance(private, Ed25519PrivateKey) or key_id(private.public_key()) != id:
            raise InputError(f"{path} is not the key {id}; make a new one with `fedforget keys rotate`.")
        return private

    def check_signing(self) -> str:
        """Its id; an InputError where nothing could be signed. A worker asks before it begins."""
        with self._core.reading() as session:
            return key_id(self.signing(session).public_key())


def _key_that_signs(session: Session, *, to_retire: bool) -> Key | None:
    """Locked; others may sign with it, unless it is `to_retire`. Who waits for a rotation finds the old key retired,
    and the new one only with another look."""
    query = select(Key).where(Key.retired.is_(None)).with_for_update(read=not to_retire, key_share=to_retire)
    for _ in range(5):
        key = session.scalars(query).one_or_none()
        if key is not None:
            return key
    return None
