"""The evidence file: everything that a verdict was made from, so that anybody can make it again.

    schema, fedforget, level, created      of what form it is, and which code wrote it, when
    request                                the requests, how many samples they name, a fingerprint of those ids
    run                                    the configuration, and a digest of the data set where the server has it
    models                                 digests of before, subject and every oracle; the subject's file and its bytes
    readings                               each measure on each of them, with its sampling error
    verdict                                what `verdict.conclude` says of the readings
    pictures                               histograms and curves, as counts and means: for plots, not for the verdict
    checksum                               of all the rest

It proves what was measured, not who measured it: for that, `fedforget verify` wants a signature (the ledger's)."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedforget.audit.verdict import Evidence, Reading, Verdict, conclude
from fedforget.errors import InputError
from fedforget.files import write_bytes

SCHEMA = "fedforget/evidence/1"


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


def read_evidence(path: Path) -> dict[str, Any]:
    """The content of an evidence file that is as it was written, and whose verdict follows from its readings."""
    try:
        data = Path(path).read_bytes()
        record = json.loads(data)
        if not isinstance(record, dict):
            raise ValueError
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise InputError(f"{path} is no evidence file, or it was changed: it is not readable JSON.") from None
    if record.get("schema") != SCHEMA:
        raise InputError(f"{path} has the schema {record.get('schema')!r}, but this fedforget reads {SCHEMA}.")
    checksum = record.pop("checksum", None)
    if checksum != _checksum(record) or data != _bytes({**record, "checksum": checksum}):
        raise InputError(f"{path} was changed after it was written: its checksum is wrong.")
    again = conclude(readings_of(record), with_oracle=bool(record["verdict"]["with_oracle"]))
    if again.to_json() != json.loads(json.dumps(record["verdict"]), object_pairs_hook=_tuples):
        raise InputError(f"The verdict in {path} does not follow from its readings, which say: {again}")
    return record


def readings_of(record: Mapping[str, Any]) -> list[Evidence]:
    """The readings of a record, as `conclude` takes them."""

    def reading(values: Mapping[str, float] | None) -> Reading | None:
        return None if values is None else Reading(**values)

    return [
        Evidence(
            item["name"], item["remembers"], reading(item["subject"]), reading(item["before"]),
            tuple(Reading(**values) for values in item["oracles"]), item["over"], item["memory"],
        )
        for item in record["readings"]
    ]  # fmt: skip


def verify_evidence(path: Path, model: Path | None = None) -> dict[str, Any]:
    """Check an evidence file and the model it speaks of: `model`, or the file beside it that it names.

    Refuses, with the reason, whatever was changed; returns the record."""
    record = read_evidence(path)
    subject = record["models"]["subject"]
    file = model or Path(path).parent / subject["file"]
    if not file.exists():
        raise InputError(f"The model {file}, of which {path} speaks, is not there; name it with --model.")
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != subject["sha256"]:
        raise InputError(f"{file} is not the model that was examined: its SHA-256 is {found}, not {subject['sha256']}.")
    return record


def _tuples(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON has no tuples; a verdict has."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in pairs}


def _bytes(record: Mapping[str, Any]) -> bytes:
    return (json.dumps(record, indent=1, allow_nan=False) + "\n").encode()


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True, allow_nan=False).encode()).hexdigest()
