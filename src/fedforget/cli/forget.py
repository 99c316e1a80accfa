"""`fedforget forget`: the ladder, or one method, on the trained model of a run."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fedforget.cli import targets
from fedforget.cli.terminal import DeviceOption, FolderArgument, JsonOption, print_result, progress_bars
from fedforget.errors import InputError
from fedforget.methods import LADDER, METHODS, RUNGS, method_settings, setting_words
from fedforget.requests import requests_id
from fedforget.runs.folder import Run
from fedforget.runs.forget import forget_run
from fedforget.runs.record import Result
from fedforget.runs.told import ended_at, ending, untold

COMPARE = "To compare methods"
"""The help's name for what nobody needs who only wants to forget."""


def forget(
    run: FolderArgument,
    client: targets.ClientOption = None,
    label: targets.ClassOption = None,
    samples: targets.SamplesOption = None,
    feature: targets.FeatureOption = None,
    whole_client: targets.WholeOption = False,
    target: targets.TargetOption = None,
    effort: Annotated[
        str | None,
        typer.Option(metavar="RUNG", help=f"One rung alone: {', '.join(RUNGS)}. Default: climb as far as needed."),
    ] = None,
    at_most: Annotated[str | None, typer.Option(metavar="RUNG", help="Climb no higher than this rung.")] = None,
    method: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=COMPARE, help=f"In place of the ladder, one method, without a check: {', '.join(METHODS)}."
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(rich_help_panel=COMPARE, help="A preset of that method, such as paper.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", rich_help_panel=COMPARE, help="Change one setting, NAME=VALUE; may be repeated."),
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Make the new model the run's own: the next request starts from it.")
    ] = False,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Make the trained model forget: overwrite the target, else rebuild, else retrain, with a check after each.

    Before each rung its cost is forecast. The old model stays; the new one is written beside it.

    RUN is a run folder, or the inbox of a running Flower app: there the request is left, and the app serves it."""
    requests = targets.read_requests(client, label, samples, feature, whole_client, target)
    if not requests:
        raise InputError(f"Name one target, and whose it is: {targets.HOW_TO_NAME_ONE}.")
    if method not in (None, LADDER) and (effort is not None or at_most is not None):
        raise InputError("--effort and --at-most are about the ladder; leave them out, or leave out --method.")
    if method is None and preset is not None:
        raise InputError("A preset is one method's; name the method too, such as --method fedaf --preset paper.")
    method, climbing = method or LADDER, {"lowest": effort, "at_most": at_most or effort}
    overrides = {name: rung for name, rung in climbing.items() if rung} | _settings(method, preset, setting or ())
    method_settings(method, preset, **overrides)
    told: list[str] = []

    def say(sentence: str) -> None:
        told.append(sentence)
        if not as_json:
            print_result(False, None, [sentence])

    with progress_bars(as_json) as progress:
        folder = forget_run(
            run, requests, method, preset, progress=progress, device=device, adopt=adopt, say=say, **overrides
        )
    if folder is None:
        print_result(
            as_json,
            {"queued": True},
            [
                "The request is queued. The app serves it before its next round, and then says in "
                f"{run}/answers/{requests_id(requests)}.json what came of it."
                if Run(run).config.attached
                else f"Training of {run} is running; the request is queued and served before its next round."
            ],
        )
        return
    result = Result.read(folder)
    cost, written = result.cost, result.to_json()
    stages = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in cost.seconds.items() if seconds >= 0.005)
    values = {key: written[key] for key in ("method", "preset", "target", "sha256", "settings", "cost", "notes")}
    values |= {"rungs": written.get("rungs", []), "retrain_forecast": result.retrain_forecast}
    ended = ending(result.rungs, result.notes, cost, result.retrain_forecast) if result.rungs else result.notes
    kept = "The record" if result.rungs and ended_at(result.rungs) is None else "The new model"
    print_result(
        as_json,
        {"folder": str(folder), **values},
        [
            *untold(result.rungs, told),
            f"Served {result.target} in {cost.total_seconds:.2f} s ({stages}).",
            *ended,
            f"{kept} is in {folder}; to hold it against retrained models: fedforget audit {run}",
        ],
    )


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
