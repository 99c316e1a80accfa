"""Masks cancel in the sum and hide everything else: against a twin in Python's own whole numbers, and by statistics.

Secret keys are fixed here, so every figure is the same in every run."""

from __future__ import annotations

import struct
import sys
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.federation.masking import (
    BLOCK,
    PURPOSE,
    RANGE_BITS,
    SUM_BITS,
    check_masking,
    fraction_bits,
    masked,
    new_key,
    public_key,
    unmasked_sum,
)

RING = 2**64


def rounding(clients: int) -> float:
    """How far the sum may be off: each client rounds by half a step at most."""
    return clients * 2.0 ** -(fraction_bits(clients) + 1)


def keys(clients: int) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """(secret, public) keys of so many clients, whose numbers have gaps."""
    secret = {3 * k + 1: bytes([k + 1] * 32) for k in range(clients)}
    return secret, {k: public_key(key) for k, key in secret.items()}


def everybody(data: dict[int, Tensor]) -> dict[int, Tensor]:
    secret, public = keys(len(data))
    return {k: masked(rows, secret[k], k, public) for k, rows in zip(secret, data.values(), strict=True)}


def draws(clients: int, shape: tuple[int, int], scale: float = 1.0, seed: int = 0) -> dict[int, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {3 * k + 1: scale * torch.randn(shape, generator=generator) for k in range(clients)}


def twin(rows: Tensor, secret: dict[int, bytes], own: int) -> list[int]:
    """y_k, entry by entry in whole numbers, straight from the equation."""
    p = 62 - 20 - (len(secret) - 1).bit_length()
    entries = [round(Fraction(x) * 2**p) for x in rows.flatten().tolist()]
    public = {k: X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw() for k, key in secret.items()}
    for peer in secret:
        if peer == own:
            continue
        agreed = X25519PrivateKey.from_private_bytes(secret[own]).exchange(
            X25519PublicKey.from_public_bytes(public[peer])
        )
        pair = public[min(own, peer)] + public[max(own, peer)]
        key = HKDF(SHA256(), 32, salt=None, info=PURPOSE + pair).derive(agreed)
        stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * len(entries)))
        sign = 1 if own < peer else -1
        entries = [x + sign * mask for x, mask in zip(entries, struct.unpack(f"<{len(entries)}Q", stream), strict=True)]
    return [x % RING for x in entries]


def test_a_masked_part_is_what_the_equation_says():
    data = draws(4, (3, 5))
    secret, _ = keys(4)
    for k, part in everybody(data).items():
        assert [x % RING for x in part.flatten().tolist()] == twin(data[k], secret, k)


def test_a_row_of_several_blocks_is_masked_as_one():
    data = draws(3, (2, 2 * BLOCK + 5))
    secret, _ = keys(3)
    assert [x % RING for x in everybody(data)[4].flatten().tolist()] == twin(data[4], secret, 4)


def test_what_is_masked_stays_as_it_was():
    rows = torch.ones(1, 3, dtype=torch.float64)
    everybody(dict.fromkeys((1, 4, 7), rows))
    assert torch.equal(rows, torch.ones(1, 3, dtype=torch.float64))


@settings(max_examples=40, deadline=None)
@given(clients=st.integers(3, 9), exponent=st.integers(-30, RANGE_BITS - 1), seed=st.integers(0, 100))
def test_the_sum_of_masked_parts_is_the_sum_of_plain_ones(clients: int, exponent: int, seed: int):
    data = {k: (x.clamp(-4, 4) / 4.001) * 2.0**exponent for k, x in draws(clients, (2, 4), seed=seed).items()}
    step = Fraction(1, 2 ** fraction_bits(clients))
    parts = everybody(data)
    plain = [sum(round(Fraction(x) / step) for x in entries) for entries in zip(*_lists(data), strict=True)]
    ring = [sum(entries) % RING for entries in zip(*_lists(parts), strict=True)]
    assert ring == [x % RING for x in plain]
    exact = [sum(map(Fraction, entries)) for entries in zip(*_lists(data), strict=True)]
    got = unmasked_sum(parts.values(), clients, torch.float64).flatten().tolist()
    for a, b in zip(got, exact, strict=True):
        assert abs(Fraction(a) - b) <= Fraction(rounding(clients)) + abs(b) * Fraction(1, 2**53)


def _lists(parts: dict[int, Tensor]) -> list[list[float]]:
    return [part.flatten().tolist() for part in parts.values()]


@pytest.mark.parametrize("clients", [3, 4, 5, 8, 9])
def test_the_largest_entries_of_all_clients_do_not_wrap_around(clients: int):
    largest = torch.nextafter(torch.tensor(2.0**RANGE_BITS), torch.tensor(0.0))
    for sign in (1, -1):
        data = {k: sign * largest.repeat(1, 3) for k in range(clients)}
        assert torch.equal(
            unmasked_sum(everybody(data).values(), clients, torch.float64), sum(x.double() for x in data.values())
        )
    assert clients * 2 ** (RANGE_BITS + fraction_bits(clients)) <= 2**SUM_BITS


def test_the_sum_in_float32_is_the_exact_sum_rounded_once():
    data = draws(10, (2, 500), scale=1e-3)
    exact = sum(x.double() for x in data.values())
    got = unmasked_sum(everybody(data).values(), 10, torch.float32)
    assert got.dtype == torch.float32
    assert float((got.double() - exact).abs().max()) <= rounding(10) + 2**-24 * float(exact.abs().max())


