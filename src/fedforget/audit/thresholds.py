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
        "check": {
            "level": check.LEVEL, "base": dict(check.BASE), "of_unknown": check.OF_UNKNOWN, "errors": check.ERRORS,
            "better": check.BETTER,
        },
        "verdict": {"level": verdict.LEVEL},
    }  # fmt: skip


def held_against(rung: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    """Whether each measure of a rung's check has the margin that follows: base + errors times its standard error."""
    fixed, found = written["check"], rung.get("check") or {}
    known, of_unknown = found.get("known"), fixed.get("of_unknown")  # missing in older records, where it was no rule

    def margin(item: Mapping[str, Any]) -> float:
        name = item["name"].removesuffix(check.LATER)
        base: float = check.base_of(name, known, fixed["base"], of_unknown)
        return base + float(fixed["errors"] * item["error"])

    return all(math.isclose(item["margin"], margin(item)) for item in found.get("measured", ()))
