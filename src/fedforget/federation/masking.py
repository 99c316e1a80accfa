"""Masks that cancel in the sum: the server learns the sum of the clients' numbers, and nothing else of anybody's.

    y_k = round(2^p x_k) + sum over j > k of PRG(s_kj) - sum over j < k of PRG(s_kj)      mod 2^64
    sum over k of y_k = sum over k of round(2^p x_k)                                      mod 2^64

(Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning", section 4.) s_kj is the
secret that clients k and j agree on through public keys which the server passes on: HKDF-SHA256 of X25519. PRG is
AES-256 in counter mode, read as 64-bit numbers: without s_kj, y_k looks like uniform noise whatever x_k is.

Fixed point: with |x_k| < 2^20 and p = 42 - ceil(log2 K) the sum lies within 2^62, half of what would wrap around. The
scale depends on the number of clients K alone, so nobody has to tell how large its numbers are. The sum is off by at
most K 2^-(p+1): 2e-12 for 4 clients, 2e-11 for 10, 1e-7 for 1,000. A sum beyond 2^62 has masks left in it.

The keys are the one thing here that comes from the operating system and not from the run's seed, which the server
knows. No result depends on them. There is no way back from a client that drops out (Bonawitz et al. share the secrets
out for that): its peers' masks stay in the sum, and everybody has to begin anew, with new keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.federation.tasks import Reply

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers import CipherContext

RANGE_BITS = 20
SUM_BITS = 62
FEWEST = 3
"""With two clients, each would have the other's numbers from the sum; with one, the sum is its own."""
KEY_BYTES = 32
BLOCK = 16_384
"""So many numbers are masked at a time: masks that stay in the processor's cache take a fifth of the time."""
PUBLIC_KEY = "mask.key."
"""Under this name and the client's number its public key travels beside the model."""
SECRET_KEY = "mask.secret"
"""Under this name a client keeps its secret key between the two messages. One that was offered and never used, since
the request failed in between, has masked nothing; the next offer takes its place."""
PURPOSE = b"fedforget pairwise mask 1"


def fraction_bits(clients: int) -> int:
    """p: the binary places after the point.

    >>> fraction_bits(4), fraction_bits(5), fraction_bits(1000)
    (40, 39, 32)
    """
    return SUM_BITS - RANGE_BITS - (clients - 1).bit_length()


def check_masking(clients: int) -> None:
    """Refuse, before any work, what cannot be hidden or cannot be computed here."""
    if clients < FEWEST:
        raise InputError(
            f"A masked sum needs at least {FEWEST} clients that have something to add, but there "
            f"{'is' if clients == 1 else 'are'} {clients}; do without masks."
        )
    _need_cryptography()


def new_key() -> tuple[bytes, bytes]:
    """(a secret key, its public key), for one sum only: two sums under one mask would show their difference."""
    _need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    secret = X25519PrivateKey.generate().private_bytes_raw()
    return secret, public_key(secret)


def offered(kept: MutableMapping[str, Any]) -> Tensor:
    """A client's public key for one sum; the secret one is `kept` until `taken`."""
    secret, public = new_key()
    kept[SECRET_KEY] = secret.hex()
    return torch.tensor(list(public), dtype=torch.uint8)


def taken(kept: MutableMapping[str, Any], state: Mapping[str, Tensor], own: int) -> tuple[bytes, dict[int, bytes]]:
    """(the secret key that client `own` offered, everybody's public keys, which came beside the model). The secret is
    used up, whatever happens then."""
    secret = bytes.fromhex(kept.pop(SECRET_KEY, ""))
    keys = {
        int(name.removeprefix(PUBLIC_KEY)): bytes(tensor.tolist())
        for name, tensor in state.items()
        if name.startswith(PUBLIC_KEY)
    }
    if not secret or keys.get(own) != public_key(secret):
        raise InputError(
            f"Client {own} does not have the secret key of this masked sum; try the request again (a Flower node "
            "needs a state-dir, where it keeps the key between two messages)."
        )
    check_masking(len(set(keys.values())))
    return secret, keys


