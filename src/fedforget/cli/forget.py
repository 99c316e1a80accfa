"""`fedforget forget`: a method, its preset and its settings, on the trained model of a run."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fedforget.cli import targets
from fedforget.cli.terminal import DeviceOption, FolderArgument, JsonOption, print_result, progress_bars
from fedforget.errors import InputError
from fedforget.methods import DEFAULT_METHOD, METHODS, method_settings, setting_words
from fedforget.methods.fedaf.settings import EFFORTS
from fedforget.runs.forget import forget_run
from fedforget.runs.record import Result


def forget(
    run: FolderArgument,
    client: targets.ClientOption = None,
    label: targets.ClassOption = None,
    samples: targets.SamplesOption = None,
    feature: targets.FeatureOption = None,
    whole_client: targets.WholeOption = False,
    target: targets.TargetOption = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = DEFAULT_METHOD,
    preset: Annotated[str | None, typer.Option(help="A preset of the method, such as recommended or paper.")] = None,
    effort: Annotated[
        str | None, typer.Option(help=f"What fedaf may cost, and so what it changes: one of {', '.join(EFFORTS)}.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Change one setting, NAME=VALUE; may be repeated.")
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Make the new model the run's own: the next request starts from it.")
    ] = False,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Make the trained model forget. The old model stays; the new one is written beside it."""
    requests = targets.read_requests(client, label, samples, feature, whole_client, target)
    if not requests:
        raise InputError(f"Name one target, and whose it is: {targets.HOW_TO_NAME_ONE}.")
    preset = _preset(method, preset, effort)
    overrides = _settings(method, preset, setting or ())
    method_settings(method, preset, **overrides)
    with progress_bars(as_json) as progress:
        folder = forget_run(run, requests, method, preset, progress=progress, device=device, adopt=adopt, **overrides)
    if folder is None:
        print_result(
            as_json,
            {"queued": True},
            [f"Training of {run} is running; the request is queued and served before its next round."],
        )
        return
    result = Result.read(folder)
    cost, written = result.cost, result.to_json()
    stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in cost.seconds.items() if seconds >= 0.005)
    values = {key: written[key] for key in ("method", "preset", "target", "sha256", "settings", "cost")}
    print_result(
        as_json,
        {"folder": str(folder), **values},
        [
            f"Served {result.target} in {cost.total_seconds:.2f} s ({stages}).",
            f"The new model is in {folder}; whether it forgot, the audit tells: fedforget audit {run}",
        ],
    )


def _preset(method: str, preset: str | None, effort: str | None) -> str | None:
    """The preset that an effort stands for, or the one that was named."""
    if effort is None:
        return preset
    if effort not in EFFORTS:
        raise InputError(f"Effort '{effort}' is unknown; choose one of {', '.join(EFFORTS)}.")
    if preset is not None or method != "fedaf":
        raise InputError("--effort picks a preset of fedaf; leave out --preset and --method, or --effort.")
    return EFFORTS[effort][0]


def _settings(method: str, preset: str | None, texts: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE as TOML would read the value; a bare word is text. `none` is a word where the setting has that word,
    and nothing elsewhere."""
    _, defaults = method_settings(method, preset)
    values: dict[str, Any] = {}
    for given in texts:
        name, equals, text = map(str.strip, given.partition("="))
        if not equals:
            raise InputError(f"The setting '{given}' cannot be read; write it as NAME=VALUE.")
        if text.lower() == "none":
            values[name] = "none" if "none" in setting_words(defaults, name) else None
            continue
        try:
            values[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[name] = text
    return values
