"""Makes the slow twins in tests/reference importable, and tests' own arithmetic single-threaded.

The tensors of most tests are tiny: on a busy machine a second thread makes them slower by an order of magnitude. A
task still runs with the thread count it names."""

import errno
import gc
import ipaddress
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedforget.data import locations

sys.path.insert(0, str(Path(__file__).parent / "reference"))
torch.set_num_threads(1)

SOURCES = {
    "mnist": ("train-images-idx3-ubyte.gz",),
    "cifar10": ("train-*.parquet", "cifar-10-binary.tar.gz"),
    "celeba": ("*.parquet",),
}
"""The files by which a data set that is not in the package is known."""


@pytest.fixture(scope="module")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """The folder of a real data set, wherever `load_dataset` finds it on this machine; where it is not, the test is
    skipped. Its files are decoded into an empty cache, so that the decoder itself is under test."""
    with pytest.MonkeyPatch.context() as patch:

        def find(name: str) -> Path:
            folder = locations.find_folder(name, *SOURCES[name])
            if folder is None:
                pytest.skip(f"{name} is not on this machine; put it into $FEDFORGET_DATA/{name}")
            patch.setenv("FEDFORGET_DATA", str(folder.parent))
            patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
            return folder

        yield find


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Nothing in a test's own process reaches beyond this machine: what would be downloaded is missing, as it is in a
    new clone without a network."""
    connect = socket.socket.connect

    def stay(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else "localhost"  # a Unix socket's address is a path
        if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
            raise OSError(errno.ENETUNREACH, f"{host} is beyond this machine, and tests stay on it")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", stay)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is not `daily`, before the marks choose."""
    seen: Counter[str] = Counter()
    for item in items:
        daily, real = item.get_closest_marker("daily"), item.get_closest_marker("real")
        if daily and not real:
            test = item.nodeid.partition("[")[0]
            seen[test] += 1
            if seen[test] > daily.args[0]:
                item.add_marker("real")


def pytest_collection_finish() -> None:
    """What is there now is never garbage: searched again at every collection, it takes a tenth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes stay out of a test's name: a gzip file holds the second it was made in, and parallel workers must agree on
    the name of each test."""
    return "bytes" if isinstance(val, bytes) else None
