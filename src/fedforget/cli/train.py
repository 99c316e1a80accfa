"""`fedforget train`: a federation from a TOML file, options, or both."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedforget.cli.targets import read_fields, read_target
from fedforget.cli.terminal import DeviceOption, JsonOption, print_result, progress_bars
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.errors import InputError
from fedforget.federation.rounds import Schedule
from fedforget.runs.config import RunConfig, default_trigger
from fedforget.runs.head import RANDOM, RidgeHead
from fedforget.runs.train import train_run

HISTORY_INTERVAL = 2
"""What --history keeps: every second round, as FedEraser does, unless the configuration has a `history_interval`."""


def train(
    out: Annotated[Path, typer.Option(help="The run folder to make.")],
    config: Annotated[Path | None, typer.Option(help="A TOML file with the same settings; options win.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="digits, breast_cancer, mnist, cifar10, celeba, an .npz or a folder.")
    ] = None,
    clients: Annotated[int | None, typer.Option(help="How many clients.")] = None,
    partition: Annotated[str | None, typer.Option(help="iid, dirichlet:ALPHA or shards:PER_CLIENT.")] = None,
    model: Annotated[
        str | None, typer.Option(help="cnn, mlp, resnet10, resnet10-gn, resnet18, vit or vit-20m.")
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(help="Train so many federations of disjoint clients apart: a request retrains one of them."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Federated rounds.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Local epochs in a round.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Batch size.")] = None,
    participation: Annotated[float | None, typer.Option(help="The part of the clients that train in a round.")] = None,
    seed: Annotated[int | None, typer.Option(help="The one seed every draw comes from.")] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads; part of the run, since they change the bits.")
    ] = None,
    train_limit: Annotated[int | None, typer.Option(help="Use only the first so many training samples.")] = None,
    head: Annotated[
        str | None, typer.Option(help="ridge: no network is trained, and forgetting is exact (docs/which-one.md).")
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="What a ridge head stands on: a safetensors file of weights of --model, or random."),
    ] = None,
    origin: Annotated[
        str | None, typer.Option(help="Who trained the file of --backbone, and on which data; it is written down.")
    ] = None,
    features: Annotated[int | None, typer.Option(help="How many random features, without a file.")] = None,
    masked: Annotated[
        bool, typer.Option("--masked", help="The server sees the sum of all clients alone (ridge head).")
    ] = False,
    hold_out: Annotated[
        float | None,
        typer.Option(help="Part of its samples that each client sets aside before training, for the check."),
    ] = None,
    backdoor: Annotated[
        str | None, typer.Option(help="Poison a target: client=0,class=3[,size=5][,corner=bottom-right][,margin=1].")
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Keep the clients' models of every second round (for federaser).")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Train a federation into a run folder. An interrupted run goes on with --resume and ends with the same bits."""
    given = {name: value for name, value in locals().items() if value is not None}
    run_config = None if resume else _config(config, given)
    with progress_bars(as_json) as progress:
        run = train_run(out, run_config, progress=progress, device=device)
    last = run.metrics()[-1] if run.metrics() else {}
    done = "1 round" if run.rounds_done == 1 else f"{run.rounds_done} rounds"
    accuracy = "–" if last.get("test_acc") is None else f"{last['test_acc']:.2f} %"
    print_result(
        as_json,
        {"run": str(out), "rounds": run.rounds_done, **last},
        [f"Trained {done} into {out}: test accuracy {accuracy}."],
    )


def _config(path: Path | None, given: dict[str, Any]) -> RunConfig:
    """The TOML file's settings, overruled by the options that were `given`."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"The configuration {path} cannot be read: {error}.") from None
    written, poison = values.pop("schedule", {}), values.pop("backdoor", None)
    if not isinstance(written, dict):
        raise InputError(f"In {path}, 'schedule' must be a table; write [schedule] and its settings below.")
    timing = {item.name for item in fields(Schedule)}
    if unknown := written.keys() - timing:
        raise InputError(f"In {path}, the schedule has the unknown setting '{min(unknown)}'.")
    schedule = {**written, **{name: value for name, value in given.items() if name in timing}}
    poison = given.get("backdoor") or poison
    if poison is not None and not isinstance(poison, str):
        raise InputError(f"In {path}, 'backdoor' must be text such as \"client=0,class=3\".")
    own = {item.name for item in fields(RunConfig)} - {"backdoor", "head"}
    values |= {name: value for name, value in given.items() if name in own}
    if given["history"]:
        values.setdefault("history_interval", HISTORY_INTERVAL)
    head = _head(given, values.get("head"))
    if head is not None:
        values["head"], schedule = asdict(head), {"rounds": 1, **schedule}
    config = RunConfig.from_json({**values, "schedule": schedule})
    return replace(config, backdoor=_backdoor(poison, config)) if poison else config


def _head(given: Mapping[str, Any], written: Any) -> RidgeHead | None:
    """The ridge head that the options and the file's table [head] ask for, if any."""
    own = {name: given[name] for name in ("backbone", "origin", "features") if name in given}
    own |= {"masked": True} if given["masked"] else {}
    if given.get("head", "ridge") != "ridge":
        raise InputError(f"The head '{given['head']}' is unknown; there is ridge.")
    if "head" not in given and written is None:
        if own:
            raise InputError(f"The option --{min(own)} is about a ridge head; add --head ridge.")
        return None
    head = RidgeHead.from_json({**(written or {}), **own})
    if head is None or head.backbone == RANDOM:
        return head
    settings = {name: value for name, value in vars(head).items() if name not in ("backbone", "sha256")}
    return RidgeHead.on_file(Path(head.backbone), **settings)


def _backdoor(text: str, config: RunConfig) -> Backdoor:
    parts = read_fields(text, "backdoor")
    data = config.load_dataset()
    default = default_trigger(data)
    try:
        trigger = Trigger(
            size=int(parts.pop("size", default.size)),
            corner=parts.pop("corner", default.corner),  # type: ignore[arg-type]
            margin=int(parts.pop("margin", default.margin)),
        )
    except ValueError:
        raise InputError(f"The size and margin of the backdoor '{text}' must be whole numbers.") from None
    request = read_target(parts, text)
    return Backdoor.draw(request, trigger, len(data.classes), config.schedule.seed)
