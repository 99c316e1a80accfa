"""`fedforget verify FILE`: is it as it was written? An evidence file with its verdict and its model, or a certificate
with its signature, its events and its hashes; offline. `fedforget verify RUN`: is what it calls exact the same training
without the target?"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedforget.audit.evidence import read_evidence, verify_evidence
from fedforget.audit.verdict import verdict_line
from fedforget.cli.service import needs_service
from fedforget.cli.terminal import DeviceOption, JsonOption, print_result, progress_bars
from fedforget.data.files import sha256_of_file
from fedforget.errors import InputError
from fedforget.runs.repeat import repeat_run


def verify(
    file: Annotated[Path, typer.Argument(help="An evidence file, a certificate or a run folder.", metavar="FILE")],
    model: Annotated[Path | None, typer.Option(help="The model it speaks of, if it is not beside the file.")] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option(help="For a certificate: the public key, or a folder of them (default: this installation's)."),
    ] = None,
    withdrawals: Annotated[
        Path | None, typer.Option(help="For a certificate: the ledger's signed list of withdrawals.")
    ] = None,
    evidence: Annotated[Path | None, typer.Option(help="For a certificate: the evidence file it speaks of.")] = None,
    spot: Annotated[
        bool,
        typer.Option("--spot", help="For a run with a ridge head: check that it solves its equations, which is quick."),
    ] = False,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Check an evidence file, the verdict in it, and the model it speaks of; or a signed certificate.

    Of a run folder, every model that was retrained and is called exact is trained once more, on clients that never had
    the target, and must have the same bits."""
    if file.is_dir():
        _repeat(file, spot, device, as_json)
        return
    try:
        if is_certificate(file):
            values, lines = _certificate(file, key or (), withdrawals, evidence, model)
        elif file.suffix in (".pdf", ".html"):
            raise InputError(
                f"{file} is for people. What can be checked is the signed file, certificate-....json, and in the "
                "console, under Verify, the code on the page."
            )
        elif key or evidence or withdrawals:
            raise InputError(f"{file} is no certificate; --key, --withdrawals and --evidence are for certificates.")
        else:
            record = verify_evidence(file, model)
            values = {"verified": True, "verdict": record["verdict"], "models": record["models"]}
            lines = _in_words(record)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        # The file is a stranger's: it may hold anything, with a right checksum too.
        raise InputError(f"{file} is no evidence file, or it was changed: what it holds makes no sense.") from None
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}.") from None
    print(json.dumps(values) if as_json else "\n".join(lines))


def _repeat(folder: Path, spot: bool, device: str, as_json: bool) -> None:
    with progress_bars(as_json) as progress:
        found = repeat_run(folder, spot=spot, device=device, progress=progress)
    lines = [f"{one.name}, {one.target}: {'the same' if one.holds else 'NOT the same'}, by {one.how}." for one in found]
    print_result(as_json, {"verified": all(one.holds for one in found), "models": [vars(one) for one in found]}, lines)
    if not all(one.holds for one in found):
        raise InputError(f"{folder} calls a model exact that is not the same training without the target.")


def _in_words(record: Mapping[str, Any]) -> list[str]:
    subject = record["models"]["subject"]
    return [
        f"The file is as it was written ({record['created']}, fedforget {record['fedforget']}).",
        f"The model is the one that was examined ({subject['method']}, {subject['preset']}).",
        f"The verdict follows from the readings: {verdict_line(record['verdict'])}",
    ]


HEARD = {"before": "before", "value": "now", "expected": "of an oracle"}
"""What a certificate says of a feature's sensitivity, in words."""


def is_certificate(file: Path) -> bool:
    """Whether a file wants to be one, right or wrong."""
    with open(file, "rb") as handle:
        return re.match(rb'\s*\{\s*("schema":\s*"fedforget/certificate/|"payload)', handle.read(200)) is not None


