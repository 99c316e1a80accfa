"""Papers for people: the certificate on one page, as what it says; `printing` makes HTML and PDF of it.

The words come from the signed certificate alone. The code on the page is the beginning of the SHA-256 of its file:
`fedforget verify` prints the same code for the file, and the console finds the certificate by it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fedforget.audit.verdict import GONE, compared_with
from fedforget.errors import InputError
from fedforget.ledger.certificate import read_certificate
from fedforget.ledger.clock import from_text
from fedforget.ledger.states import RequestState

CODE = 20
MOST_LISTED = 40
WORDS = {
    "exact": "The new model was trained afresh without the data, so it never saw it.",
    "forgotten": "By what was measured, the new model treats the data as if it had never seen it.",
    "not forgotten": "By what was measured, the new model still remembers the data.",
    "over-forgotten": "By what was measured, the new model is worse than one that never saw the data.",
    "not enough evidence": "What was measured cannot tell whether the new model still remembers the data.",
}
STILL = (
    "Where others hold data of the same kind, the model can still recognise data like it: a model that never saw it "
    "does so too."
)


@dataclass(frozen=True)
class Section:
    """A heading, and what stands under it: (what, said) of each line; without `what` it is a sentence."""

    heading: str
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Paper:
    """One page."""

    title: str
    about: str
    verdict: str
    meaning: str
    good: bool
    warning: str | None
    """That it was withdrawn."""
    sections: tuple[Section, ...]
    code: str
    fingerprint: str
    made: datetime


def certificate_paper(text: str, withdrawn: tuple[datetime, str] | None = None) -> Paper:
    """The page of a certificate, as it was issued; `withdrawn`: when and why."""
    record, sha256 = read_certificate(text), hashlib.sha256(text.encode()).hexdigest()
    request, verdict = record["request"], record["measured"]["verdict"]
    warning = None if withdrawn is None else f"Withdrawn on {day(withdrawn[0])}. It holds no more. {withdrawn[1]}"
    return Paper(
        title="Certificate of an erasure request",
        about=f"Reference {request['subject']}",
        verdict=verdict["word"],
        meaning=WORDS[verdict["word"]],
        good=verdict["word"] in GONE and withdrawn is None,
        warning=warning,
        sections=(_asked(record), _done(record), _measured(record), _not_proved(record), _checked(record, sha256)),
        code=code_of(sha256),
        fingerprint=sha256,
        made=from_text(record["issued"]),
    )


def code_of(sha256: str) -> str:
    """The beginning of a certificate's SHA-256, as people type it.

    >>> code_of("0123456789abcdef" * 4)
    '0123-4567-89ab-cdef-0123'
    """
    return "-".join(sha256[place : place + 4] for place in range(0, CODE, 4))


def read_code(text: str) -> str:
    """The beginning of the SHA-256 that somebody typed."""
    found = re.sub(r"[\s-]", "", text.lower())
    if re.fullmatch(rf"[0-9a-f]{{{CODE},64}}", found) is None:
        raise InputError(f"A code has {CODE} digits and letters from a to f, such as 0123-4567-89ab-cdef-0123.")
    return found


def day(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"


def listed(ids: Sequence[int]) -> str:
    """Which samples, so far as there is room.

    >>> listed([3, 5]), listed(range(42))[-17:]
    ('3, 5', '38, 39 and 2 more')
    """
    more = f" and {len(ids) - MOST_LISTED} more" if len(ids) > MOST_LISTED else ""
    return ", ".join(map(str, ids[:MOST_LISTED])) + more


def further_rounds(record: dict[str, Any]) -> int | None:
    """For how many rounds of further training was looked at the model; None: an older certificate does not say."""
    return record["measured"]["verdict"].get("further_rounds")


def _asked(record: dict[str, Any]) -> Section:
    request = record["request"]
    ids = request["target"].get("sample_ids", ())
    return Section(
        "What was asked",
        (
            ("To forget", f"{request['describes']}, of the federation {request['federation']}"),
            *([("Samples", listed(ids))] if ids else []),
            ("Legal ground", request["ground"]),
            ("Received", f"{day(from_text(request['received']))}; due {day(from_text(request['due']))}"),
        ),
    )


def _done(record: dict[str, Any]) -> Section:
    before, after, method = record["before"], record["after"], record["method"]
    rungs = [f"{rung['name']} ({rung['word']})" for rung in method.get("rungs", ())]
    lines = [
        ("Done", f"On {day(from_text(record['trail'][-1]['at']))}, version {after['version']} of the model replaced "
                 f"version {before['version']}."),
        ("Method", f"{method['name']}, {method['preset']}" + (f"; tried: {', then '.join(rungs)}" if rungs else "")),
        ("Models", f"before {before['sha256'][:16]}…, after {after['sha256'][:16]}…"),
    ]  # fmt: skip
    if record["decision"] is not None:
        decision = record["decision"]
        lines.append(("Decided", f"{decision['officer']} published it: {decision['reason']} ({decision['held']})"))
    return Section("What was done", tuple(lines))


def _measured(record: dict[str, Any]) -> Section:
    measured, level = record["measured"], record["evidence"]["level"]
    verdict, rounds = measured["verdict"], further_rounds(record)
    looked = f"at once and after {rounds} further round{'s' if rounds > 1 else ''} of training" if rounds else "at once"
    looked = "for how many further rounds stands in the report" if rounds is None else looked
    lines = [
        ("Verdict", f"{verdict['word']}, {for_people(compared_with(verdict))}. "
                    f"{for_people(' '.join(verdict['reasons']))}"),
        ("Looked", f"{looked} (audit level {level})"),
        ("Accuracy", f"on the data that stays: {_percent(measured['accuracy_before'])} before, "
                     f"{_percent(measured['accuracy_after'])} after"),
    ]  # fmt: skip
    for name, heard in verdict.get("sensitivity", {}).items():
        told = ", ".join(f"{who} {value:.4f}" for who, value in heard.items() if value is not None)
        lines.append((name.capitalize(), told))
    lines += [("Note", for_people(note)) for note in verdict.get("notes", ())]
    if record.get("thresholds"):
        claim = next(event for event in reversed(record["trail"]) if event["kind"] == RequestState.FORGETTING)
        at = day(from_text(claim["at"]))
        lines.append(("Thresholds", f"written down before the first attempt (event {claim['number']}, {at})"))
    return Section("What was measured", tuple(lines))


def _not_proved(record: dict[str, Any]) -> Section:
    rounds, exact = further_rounds(record), record["measured"]["verdict"]["word"] == "exact"
    within = "" if exact else " A verdict holds within what the audit can see."
    beyond = ""  # where an older certificate does not say it
    if rounds is not None:
        many = "one round" if rounds == 1 else f"{rounds} rounds"
        beyond = f"Nobody looked {f'further than {many} of' if rounds else 'at it after'} later training. "
    like = (STILL,) if record["measured"]["verdict"]["word"] in GONE else ()
    said = (
        f"It is no proof that nothing of the data is left.{within}",
        f"{beyond}What was forgotten may come back in training that uses the same data again.",
        *like,
        "It says nothing of copies of the old model elsewhere, such as backups and what others downloaded.",
        "It may have been withdrawn since. Check it, by the code below.",
    )
    return Section("What this does not prove", tuple(("", sentence) for sentence in said))


def _checked(record: dict[str, Any], sha256: str) -> Section:
    name = f"certificate-{record['request']['id'][:12]}.json"
    return Section(
        "How to check it",
        (
            ("Code", code_of(sha256)),
            ("In the console", "under Verify, type the code, or ask who sent you this: does it still hold?"),
            ("Offline", f"fedforget verify {name} --key {record['key']}.public.pem --withdrawals withdrawals.json"),
            ("Fingerprint", f"SHA-256 of {name}: {sha256}"),
            ("Signed", f"{day(from_text(record['issued']))}, with the key {record['key']}, ledger {record['ledger']}"),
        ),
    )  # fmt: skip


def _percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1f} %"


def for_people(text: str) -> str:
    """Sentences of the audit, without its word for a model that never saw the target, and without options of commands.

    >>> for_people("beside three oracles, above an oracle's")
    "beside three models that never saw it, above a model's that never saw it"
    """
    for word, said in (("an oracle's", "a model's that never saw it"), ("an oracle", "a model that never saw it"),
                       ("one oracle", "one model that never saw it"), ("oracles", "models that never saw it"),
                       ("oracle", "model that never saw it")):  # fmt: skip
        text = text.replace(word, said)
    return re.sub(r": --[a-z-]+ \w+", "", text)
