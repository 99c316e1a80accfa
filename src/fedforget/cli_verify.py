"""`fedforget verify FILE`: is the evidence as it was written, does its verdict follow, is this its model?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedforget.audit.evidence import verify_evidence
from fedforget.errors import InputError


def verify(
    file: Annotated[Path, typer.Argument(help="An evidence file.", metavar="FILE")],
    model: Annotated[Path | None, typer.Option(help="The model it speaks of, if it is not beside the file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check an evidence file, the verdict in it, and the model it speaks of."""
    try:
        record = verify_evidence(file, model)
        lines = [json.dumps({"verified": True, "verdict": record["verdict"], "models": record["models"]})]
        if not as_json:
            lines = _in_words(record)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        # The file is a stranger's: it may hold anything, with a right checksum too.
        raise InputError(f"{file} is no evidence file, or it was changed: what it holds makes no sense.") from None
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}.") from None
    print("\n".join(lines))


def _in_words(record: Mapping[str, Any]) -> list[str]:
    subject = record["models"]["subject"]
    return [
        f"The file is as it was written ({record['created']}, fedforget {record['fedforget']}).",
        f"The model is the one that was examined ({subject['method']}, {subject['preset']}).",
        f"The verdict follows from the readings: {verdict_line(record['verdict'])}",
    ]


def verdict_line(verdict: Mapping[str, Any]) -> str:
    """A verdict in one line."""
    how = f"against {verdict['oracles']} oracles" if verdict["with_oracle"] else "without oracle"
    return f"{verdict['word']} ({how}): {verdict['reasons'][0]}"
