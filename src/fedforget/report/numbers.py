"""Numbers as the report writes them. What was not measured is a dash."""

from __future__ import annotations

import math

DASH = "–"


def number(value: float | None, form: str) -> str:
    """In this form of Python's; a dash where nothing was measured, never a zero."""
    return DASH if value is None or math.isnan(value) else format(value, form).replace("-", "\N{MINUS SIGN}")


def points(value: float | None) -> str:
    """A percentage without its sign."""
    return number(value, ".1f")


def percent(value: float | None) -> str:
    found = points(value)
    return found if found == DASH else f"{found}\N{NO-BREAK SPACE}%"


def loss(value: float | None) -> str:
    return "∞" if value is not None and math.isinf(value) else number(value, ".3g")


def sensed(value: float | None) -> str:
    """A sensitivity."""
    return number(value, ".4f")


def amount(value: float | None) -> str:
    return number(value, ",.0f")


def seconds(value: float | None) -> str:
    if value is None:
        return DASH
    if value >= 600:
        return f"{value / 60:.0f} min"
    return f"{value:.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 1 else f"{value:.2f} s"


def human_bytes(value: float | None) -> str:
    if value is None:
        return DASH
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.3g} TB"


def ratio(value: float | None, to: float | None) -> str:
    """A cost as a share of Retrain's, rounded against the method: 1/38, or 2.3 times."""
    if not value or not to or value < 0:
        return DASH
    if value > 0.95 * to:
        return f"{math.ceil(10 * value / to - 1e-9) / 10:.1f} times"
    return f"1/{math.floor(to / value)}" if to >= 10 * value else f"1/{math.floor(10 * to / value) / 10:g}"
