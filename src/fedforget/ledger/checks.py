"""What people type, checked before anything is done with it."""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum
from typing import TypeVar

from fedforget.errors import InputError
from fedforget.ledger.errors import MissingError

Word = TypeVar("Word", bound=StrEnum)
LONGEST_REASON = 1000
MOST_DAYS = 36500


def check_account_name(name: str) -> str:
    """Lower case: no two accounts differ by capitals alone."""
    name = name.strip().lower()
    told = "name for an account; use letters, digits and . _ @ + -, 64 characters at most"
    return _matching(name, r"[a-z0-9][a-z0-9._@+-]{0,63}", told)


def check_federation_name(name: str) -> str:
    told = "name for a federation; use small letters, digits and . _ -, 64 characters at most"
    return _matching(name, r"[a-z0-9][a-z0-9._-]{0,63}", told)


def check_subject(subject: str) -> str:
    """A reference that means something to the requester alone. We cannot know a name when we see one, but an address or
    a sentence is no reference."""
    told = (
        "subject reference; use a case number of your own without spaces or @, letters, digits and . _ / : # -, 64 "
        "characters at most, and never a person's name or address"
    )
    return _matching(subject, r"[A-Za-z0-9][A-Za-z0-9._/:#-]{0,63}", told)


def _matching(text: str, pattern: str, told: str) -> str:
    if not re.fullmatch(pattern, text):
        raise InputError(f"'{_short(text)}' is no {told}.")
    return text


def check_reason(reason: str) -> str:
    """Text for people: some, not too much, and nothing that a terminal or a database would stumble over."""
    reason = " ".join(reason.split())
    if not reason:
        raise InputError("A reason is needed; say in a sentence why.")
    if len(reason) > LONGEST_REASON:
        raise InputError(f"The reason has {len(reason)} characters; {LONGEST_REASON} are enough.")
    if not reason.isprintable():
        raise InputError("The reason holds characters that cannot be printed.")
    return reason


def check_label(label: str) -> str:
    label = label.strip()
    if not label or len(label) > 64 or not label.isprintable():
        raise InputError("The token's label must be 1 to 64 characters that can be printed.")
    return label


def check_word(kind: type[Word], value: str, what: str) -> Word:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(f"'{word}'" for word in kind)
        raise InputError(f"The {what} '{_short(value)}' is unknown; choose one of {known}.") from None


def check_limit(limit: object) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit <= 100:
        raise InputError(f"The accuracy limit is {limit!r}, but it must be a number of points from 0 to 100.")


def check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"The setting '{name}' is {value!r}, but it must be a whole number from {least} to {most}.")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_id(text: str) -> str:
    """A stranger's id of a request: one that cannot be is one that is not there."""
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise MissingError(f"There is no request '{_short(text)}'.")
    return text


def searchable(text: str) -> str:
    """A stranger's word, to look something up by. Nothing has a name with a NUL or half a character in it, and some
    databases would stumble over them."""
    return text if text.isprintable() else ""


def _short(text: str) -> str:
    shown = text if text.isprintable() else repr(text)[1:-1]
    return shown if len(shown) <= 80 else shown[:77] + "..."
