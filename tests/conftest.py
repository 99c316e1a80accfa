"""Makes the slow twins in tests/reference importable, and tests' own arithmetic single-threaded.

The tensors of most tests are tiny: on a busy machine a second thread makes them slower by an order of magnitude. A
task still runs with the thread count it names."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "reference"))
torch.set_num_threads(1)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes stay out of a test's name: a gzip file holds the second it was made in, and parallel workers must agree on
    the name of each test."""
    return "bytes" if isinstance(val, bytes) else None
