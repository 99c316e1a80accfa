"""The small federation that the tests of the adapter share."""

from __future__ import annotations

import pytest
from flower_worlds import World, make_world


@pytest.fixture(scope="session")
def world() -> World:
    return make_world("cnn")
