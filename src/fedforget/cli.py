"""The command line: each command parses, calls one function of the pipeline, and prints a table or JSON."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from typer.core import TyperGroup

from fedforget.auditing import audit_run
from fedforget.cli_bench import bench
from fedforget.cli_ledger import account_app, keys_app, ledger_app
from fedforget.cli_reproduce import reproduce
from fedforget.cli_request import read_ids, request_app
from fedforget.cli_serve import serve
from fedforget.cli_verify import verdict_line, verify
from fedforget.cli_work import work
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.features import parse_feature
from fedforget.demo import demo_run
from fedforget.errors import FedForgetError, InputError
from fedforget.federation.rounds import Schedule
from fedforget.methods import METHODS, method_settings, setting_words
from fedforget.methods.fedaf.settings import EFFORTS
from fedforget.pipeline import Progress as Report
from fedforget.pipeline import forget_run, train_run
from fedforget.requests import ErasureRequest
from fedforget.runs import Run, RunConfig, default_trigger


class Commands(TyperGroup):
    """Typer would end Ctrl-C without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print(
                "Interrupted; what is done is kept, and the same command goes on (train with --resume).",
                file=sys.stderr,
            )
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    help="Make a federated model forget, and show that it did.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
HISTORY_INTERVAL = 2
"""What --history keeps: every second round, as FedEraser does, unless the configuration has a `history_interval`."""
app.command()(bench)
app.command()(reproduce)
app.command()(verify)
app.command()(work)
app.command()(serve)
for name, group in (("request", request_app), ("ledger", ledger_app), ("keys", keys_app), ("account", account_app)):
    app.add_typer(group, name=name)
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and nothing else there.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, or a GPU such as cuda.")]
FolderArgument = Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN")]
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


def main() -> None:
    """Entry point: an error is one sentence on standard error and exit code 2, an interruption is exit code 130."""
    try:
        app()
    except FedForgetError as error:
        Console(stderr=True, highlight=False).print(str(error), style="red", soft_wrap=True, markup=False)
        sys.exit(2)


@app.command()
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
    given = {
        "dataset": dataset, "clients": clients, "partition": partition, "model": model, "train_limit": train_limit,
        "schedule": {
            "rounds": rounds, "epochs": epochs, "lr": lr, "momentum": momentum, "batch_size": batch_size,
            "participation": participation, "seed": seed, "threads": threads,
        },
        "backdoor": backdoor, "history": history,
    }  # fmt: skip
    run_config = None if resume else _config(config, given)
    with _progress(as_json) as progress:
        run = train_run(out, run_config, progress=progress, device=device)
    last = run.metrics()[-1] if run.metrics() else {}
    _print(
        as_json,
        {"run": str(out), "rounds": run.rounds_done, **last},
        [f"Trained {run.rounds_done} rounds into {out}: test accuracy {_percent(last.get('test_acc'))}."],
    )


