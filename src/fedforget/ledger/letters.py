"""Drafts of letters to the person who asked, as plain text for an officer to copy and complete.

What is in [brackets] only the officer knows: the ledger has no names. Article 12 GDPR says what each must say."""

from __future__ import annotations

from datetime import datetime

from fedforget.audit.verdict import GONE
from fedforget.errors import InputError
from fedforget.ledger.clock import add_months
from fedforget.ledger.papers import STILL, WORDS, code_of, day
from fedforget.ledger.schema import Certificate, Request
from fedforget.ledger.states import RequestState

COMPLAIN = (
    "If you do not agree, you can lodge a complaint with a supervisory authority, above all where you live or work or "
    "where you think that the law was broken [name and address of the authority], and you can seek a judicial remedy."
)
NO_PROOF = (
    "This is no proof that nothing of your data is left: it says what was measured, or how the model was made. Copies "
    "of the old model that others may have, and backups, are not part of it."
)


def letters_for(request: Request, why: str | None = None) -> list[str]:
    """The letters that make sense for a request as it is, the most pressing first. `why`: its certificate was
    withdrawn, and why."""
    failed = ["waiting"] if why is None else []
    found = {
        RequestState.REFUSED: ["refused"], RequestState.DONE: ["done", "complaint"], RequestState.FAILED: failed,
        RequestState.DECIDING: ["waiting"],
    }.get(RequestState(request.state), [])  # fmt: skip
    return [
        *found,
        *(["withdrawn"] if why is not None else []),
        *(["extended"] if request.extended else []),
        "received",
    ]


def draft(
    request: Request, kind: str, certificate: Certificate | None, verdict: str | None, now: datetime,
    why: str | None = None,
) -> str:  # fmt: skip
    """The text of one letter; `why` as in `letters_for`."""
    if kind not in letters_for(request, why):
        known = ", ".join(letters_for(request, why))
        raise InputError(f"There is no letter '{kind[:40]}' for a request that is {request.state}; there are {known}.")
    paragraphs = {
        "received": _received, "extended": _extended, "refused": _refused, "waiting": _waiting,
    }  # fmt: skip
    if kind == "done":
        body = _done(request, certificate, verdict)
    elif kind == "complaint":
        body = _complaint(request, verdict)
    elif kind == "withdrawn":
        assert certificate is not None
        body = _withdrawn(request, certificate, str(why))
    else:
        body = paragraphs[kind](request)
    head = f"[Name and address]\n\n[Place], {day(now)}"
    about = f"Your request of {day(request.received)}, reference {request.subject}"
    end = "Yours sincerely,\n[name], [organisation], data protection\n"
    return "\n\n".join([head, about, "Dear [name],", *body, end])


def _received(request: Request) -> list[str]:
    return [
        f"We received your request of {day(request.received)} to have a model forget data ({_what(request)}).",
        f"We will tell you by {day(add_months(request.received, 1))} what was done. Where a request is complex, "
        "this can take up to two months longer; we would then tell you why before that day.",
        "If we are not sure who you are, we will ask you for what is needed to make sure, and for nothing more.",
    ]


def _extended(request: Request) -> list[str]:
    months = "one month" if request.extended == 1 else "two months"
    return [
        f"Your request to have a model forget data ({_what(request)}) takes longer than a month.",
        f"The time has been extended by {months}, to {day(request.due)}. The reason: {request.extension_reason}",
        COMPLAIN,
    ]


def _refused(request: Request) -> list[str]:
    return [
        f"We do not act on your request to have a model forget data ({_what(request)}). The reason: {request.reason}",
        COMPLAIN,
    ]


def _waiting(request: Request) -> list[str]:
    return [
        f"We are working on your request to have a model forget data ({_what(request)}). It was tried, and what was "
        "found is not enough to end it, so a person here decides what is done next.",
        f"You will hear from us by {day(request.due)}.",
    ]


def _done(request: Request, certificate: Certificate | None, verdict: str | None) -> list[str]:
    said = [f"Your request to have a model forget data ({_what(request)}) was served on {day(request.changed)}."]
    if verdict is not None:
        said.append(f"The result is: {verdict}. {WORDS[verdict]}")
        if verdict not in GONE:
            said.append("The new model is used all the same. [Say why, and what else is done for this person.]")
    said.append(NO_PROOF)
    if certificate is not None:
        said.append(
            "The certificate is attached, with the signed file, our public key and the list of withdrawals, by which "
            f"anybody can check it. Its code is {code_of(certificate.sha256)}; we tell you at any time whether it "
            "still holds."
        )
    if verdict not in GONE:
        said.append(COMPLAIN)
    return said


def _complaint(request: Request, verdict: str | None) -> list[str]:
    """The answer to who says that the data is still recognised."""
    said = [f"You tell us that the model still recognises data that you had asked it to forget ({_what(request)})."]
    if verdict in GONE:
        said += [
            f"Your request was served on {day(request.changed)}, and the result was: {verdict}. {WORDS[verdict]}",
            STILL + " That it is recognised is therefore no sign that yours was used.",
        ]
    elif verdict is not None:
        said.append(f"The result of your request was: {verdict}. {WORDS[verdict]} [Say what is done now.]")
    said += [
        "If you saw more than that, such as a sample of yours as it was, please tell us what you did and what came "
        "out. We then examine today's model as a new request, and tell you within a month what was found.",
        COMPLAIN,
    ]
    return said


def _withdrawn(request: Request, certificate: Certificate, why: str) -> list[str]:
    assert certificate.withdrawn is not None
    said = [
        f"The certificate that we sent you for your request to have a model forget data ({_what(request)}) holds no "
        f"more: it was withdrawn on {day(certificate.withdrawn)}. Its code is {code_of(certificate.sha256)}. "
        f"The reason: {why}"
    ]
    if request.state != RequestState.REFUSED:
        said.append(f"Your request is open again. You will hear from us by {day(request.due)} [or say by when].")
    return [*said, COMPLAIN]


def _what(request: Request) -> str:
    return f"{request.erasure.describe()} in the federation {request.federation}"
