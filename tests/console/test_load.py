"""The console under load, shortly: no errors, and a ledger that is whole afterwards. Times are the benchmark's to tell
(`python -m benchmarks.console_load`), not a test's."""

from __future__ import annotations

import pytest
from benchmarks.console_load import measure


@pytest.mark.slow
def test_under_load():
    found = measure(seconds=8.0, rate=60.0, requests=100)
    assert found["errors"] == 0, found["first_errors"]
    assert found["answered"] == found["asked"]
    assert found["submitted"] == found["asked"] // 10
    assert found["ledger"]["requests"] == found["ledger"]["expected"]
    assert found["ledger"]["intact"], found["ledger"]["problems"]
    assert found["server_exit"] == 0