def _config(path: Path | None, given: dict[str, Any]) -> RunConfig:
    """The TOML file's settings, overruled by the options."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"The configuration {path} cannot be read: {error}.") from None
    written, poison = values.pop("schedule", {}), values.pop("backdoor", None)
    if not isinstance(written, dict):
        raise InputError(f"In {path}, 'schedule' must be a table; write [schedule] and its settings below.")
    schedule = {**written, **{k: v for k, v in given["schedule"].items() if v is not None}}
    unknown = set(schedule) - {item.name for item in fields(Schedule)}
    if unknown:
        raise InputError(f"In {path}, the schedule has the unknown setting '{min(unknown)}'.")
    poison = given["backdoor"] or poison
    if poison is not None and not isinstance(poison, str):
        raise InputError(f"In {path}, 'backdoor' must be text such as \"client=0,class=3\".")
    values |= {k: v for k, v in given.items() if k not in ("schedule", "backdoor", "history") and v is not None}
    if given["history"]:
        values.setdefault("history_interval", HISTORY_INTERVAL)
    config = RunConfig.from_json({**values, "schedule": schedule})
    return replace(config, backdoor=_backdoor(poison, config)) if poison else config


def _backdoor(text: str, config: RunConfig) -> Backdoor:
    parts = _fields(text, "backdoor")
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
    request = _target(parts, text)
    return Backdoor.draw(request, trigger, len(data.classes), config.schedule.seed)


def _fields(text: str, what: str) -> dict[str, str]:
    parts = [piece.partition("=") for piece in text.split(",")]
    if any(not equals or not value for _, equals, value in parts):
        raise InputError(f"The {what} '{text}' cannot be read; write it as client=0,class=3.")
    return {key.strip(): value.strip() for key, _, value in parts}


def _target(fields: dict[str, str], text: str) -> ErasureRequest:
    """client=K with class=C, samples=FILE, feature=COLUMN or TOP:LEFT:HEIGHT:WIDTH, or nothing more (the whole
    client)."""
    try:
        client = int(fields.pop("client"))
        label = fields.pop("class", None)
        samples = fields.pop("samples", None)
        feature = fields.pop("feature", None)
        if fields or sum(part is not None for part in (label, samples, feature)) > 1:
            raise KeyError
        if feature is not None:
            return ErasureRequest.of_feature(client, parse_feature(feature.replace(":", ",")))
        if label is not None:
            return ErasureRequest.of_class(client, int(label))
        return (
            ErasureRequest.of_samples(client, read_ids(Path(samples))) if samples else ErasureRequest.of_client(client)
        )
    except (KeyError, ValueError):
        raise InputError(
            f"The target '{text}' cannot be read; write client=0,class=3, client=0,samples=FILE, client=0,feature=7 or "
            "client=0."
        ) from None


_NAME_ONE = (
    "Name the client and one target: --client 0 with --class 3, --samples FILE, --feature COLUMN or --whole-client."
)


def _requests(
    client: int | None,
    label: int | None,
    samples: Path | None,
    feature: str | None,
    whole: bool,
    targets: list[str] | None,
) -> list[ErasureRequest]:
    requests = [_target(_fields(text, "target"), text) for text in targets or ()]
    chosen = sum(part is not None for part in (label, samples, feature)) + whole
    if client is None and not chosen:
        return requests
    if client is None or chosen != 1:
        raise InputError(_NAME_ONE)
    if feature is not None:
        return [ErasureRequest.of_feature(client, parse_feature(feature)), *requests]
    if label is not None:
        return [ErasureRequest.of_class(client, label), *requests]
    if samples is not None:
        return [ErasureRequest.of_samples(client, read_ids(samples)), *requests]
    return [ErasureRequest.of_client(client), *requests]


@app.command()
def forget(
    run: FolderArgument,
    client: ClientOption = None,
    label: ClassOption = None,
    samples: SamplesOption = None,
    feature: FeatureOption = None,
    whole_client: WholeOption = False,
    target: TargetOption = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "fedaf",
    preset: Annotated[str | None, typer.Option(help="A preset of the method, such as recommended or paper.")] = None,
    effort: Annotated[
        str | None, typer.Option(help=f"How much fedaf may cost, and so what lasts: one of {', '.join(EFFORTS)}.")
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
    requests = _requests(client, label, samples, feature, whole_client, target)
    if not requests:
        raise InputError(_NAME_ONE)
    preset = _preset(method, preset, effort)
    overrides = _settings(method, preset, setting or ())
    method_settings(method, preset, **overrides)
    with _progress(as_json) as progress:
        folder = forget_run(run, requests, method, preset, progress=progress, device=device, adopt=adopt, **overrides)
    if folder is None:
        _print(
            as_json,
            {"queued": True},
            [f"Training of {run} is running; the request is queued and served before its next round."],
        )
        return
    result = json.loads((folder / "result.json").read_text())
    stages = ", ".join(
        f"{stage} {seconds:.2f} s" for stage, seconds in result["cost"]["seconds_by_stage"].items() if seconds >= 0.005
    )
    values = {key: result[key] for key in ("method", "preset", "target", "sha256", "settings", "cost")}
    _print(
        as_json,
        {"folder": str(folder), **values},
        [
            f"Forgot {result['target']} in {result['cost']['seconds']:.2f} s ({stages}).",
            f"The new model is in {folder}; show what it forgot with: fedforget audit {run}",
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


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"The setting '{text}' cannot be read; write it as NAME=VALUE.")
    return key.strip(), value.strip()


def _settings(method: str, preset: str | None, texts: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE as TOML would read the value; a bare word is text. `none` is a word where the setting has that word,
    and nothing elsewhere."""
    _, defaults = method_settings(method, preset)
    values: dict[str, Any] = {}
    for name, text in map(_pair, texts):
        if text.lower() == "none":
            values[name] = "none" if "none" in setting_words(defaults, name) else None
            continue
        try:
            values[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[name] = text
    return values


@app.command()
def audit(
    run: FolderArgument,
    client: ClientOption = None,
    label: ClassOption = None,
    samples: SamplesOption = None,
    feature: FeatureOption = None,
    whole_client: WholeOption = False,
    target: TargetOption = None,
    against: Annotated[str, typer.Option(help="What to judge against: retrain.")] = "retrain",
    level: Annotated[
        str, typer.Option(help="How closely to look: alone (no oracle), quick (3 oracles) or full (8 oracles).")
    ] = "quick",
    oracles: Annotated[int | None, typer.Option(help="How many models to retrain for comparison.")] = None,
    attacks: Annotated[
        str | None,
        typer.Option(
            help="Which attacks to make, with commas between: membership, relearning, return, probe (default: all). "
            "What is left out is missing: the verdict is then an accusation or 'not enough evidence'."
        ),
    ] = None,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Compare every model that forgot with the model before and with retrained ones, judge it, write report.html."""
    if against != "retrain":
        raise InputError(f"'{against}' is no reference to audit against; use --against retrain.")
    chosen = None if attacks is None else [name.strip() for name in attacks.split(",")]
    requests = _requests(client, label, samples, feature, whole_client, target)
    with _progress(as_json) as progress:
        result = audit_run(
            run, requests or None, level=level, oracles=oracles, attacks=chosen, progress=progress, device=device
        )
    if as_json:
        print(json.dumps(result))
        return
    _show(result, Run(run).folder / "report.html")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the run and the report.")] = Path("demo"),
    as_json: JsonOption = False,
) -> None:
    """The main job on embedded data: train, receive a request, forget, audit against Retrain, show a report."""
    console = Console(stderr=as_json, highlight=False)
    with _progress(as_json) as progress:
        result = demo_run(out, progress=progress, say=lambda line: console.print(line, markup=False))
    if as_json:
        print(json.dumps(result))
        return
    _show(result, out / "report.html")


def _show(result: dict[str, Any], report: Path) -> None:
    """The audit's table on the terminal."""
    console = Console(highlight=False)
    feature = any("sensitivity" in row for row in result["rows"])
    title = f"Forgetting {result['target']} ({result['target_samples']} samples), in percent: test data;\n" + (
        "test data without the feature; retained data; S: how sensitive the model is to the feature"
        if feature
        else "the target as trained, after one further round, as its true class; retained data"
    )
    columns = ("test", "as\ntrained", "+ 1\nround", "as\ntrue", "retained")
    if feature:
        columns = ("test", "with-\nout", "retained", "S at\nclient", "S on\nunseen")
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, collapse_padding=True)
    table.add_column("", no_wrap=True)
    for column in (*columns, "seconds", "gradients"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in result["rows"]:
        name = row["method"] if row["preset"] in (None, "default") else f"{row['method']} {row['preset']}"
        if row["note"]:
            table.add_row(name, "diverged", *["–"] * 6)
            continue
        later, heard = row["after_one_round"]["bd_acc"], row.get("sensitivity", {})
        figures = [row["test_acc"], row["bd_acc"], later, row["true_acc"], row["retained_acc"]]
        if feature:
            figures = [row["test_acc"], heard["unseen_acc_without"], row["retained_acc"]]
        shown = ["–" if value is None else f"{value:.1f}" for value in figures]
        if feature:
            shown += ["–" if heard[name] is None else f"{heard[name]:.4f}" for name in ("target", "unseen")]
        seconds = "–" if row["seconds"] is None else f"{row['seconds']:.2f}"
        gradients = "–" if row["gradient_evaluations"] is None else f"{row['gradient_evaluations']:,.0f}"
        table.add_row(name, *shown, seconds, gradients)
    console.print(table)
    for row in result["rows"]:
        if row.get("verdict") and row["method"] != "before":
            line = f"{row['method']} ({row['preset']}): {verdict_line(row['verdict'])}"
            console.print(line, markup=False, soft_wrap=True)
        for note in [row["note"], *row["notes"]]:
            if note:
                console.print(f"{row['method']} ({row['preset']}): {note}", markup=False, soft_wrap=True)
    console.print(f"Report: {report}", markup=False, soft_wrap=True)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} %"


def _print(as_json: bool, values: dict[str, Any], lines: list[str]) -> None:
    if as_json:
        print(json.dumps(values))
        return
    for line in lines:
        Console(highlight=False).print(line, markup=False, soft_wrap=True)


@contextmanager
def _progress(quiet: bool) -> Iterator[Report]:
    """A bar with the time left, on standard error where that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report
