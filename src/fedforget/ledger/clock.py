"""Time: aware UTC everywhere, one text for one moment, calendar months for deadlines."""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Dialect, String
from sqlalchemy.types import TypeDecorator

from fedforget.errors import InputError

Clock = Callable[[], datetime]
MOST_JUMP = timedelta(hours=1)
"""By how much the clock may go ahead of the machine's own before a person must look."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def machine_seconds() -> float:
    """Of the machine's own clock, which nobody sets; where there is such a one, it goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Jumps:
    """Whether the wall clock went ahead of the machine's own since this was made."""

    def __init__(self, clock: Clock, seconds: Callable[[], float] = machine_seconds) -> None:
        self._clock, self._seconds = clock, seconds
        self._least = self._ahead()

    def jump(self) -> timedelta:
        """By how much. A clock that was set back, since it was wrong, is right from then on."""
        ahead = self._ahead()
        self._least = min(self._least, ahead)
        return ahead - self._least

    def _ahead(self) -> timedelta:
        return self._clock() - datetime.fromtimestamp(self._seconds(), UTC)


def to_text(moment: datetime) -> str:
    """ISO 8601 in UTC, always 27 characters: the order of the texts is the order of time.

    >>> to_text(datetime(2026, 1, 31, 12, tzinfo=UTC))
    '2026-01-31T12:00:00.000000Z'
    """
    if moment.tzinfo is None:
        raise InputError(f"The time {moment} has no time zone.")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def from_text(text: str) -> datetime:
    """What `to_text` wrote; ValueError for anything else."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    if to_text(moment) != text:
        raise ValueError(text)
    return moment


class Moment(TypeDecorator[datetime]):
    """A moment as text. The chain hashes times, so both databases and a backup must hold the very same characters."""

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        return None if value is None else to_text(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)  # many a row: strptime would be slow


def add_months(moment: datetime, months: int) -> datetime:
    """That many calendar months later; if the month has no such day, its last one.

    >>> add_months(datetime(2026, 1, 31, tzinfo=UTC), 1).date().isoformat()
    '2026-02-28'
    """
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)
