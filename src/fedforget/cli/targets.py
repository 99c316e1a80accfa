"""What is to be forgotten, as options of a command and as text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli.request import read_ids
from fedforget.errors import InputError
from fedforget.requests import ErasureRequest, parse_feature

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


def read_fields(text: str, what: str) -> dict[str, str]:
    parts = [piece.partition("=") for piece in text.split(",")]
    if any(not equals or not value for _, equals, value in parts):
        raise InputError(f"The {what} '{text}' cannot be read; write it as client=0,class=3.")
    return {key.strip(): value.strip() for key, _, value in parts}


def read_target(fields: dict[str, str], text: str) -> ErasureRequest:
    """client=K with class=C, samples=FILE, feature=COLUMN or TOP:LEFT:HEIGHT:WIDTH, or nothing more (the whole
    client)."""
    try:
        client = int(fields.pop("client"))
        label = fields.pop("class", None)
        samples = fields.pop("samples", None)
        feature = fields.pop("feature", None)
        if fields or sum(part is not None for part in (label, samples, feature)) > 1:
            raise KeyError
        return _request(
            client, None if label is None else int(label), Path(samples) if samples else None,
            None if feature is None else feature.replace(":", ","),
        )  # fmt: skip
    except (KeyError, ValueError):
        raise InputError(
            f"The target '{text}' cannot be read; write client=0,class=3, client=0,samples=FILE, client=0,feature=7 or "
            "client=0."
        ) from None


NAME_ONE = (
    "Name the client and one target: --client 0 with --class 3, --samples FILE, --feature COLUMN or --whole-client."
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
    chosen = sum(part is not None for part in (label, samples, feature)) + whole
    if client is None and not chosen:
        return requests
    if client is None or chosen != 1:
        raise InputError(NAME_ONE)
    return [_request(client, label, samples, feature), *requests]


def _request(client: int, label: int | None, samples: Path | None, feature: str | None) -> ErasureRequest:
    """The one target that is named, or everything of the client."""
    if feature is not None:
        return ErasureRequest.of_feature(client, parse_feature(feature))
    if label is not None:
        return ErasureRequest.of_class(client, label)
    if samples is not None:
        return ErasureRequest.of_samples(client, read_ids(samples))
    return ErasureRequest.of_client(client)
