"""What the queue's page is searched by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import get_args

from fedforget.audit.verdict import Word
from fedforget.ledger.search import Wanted
from fedforget.ledger.states import Ground

VERDICTS: tuple[str, ...] = get_args(Word)


@dataclass(frozen=True)
class Search:
    """The fields of the form, as they stand in the address."""

    text: str = ""
    federation: str = ""
    ground: str = ""
    verdict: str = ""
    since: str = ""
    until: str = ""

    def given(self) -> dict[str, str]:
        """What was said, for links to the same search."""
        return {name: value for name, value in vars(self).items() if value}

    @property
    def folded(self) -> bool:
        """Whether nothing but words and a federation was said."""
        return not (self.ground or self.verdict or self.since or self.until)

    def wanted(self) -> tuple[Wanted, str]:
        """What must be true of a request, and what is wrong with what was said: that is left out."""
        found: Wanted = {"text": self.text[:200] or None, "federation": self.federation[:64] or None}
        wrong = []
        if self.ground in list(Ground):
            found["ground"] = self.ground
        if self.verdict in VERDICTS:
            found["verdict"] = self.verdict
        for said, last in ((self.since, False), (self.until, True)):
            try:
                day = date.fromisoformat(said) if said else None
                if day is not None:
                    moment = datetime(day.year, day.month, day.day, tzinfo=UTC)
                    if last:
                        found["received_before"] = moment + timedelta(days=1)
                    else:
                        found["received_from"] = moment
            except (ValueError, OverflowError):
                wrong.append(f"'{said[:40]}' is no day; write it as 2026-01-31.")
        return found, " ".join(wrong)