def key_beside(name: str) -> Tensor | None:
    """What travels beside the model as a public key must look like; None for what is none (`Task.beside`)."""
    named = name.startswith(PUBLIC_KEY) and name.removeprefix(PUBLIC_KEY).isdecimal()
    return torch.empty(KEY_BYTES, dtype=torch.uint8, device="meta") if named else None


def key_of(reply: Reply) -> Tensor:
    """The public key that a client offered."""
    key = reply.tensors.get(PUBLIC_KEY)
    if key is None or (key.dtype, tuple(key.shape)) != (torch.uint8, (KEY_BYTES,)):
        raise FedForgetError(f"Client {reply.client} sent no public key, so nothing can be masked for it.")
    return key


def public_key(secret: bytes) -> bytes:
    return _private(secret).public_key().public_bytes_raw()


def _private(secret: bytes) -> X25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret)


def masked(rows: Tensor, secret: bytes, own: int, public_keys: Mapping[int, bytes]) -> Tensor:
    """y_k of the matrix x_k = `rows`, for client `own` among the clients of `public_keys`, itself included; block by
    block, so that beside the result there is never more than a block."""
    largest = max(abs(float(end)) for end in torch.aminmax(rows))
    if not math.isfinite(largest):
        raise DivergedError(f"The masked sum at client {own}", f"an entry is {largest}.")
    if largest >= 2.0**RANGE_BITS:
        raise InputError(
            f"Client {own} has an entry of {largest:.2g}, but a masked sum takes entries below {2**RANGE_BITS:,}; "
            "scale the inputs, or do without masks."
        )
    private = _private(secret)
    streams = [(peer > own, _stream(private, own, peer, public_keys)) for peer in sorted(public_keys) if peer != own]
    scale = 2.0 ** fraction_bits(len(public_keys))
    nothing, masks = memoryview(bytes(8 * BLOCK)), bytearray(8 * BLOCK + 15)  # 15: what OpenSSL asks for beyond
    result = torch.empty(rows.shape, dtype=torch.int64)
    for row, place in zip(rows, result, strict=True):
        for entries, block in zip(row.split(BLOCK), place.split(BLOCK), strict=True):
            block.copy_((entries.double() * scale).round_())
            ring = block.numpy().view(np.uint64)
            mask = np.frombuffer(masks, dtype="<u8", count=len(ring))
            for adds, stream in streams:
                stream.update_into(nothing[: 8 * len(ring)], masks)
                (np.add if adds else np.subtract)(ring, mask, out=ring)
    return result


def unmasked_sum(parts: Iterable[Tensor], clients: int, dtype: torch.dtype) -> Tensor:
    """The sum of what `clients` clients masked: exact in the ring, then rounded to `dtype`."""
    total: Tensor | None = None
    for part in parts:
        total = torch.zeros(part.shape, dtype=torch.int64) if total is None else total
        ring = total.numpy().view(np.uint64)
        np.add(ring, part.cpu().numpy().view(np.uint64), out=ring)
    if total is None:
        raise InputError("There is no masked part to add up.")
    result = torch.empty(total.shape, dtype=dtype)
    for row, place in zip(total, result, strict=True):
        if int(row.min()) < -(2**SUM_BITS) or int(row.max()) > 2**SUM_BITS:
            raise FedForgetError(
                "The clients' masks did not cancel, so their sum means nothing; try the request again."
            )
        place.copy_(row.double().mul_(2.0 ** -fraction_bits(clients)))
    return result


def _stream(private: X25519PrivateKey, own: int, peer: int, public_keys: Mapping[int, bytes]) -> CipherContext:
    """PRG(s_kj), the same at both: an encryptor that turns zeros into the mask. A key serves once, so its counter may
    begin at 0."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        theirs = X25519PublicKey.from_public_bytes(public_keys[peer])
        agreed = private.exchange(theirs)
    except ValueError:  # of a wrong length, or one with which everybody agrees on zeros
        raise InputError(f"Client {peer}'s public key is none; try the request again.") from None
    pair = public_keys[min(own, peer)] + public_keys[max(own, peer)]
    key = HKDF(SHA256(), 32, salt=None, info=PURPOSE + pair).derive(agreed)
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise InputError(
            "Masks need the package cryptography; install it with: pip install 'cryptography>=42'."
        ) from None
