"""The evidence file: everything that a verdict was made from, so that anybody can make it again.

    schema, fedforget, level, created      of what form it is, and which code wrote it, when
    request                                the requests, how many samples they name, a fingerprint of those ids
    run                                    the configuration, and a digest of the data set where the server has it
    models                                 digests of before, subject and every oracle; the subject's file and its
                                           bytes, and whether it never saw the target by the way it was made (`exact`)
                                           and what that rests on (`assumed`)
    readings                               each measure on each of them, with its sampling error
    verdict                                what `verdict.conclude` says of the readings, or of an exact subject
    pictures                               histograms and curves, as counts and means: for plots, not for the verdict
    checksum                               of all the rest

It proves what was measured, not who measured it: for that, `fedforget verify` wants a signature (the ledger's)."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedforget.audit.verdict import Evidence, Reading, Verdict, conclude
from fedforget.data.files import write_bytes
from fedforget.errors import InputError

SCHEMA = "fedforget/evidence/2"
"""1 corrected for every measure at both ends and did not look beyond the target: its verdicts follow from other rules.
"""


def code_version() -> str:
    """The installed version of fedforget; a copy that nobody installed has none."""
    try:
        return version("fedforget")
    except PackageNotFoundError:
        return "not installed"


def evidence_record(
    *,
    request: Mapping[str, Any],
    run: Mapping[str, Any],
    models: Mapping[str, Any],
    readings: Sequence[Evidence],
    verdict: Verdict,
    pictures: Mapping[str, Any],
    level: str,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The content of an evidence file, without its checksum."""
    return {
        "schema": SCHEMA,
        "fedforget": code_version(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "level": level,
        "request": dict(request),
        "run": dict(run),
        "models": dict(models),
        "readings": [asdict(reading) for reading in readings],
        "verdict": verdict.to_json(),
        "pictures": dict(pictures),
        "notes": list(notes),
    }


def write_evidence(path: Path, record: Mapping[str, Any]) -> str:
    """Write the file; its SHA-256. There is one way only to write a record, so a changed byte cannot hide."""
    data = _bytes({**record, "checksum": _checksum(record)})
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


SENSELESS = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What a file raises that holds anything at all, with a right checksum too: it is a stranger's."""
SHAPE: dict[str, type] = {
    "fedforget": str, "created": str, "level": str, "request": dict, "run": dict, "models": dict, "readings": list,
    "verdict": dict, "pictures": dict, "notes": list,
}  # fmt: skip


def read_evidence(path: Path) -> dict[str, Any]:
    """The content of an evidence file that is as it was written, and whose verdict follows from its readings. Anything
    else is refused with one sentence."""
    try:
        data = Path(path).read_bytes()
        record = json.loads(data)
        if not isinstance(record, dict):
            raise ValueError
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is no evidence file, or it was changed: it is not readable JSON.") from None
    if record.get("schema") != SCHEMA:
        raise InputError(
            f"{path} has the schema {record.get('schema')!r:.80}, but this fedforget reads {SCHEMA}; audit the run "
            "again, or check the file with the fedforget that wrote it."
        )
    try:
        checksum = record.pop("checksum", None)
        genuine = checksum == _checksum(record) and data == _bytes({**record, "checksum": checksum})
        if not genuine:
            raise InputError(f"{path} was changed after it was written: its checksum is wrong.")
        if not all(isinstance(record[name], kind) for name, kind in SHAPE.items()):
            raise TypeError
        subject, verdict = record["models"].get("subject"), record["verdict"]
        exact = isinstance(subject, dict) and subject.get("exact") is True
        assumed = _sentences(subject.get("assumed", [])) if exact else ()
        again = conclude(readings_of(record), with_oracle=bool(verdict["with_oracle"]), exact=exact, assumed=assumed)
        follows = again.to_json() == verdict
    except SENSELESS:
        raise _senseless(path) from None
    if not follows:
        said = " ".join(str(again).split())
        raise InputError(f"The verdict in {path} does not follow from its readings, which say: {said:.300}")
    return record


def _sentences(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError
    return tuple(values)


def readings_of(record: Mapping[str, Any]) -> list[Evidence]:
    """The readings of a record, as `conclude` takes them; a TypeError or ValueError where they are none."""

    def reading(values: Mapping[str, float] | None) -> Reading | None:
        if values is None:
            return None
        found = Reading(**values)
        for number in (found.value, found.error):
            if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
                raise TypeError
        return found

    found = []
    for item in record["readings"]:
        oracles = tuple(reading(values) for values in item["oracles"])
        e = Evidence(**{**item, **{who: reading(item[who]) for who in ("subject", "before")}, "oracles": oracles})
        flags = (e.over, e.memory, e.rest)
        sound = isinstance(e.name, str) and e.remembers in ("high", "low") and None not in oracles
        if not sound or not all(isinstance(flag, bool) for flag in flags):
            raise TypeError
        found.append(e)
    return found


def verify_evidence(path: Path, model: Path | None = None) -> dict[str, Any]:
    """Check an evidence file and the model it speaks of: `model`, or the file beside it that it names.

    Refuses, with the reason, whatever was changed; returns the record."""
    record = read_evidence(path)
    try:
        subject = record["models"]["subject"]
        expected, name = subject["sha256"], subject["file"]
        if not (expected.isprintable() and name.isprintable() and Path(name).name == name):
            raise ValueError  # a stranger's file does not send us to other folders
        file = model or Path(path).parent / name
        if not file.exists():
            raise InputError(f"The model {file}, of which {path} speaks, is not there; name it with --model.")
        found = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}.") from None
    except SENSELESS:
        raise _senseless(path) from None
    if found != expected:
        raise InputError(f"{file} is not the model that was examined: its SHA-256 is {found}, not {expected:.64}.")
    return record


def _senseless(path: Path) -> InputError:
    return InputError(f"{path} is no evidence file, or it was changed: what it holds makes no sense.")


def _bytes(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, indent=1, allow_nan=False) + "\n").encode()


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True, allow_nan=False).encode()).hexdigest()
