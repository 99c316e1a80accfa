"""Named generators: the same name gives the same draws, another name others."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedforget.errors import InputError
from fedforget.seeds import derive_generator, derive_seed

names = st.lists(st.one_of(st.integers(0, 1000), st.text("abcdefgh0123456789-", max_size=8)), max_size=4)


@given(seed=st.integers(0, 2**40), path=names)
def test_a_seed_is_63_bits_and_depends_on_nothing_else(seed, path):
    drawn = derive_seed(seed, *path)
    assert 0 <= drawn < 2**63
    assert derive_seed(seed, *path) == drawn
    torch.Generator().manual_seed(drawn)


@given(first=st.tuples(st.integers(0, 50), names), second=st.tuples(st.integers(0, 50), names))
def test_another_path_is_another_seed(first, second):
    assert (derive_seed(first[0], *first[1]) == derive_seed(second[0], *second[1])) == (first == second)


def test_numbers_and_their_text_differ():
    assert derive_seed(0, "round", 3) != derive_seed(0, "round", "3")
    assert derive_seed(1, 2) != derive_seed(12)
    assert derive_seed(0, "ab", "c") != derive_seed(0, "a", "bc")


def test_seeds_are_stable_over_versions():
    """Saved runs are resumed with them, so they must never change."""
    assert derive_seed(0) == 3456079177858693020
    assert derive_seed(7, "round", 3, "client", 1, "order") == 1409474754093327110


def test_generators_start_anew_and_leave_the_global_one_alone():
    before = torch.get_rng_state()
    first, again, other = (torch.rand(5, generator=derive_generator(4, "a", k)) for k in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_seeds_of_neighbours_are_unrelated():
    """Half of the bits differ between the seeds of round r and r + 1, on average."""
    bits = [bin(derive_seed(0, "round", r) ^ derive_seed(0, "round", r + 1)).count("1") for r in range(400)]
    # 63 fair bits: mean 31.5, standard error 0.2.
    assert abs(sum(bits) / len(bits) - 31.5) < 1.0


def test_a_negative_seed_is_refused():
    with pytest.raises(InputError, match=r"^The seed is -1, but it must be 0 or larger\.$"):
        derive_seed(-1, "round")
