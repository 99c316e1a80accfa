"""What is to be forgotten, as options of a command and as text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedforget.errors import InputError
from fedforget.requests import ErasureRequest

ClientOption = Annotated[int | None, typer.Option(help="The client that asks.")]
ClassOption = Annotated[int | None, typer.Option("--class", help="Forget this class of the client.")]
SamplesOption = Annotated[Path | None, typer.Option(help="Forget the samples whose ids stand in this file.")]
FeatureOption = Annotated[
    str | None,
    typer.Option(help="Forget a feature of the client's samples: a column, or a patch as top,left,height,width."),
]
WholeOption = Annotated[bool, typer.Option("--whole-client", help="Forget everything of the client.")]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(help="A further target, such as client=1,class=5, client=1,feature=7 or client=2; may be repeated."),
]


HOW_TO_NAME_ONE = "--client 0 with --class 3, --samples FILE, --feature COLUMN or --whole-client"


def read_fields(text: str, what: str) -> dict[str, str]:
    parts = [piece.partition("=") for piece in text.split(",")]
    if any(not equals or not value for _, equals, value in parts):
        raise InputError(f"The {what} '{text}' cannot be read; write it as client=0,class=3.")
    return {key.strip(): value.strip() for key, _, value in parts}


def read_target(fields: dict[str, str], text: str) -> ErasureRequest:
    """client=K with class=C, samples=FILE, feature=COLUMN or TOP:LEFT:HEIGHT:WIDTH, or nothing more (the whole
    client)."""
    ways = "client=0,class=3, client=0,samples=FILE, client=0,feature=7 or client=0"
    if fields.keys() - {"client", "class", "samples", "feature"}:
        raise InputError(f"The target '{text}' cannot be read; write {ways}.")
    samples, feature = fields.get("samples"), fields.get("feature")
    return ErasureRequest.parse(
        fields.get("client"),
        label=fields.get("class"),
        samples=None if samples is None else read_ids(Path(samples)),
        feature=None if feature is None else feature.replace(":", ","),
        whole=len(fields) == 1,
        names=ways,
    )


def read_requests(
    client: int | None,
    label: int | None,
    samples: Path | None,
    feature: str | None,
    whole: bool,
    targets: list[str] | None,
) -> list[ErasureRequest]:
    requests = [read_target(read_fields(text, "target"), text) for text in targets or ()]
    if client is None and not whole and (label, samples, feature) == (None, None, None):
        return requests
    return [read_options(client, label, samples, feature, whole), *requests]


def read_options(
    client: int | None, label: int | None, samples: Path | None, feature: str | None, whole: bool
) -> ErasureRequest:
    """The one target that the options of a command name."""
    return ErasureRequest.parse(
        client,
        label=label,
        samples=None if samples is None else read_ids(samples),
        feature=feature,
        whole=whole,
        names=HOW_TO_NAME_ONE,
    )


def read_ids(path: Path) -> str:
    """The sample ids in a file, as they stand there."""
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise InputError(f"The list of samples {path} cannot be read: {error.strerror}.") from None
