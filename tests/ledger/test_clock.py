"""One text for one moment, and deadlines by the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.errors import InputError
from fedforget.ledger.clock import add_months, from_text, to_text, utc_now

MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9990, 1, 1), timezones=st.just(UTC))


@given(MOMENTS, MOMENTS)
def test_the_order_of_the_texts_is_the_order_of_time(a: datetime, b: datetime):
    assert (to_text(a) < to_text(b)) == (a < b)
    assert from_text(to_text(a)) == a
    assert len(to_text(a)) == 27


def test_a_moment_is_one_text_wherever_it_was_told():
    there = datetime(2026, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert to_text(there) == "2026-02-28T23:30:00.000000Z"
    with pytest.raises(InputError, match="no time zone"):
        to_text(datetime(2026, 1, 1))
    assert utc_now().tzinfo is UTC


@pytest.mark.parametrize("text", ["", "2026-01-01", "2026-01-01T00:00:00Z", "2026-1-1T00:00:00.000000Z"])
def test_another_text_is_none_of_ours(text: str):
    with pytest.raises(ValueError):
        from_text(text)


@pytest.mark.parametrize(
    ("received", "months", "due"),
    [
        ("2026-01-15", 1, "2026-02-15"),
        ("2026-01-31", 1, "2026-02-28"),
        ("2028-01-31", 1, "2028-02-29"),
        ("2026-01-31", 3, "2026-04-30"),
        ("2026-11-30", 3, "2027-02-28"),
        ("2026-12-31", 2, "2027-02-28"),
    ],
)
def test_months_are_the_calendars(received: str, months: int, due: str):
    moment = datetime.fromisoformat(received).replace(hour=9, tzinfo=UTC)
    assert add_months(moment, months).date().isoformat() == due
    assert add_months(moment, months).hour == 9


@given(MOMENTS, st.integers(0, 24))
def test_never_earlier_and_never_a_day_more(moment: datetime, months: int):
    later = add_months(moment, months)
    assert (later.year * 12 + later.month) - (moment.year * 12 + moment.month) == months
    assert later.day <= moment.day