# What the server sees of one client.


def test_under_the_same_masks_two_data_sets_differ_by_their_own_difference_only():
    first, second = draws(3, (2, 50)), draws(3, (2, 50), seed=1)
    scale = 2.0 ** fraction_bits(3)
    difference = everybody(first)[4] - everybody(second)[4]
    assert torch.equal(difference, (first[4].double() * scale).long() - (second[4].double() * scale).long())


@pytest.mark.parametrize("what", ["zeros", "ones", "normal", "ramp"])
def test_a_single_part_is_uniform_and_has_nothing_to_do_with_the_data(what: str):
    """Each byte of the ring's numbers is uniform (chi-square, 255 degrees of freedom: below 400 with p > 1 - 1e-8), and
    the correlation with the data is that of independent draws (five standard deviations)."""
    shape = (20, 2000)
    n = shape[0] * shape[1]
    rows = {
        "zeros": torch.zeros(shape), "ones": torch.ones(shape), "normal": draws(1, shape)[1],
        "ramp": torch.linspace(-1000, 1000, n).reshape(shape),
    }[what]  # fmt: skip
    data = dict.fromkeys(range(3), rows)
    for part in everybody(data).values():
        seen = part.numpy().view(np.uint8).reshape(n, 8)
        for place in range(8):
            counts = np.bincount(seen[:, place], minlength=256)
            assert ((counts - n / 256) ** 2 / (n / 256)).sum() < 400
        uniform = part.double().flatten() / 2.0**63
        assert abs(float(uniform.mean())) < 5 / (3 * n) ** 0.5
        assert abs(float((uniform[1:] * uniform[:-1]).mean()) * 3) < 5 / n**0.5
        if float(rows.std()) > 0:
            assert abs(np.corrcoef(uniform.numpy(), rows.flatten().numpy())[0, 1]) < 5 / n**0.5


def test_the_plain_fixed_point_numbers_would_fail_that():
    """The check can fail: without masks the top byte takes two values."""
    scaled = (draws(1, (20, 2000))[1].double() * 2.0 ** fraction_bits(3)).long()
    counts = np.bincount(scaled.numpy().view(np.uint8).reshape(-1, 8)[:, 7], minlength=256)
    assert ((counts - 40000 / 256) ** 2 / (40000 / 256)).sum() > 400


def test_parts_of_all_but_one_client_say_nothing_of_their_sum():
    data = draws(4, (4, 500))
    parts = list(everybody(data).values())
    with pytest.raises(FedForgetError, match="masks did not cancel"):
        unmasked_sum(parts[:3], 4, torch.float32)
    rest = (parts[0] + parts[1] + parts[2]).double().flatten()
    plain = sum(x for x in list(data.values())[:3]).flatten()
    assert abs(np.corrcoef(rest.numpy(), plain.numpy())[0, 1]) < 5 / 2000**0.5


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_beyond_either_end_is_of_masks_that_did_not_cancel(sign: int):
    end = sign * 2**SUM_BITS
    assert unmasked_sum([torch.tensor([[0, end]])], 4, torch.float64)[0, 1] == sign * 2.0**RANGE_BITS * 4
    with pytest.raises(FedForgetError, match="masks did not cancel"):
        unmasked_sum([torch.tensor([[0, end + sign]])], 4, torch.float64)


def test_keys_are_new_every_time_and_masks_repeat_nowhere():
    assert len({new_key()[0] for _ in range(20)}) == 20
    parts = list(everybody({k: torch.zeros(3, 40) for k in range(3)}).values())
    assert len(torch.cat(parts).unique()) == 3 * 3 * 40
    assert all(not torch.equal(a, b) for a, b in pairwise(parts))


# What is refused.


@pytest.mark.parametrize(("clients", "are"), [(0, "are 0"), (1, "is 1"), (2, "are 2")])
def test_fewer_than_three_clients(clients: int, are: str):
    with pytest.raises(InputError) as refusal:
        check_masking(clients)
    assert str(refusal.value) == (
        f"A masked sum needs at least 3 clients that have something to add, but there {are}; do without masks."
    )


def test_without_cryptography_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    check_masking(3)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for work in (lambda: check_masking(3), new_key):
        with pytest.raises(InputError, match="pip install 'cryptography>=42'"):
            work()


@pytest.mark.parametrize("entry", [2.0**RANGE_BITS, -1e9])
def test_an_entry_that_is_too_large(entry: float):
    with pytest.raises(InputError, match="a masked sum takes entries below 1,048,576"):
        everybody({k: torch.tensor([[0.0, entry]]) for k in range(3)})


@pytest.mark.parametrize("entry", [float("nan"), float("inf")])
def test_an_entry_that_is_not_finite(entry: float):
    with pytest.raises(DivergedError, match="The masked sum at client 1 diverged: an entry is"):
        everybody({k: torch.tensor([[0.0, entry]]) for k in range(3)})


@pytest.mark.parametrize("key", [bytes(32), b"short"])
def test_a_public_key_that_is_none(key: bytes):
    """With 32 zeros the agreed secret would be zeros for everybody, the server included."""
    secret, public = keys(3)
    with pytest.raises(InputError, match="Client 4's public key is none"):
        masked(torch.zeros(1, 2), secret[1], 1, public | {4: key})
