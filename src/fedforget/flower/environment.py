"""The variables that keep everything we start quiet: no telemetry, no update check, no installing at run time."""

from __future__ import annotations

import os
from pathlib import Path

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Flower posts events, looks for a newer version, and installs an app's dependencies unless told otherwise; so does
Ray with its usage."""


def quiet_environment(home: Path) -> dict[str, str]:
    """This process's environment, quiet, with Flower's connections and installed apps in the folder `home`."""
    return {**os.environ, **QUIET, "FLWR_HOME": str(home)}
