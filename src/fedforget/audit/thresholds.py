"""What is fixed before a request is served: what the check and the verdict hold their measures against.

Whoever serves requests writes it down before the first rung, so that nobody can say later that a threshold was moved
until the model passed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedforget.audit import check, verdict


def thresholds() -> dict[str, Any]:
    """Those of this code.

    >>> thresholds()["check"]["base"]["gap"], thresholds()["verdict"]
    (0.06, {'level': 0.025})
    """
    return {
        "check": {"level": check.LEVEL, "base": dict(check.BASE), "errors": check.ERRORS, "better": check.BETTER},
        "verdict": {"level": verdict.LEVEL},
    }


def held_against(rung: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    """Whether each measure of a rung's check has the margin that follows: base + errors times its standard error."""
    base, errors = written["check"]["base"], written["check"]["errors"]
    measured = (rung.get("check") or {}).get("measured", ())
    return all(
        math.isclose(item["margin"], base[item["name"].removesuffix(check.LATER)] + errors * item["error"])
        for item in measured
    )