def _certificate(
    file: Path, keys: Sequence[Path], withdrawals: Path | None, evidence: Path | None, model: Path | None
) -> tuple[dict[str, Any], list[str]]:
    with needs_service():
        from fedforget.ledger.book import default_home
        from fedforget.ledger.certificate import read_keys, verify_certificate
        from fedforget.ledger.papers import code_of
        from fedforget.ledger.statements import CERTIFICATE, WITHDRAWALS, is_envelope, open_statement, read_statement
        from fedforget.ledger.withdrawals import check_standing
    own = default_home() / "keys"
    known = read_keys(keys or ([own] if own.is_dir() else []))
    if not known:
        raise InputError("A certificate is checked with the public key of who signed it; name it with --key FILE.")
    data = file.read_bytes()
    kind = read_statement(data, str(file))[0].kind if is_envelope(data) else CERTIFICATE
    if kind in OTHERS:
        return _other(open_statement(data, known, kind, str(file), OTHERS[kind]))
    record = verify_certificate(data, known, str(file))
    standing = "Whether it was withdrawn since could not be looked up: name the ledger's list with --withdrawals FILE."
    if withdrawals is not None:
        listed = open_statement(withdrawals.read_bytes(), known, WITHDRAWALS, str(withdrawals), "list of withdrawals")
        standing = check_standing(data, record, listed, str(file))
    request, before, after = record["request"], record["before"], record["after"]
    lines = [
        f"The signature is genuine (key {record['key']}, issued {record['issued']}, fedforget {record['fedforget']}).",
        f"Its {len(record['trail'])} events are as the ledger wrote them, and tell the same.",
        f"Asked: {request['describes']} of {request['federation']}, reference {request['subject']}, "
        f"received {request['received']}.",
        f"Done: version {before['version']} became version {after['version']}, by {record['method']['name']} "
        f"({record['method']['preset']}).",
        f"Verdict: {verdict_line(record['measured']['verdict'])}",
    ]
    for name, heard in record["measured"]["verdict"].get("sensitivity", {}).items():
        told = ", ".join(f"{said} {heard[who]:.4f}" for who, said in HEARD.items() if heard[who] is not None)
        lines.append(f"The {name}: {told}.")
    lines += record["measured"]["verdict"].get("notes", [])
    if record["decision"] is not None:
        lines.append(f"It was held for an officer. {record['decision']['held']}")
        lines.append(f"Published by decision of {record['decision']['officer']}: {record['decision']['reason']}")
    lines.append(standing)
    code = code_of(hashlib.sha256(data).hexdigest())
    lines.append(f"Its code, as on the printed page: {code}")
    checked = {"evidence": evidence is not None, "model": model is not None}
    if evidence is not None:
        read_evidence(evidence)
        _same(evidence, record["evidence"]["sha256"], "evidence that was signed")
        lines.append("The evidence is the one that was signed, and its verdict follows from its readings.")
    if model is not None:
        _same(model, after["sha256"], "model of this certificate")
        lines.append("The model is the one that was published.")
    missing = " and ".join(f"--{name}" for name, done in checked.items() if not done)
    if missing:
        lines.append(f"Not compared with files: name them with {missing}.")
    held = None if withdrawals is None else False  # where it was withdrawn, it was refused above
    return {"verified": True, "withdrawn": held, "code": code, "checked": checked, "certificate": record}, lines


OTHERS = {"urn:fedforget:withdrawals:1": "list of withdrawals", "urn:fedforget:lineage:1": "receipt of old models"}
"""What else a ledger signs."""


def _other(found: Any) -> tuple[dict[str, Any], list[str]]:
    """A list of withdrawals, or a receipt of what became of old models."""
    said = found.predicate
    made = said.get("issued") or said["made"]
    lines = [f"The signature is genuine (key {found.key}, a {OTHERS[found.kind]} of {made}).", said["statement"]]
    lines += [f"{row['certificate']}: {row['withdrawn']}. {row['reason']}" for row in said.get("withdrawn", ())]
    for trace in said.get("traces", ()):
        lines.append(f"{trace['place']} ({trace['what']}): {trace['fate']} {trace['until'] or ''}".rstrip() + ".")
    return {"verified": True, "statement": {"kind": found.kind, "subject": found.digests, **said}}, lines


def _same(file: Path, sha256: str, what: str) -> None:
    found = sha256_of_file(file)
    if found != sha256:
        raise InputError(f"{file} is not the {what}: its SHA-256 is {found}, not {sha256}.")
