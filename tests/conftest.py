"""Makes the slow twins in tests/reference importable, and tests' own arithmetic single-threaded.

The tensors of most tests are tiny: on a busy machine a second thread makes them slower by an order of magnitude. A
task still runs with the thread count it names."""

import gc
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS / "reference"))
torch.set_num_threads(1)

LONGEST_FIRST = (
    "flower/test_superlink.py", "test_privacy.py", "benchmarks/test_bench_command.py", "ledger/test_worker.py",
    "contract/test_methods.py", "flower/test_simulation.py", "flower/test_same_bits.py", "console/test_browser.py",
    "experiments/test_every_experiment.py", "methods/test_sketch_memory.py", "console/test_server.py", "test_cli.py",
    "ledger/test_intake.py", "ledger/test_backup.py", "test_report_evidence.py", "audit/test_examine.py",
    "experiments/test_engine.py", "test_wheel.py", "ledger/test_versions.py", "test_library_example.py",
    "ledger/test_rules.py", "ledger/test_certificate.py", "ledger/test_ledger_commands.py", "test_pipeline.py",
    "ledger/test_worker_guards.py", "ledger/test_archive.py", "ledger/test_recorded.py", "ledger/test_run_folders.py",
    "data/test_data_cifar10.py", "flower/test_examples.py", "flower/test_app.py", "test_determinism.py",
    "ledger/test_consistency.py", "ledger/test_chain.py", "test_auditing.py", "test_imports.py",
)  # fmt: skip
"""Files in which `make test` spends the most time. They begin first, so that no core is left alone with one of them at
the end; nothing but the time depends on the order."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is not `daily`, before the marks choose; and put the longest files first."""
    seen: Counter[str] = Counter()
    for item in items:
        daily, real = item.get_closest_marker("daily"), item.get_closest_marker("real")
        if daily and not real:
            test = item.nodeid.partition("[")[0]
            seen[test] += 1
            if seen[test] > daily.args[0]:
                item.add_marker("real")
    places = {TESTS / name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """What is there now is never garbage: searched again at every collection, it takes a tenth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes stay out of a test's name: a gzip file holds the second it was made in, and parallel workers must agree on
    the name of each test."""
    return "bytes" if isinstance(val, bytes) else None
