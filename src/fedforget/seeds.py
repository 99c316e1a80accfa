"""Every random draw comes from a generator named by what it is for.

A generator is derived from the run's seed and a path of names (round, client, purpose), so a draw never depends on
which draws were made before it. That is what makes a resumed run, another engine and another order give the same bits.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedforget.errors import InputError


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the purpose `names` under `seed`.

    >>> derive_seed(0, "round", 3, "client", 1) == derive_seed(0, "round", 3, "client", 1)
    True
    >>> derive_seed(0, "round", 3) == derive_seed(0, "round", 4)
    False
    """
    if seed < 0:
        raise InputError(f"The seed is {seed}, but it must be 0 or larger.")
    path = "/".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") >> 1


def derive_generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator for the purpose `names` under `seed` (see `derive_seed`)."""
    return torch.Generator().manual_seed(derive_seed(seed, *names))


@contextmanager
def seeded_globally(device: torch.device, seed: int, *names: str | int) -> Iterator[None]:
    """For what draws from torch's global generator and nothing else (dropout, `reset_parameters`): inside, it is seeded
    for the purpose `names`; afterwards it is as it was."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        drawn = derive_seed(seed, *names)
        # torch.manual_seed also notes its caller for every device that is not in use yet, which takes milliseconds.
        torch.default_generator.manual_seed(drawn)
        if device.type == "cuda":
            torch.cuda.manual_seed(drawn)
        yield
