"""Which passwords are refused.

As NIST SP 800-63B has it: a length and a list of what is guessed first, and no rules about kinds of characters. What
everybody guesses is not counted: repeats, sequences, names, and the most common words. What is left must be long
enough to be a secret."""

from __future__ import annotations

import re

from fedforget.errors import InputError

SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 200
"""argon2 reads all of it: a megabyte of password would keep the machine busy."""
FEWEST_SECRET = 8
"""Characters that are in no repeat, sequence, name or common word."""
ROWS = ("abcdefghijklmnopqrstuvwxyz", "1234567890", "0123456789", "qwertyuiop", "qwertzuiop", "azertyuiop", "asdfghjkl",
        "zxcvbnm", "yxcvbnm", "1qaz2wsx3edc4rfv", "1q2w3e4r5t6y7u8i9o0p", "q1w2e3r4t5y6u7i8o9p0")  # fmt: skip
RUNS = {line[place : place + 4] for row in ROWS for line in (row, row[::-1]) for place in range(len(row) - 3)}
"""Neighbours in the alphabet and on keyboards, in both directions. Three of them are in many honest words."""
COMMON = (
    "fedforget", "forget", "federation", "password", "passwort", "passphrase", "passwd", "secret", "letmein", "welcome",
    "hello", "login", "signin", "admin", "administrator", "root", "user", "guest", "default", "changeme", "temporary",
    "test", "demo", "example", "master", "superman", "batman", "iloveyou", "monkey", "dragon", "princess", "sunshine",
    "football", "baseball", "soccer", "shadow", "trustno1", "starwars", "pokemon", "computer", "internet", "server",
    "spring", "summer", "autumn", "winter", "hospital", "company", "abc123", "123", "abc", "qwe",
)  # fmt: skip
"""The product's names, and what lists of leaked passwords begin with."""
DISGUISES = str.maketrans("013457@$!", "oieastasi")
"""p@ssw0rd is guessed as soon as password is."""


def check_password(password: str, account: str) -> None:
    """Refuse what is too short, too long, or guessed by whoever tries the simplest first."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise InputError(f"A password must have {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters.")
    once = without_repeats(password.lower())
    if len(once) < SHORTEST_PASSWORD or secret_characters(once, account) < FEWEST_SECRET:
        raise InputError(
            "This password is among the first that would be guessed: without repeats, sequences, names and common "
            "words too little of it is left; take four words that have nothing to do with each other."
        )


def without_repeats(text: str) -> str:
    """What is said again and again, once.

    >>> [without_repeats(text) for text in ("abcabcabca", "aaaaaaaaaa", "alfalfa", "area")]
    ['abc', 'a', 'alf', 'area']
    """
    periods = range(1, len(text) // 2 + 1)
    return next((text[:length] for length in periods if text.startswith(text[length:])), text)


def secret_characters(text: str, account: str) -> int:
    """How many characters are in no sequence, no name and no common word.

    >>> secret_characters("password12345x", "ann"), secret_characters("ann-of-berlin!", "ann")
    (1, 11)
    """
    names = {part for part in re.split(r"\W|_", account.lower()) if len(part) > 2}
    guessed = [same.span() for same in re.finditer(r"(.)\1\1+", text, re.DOTALL)]
    for shown in (text, text.translate(DISGUISES)):
        for piece in (*COMMON, *RUNS, *names):
            found = (place for place in range(len(shown)) if shown.startswith(piece, place))
            guessed += [(place, place + len(piece)) for place in found]
    return len(text) - len({place for span in guessed for place in range(*span)})
