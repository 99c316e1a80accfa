"""`python -m fedforget.experiments`: the experiments without the command line's libraries.

Needs torch, numpy, pyarrow and Pillow alone, so that it runs on a bare machine."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from fedforget.errors import FedForgetError
from fedforget.experiments import EXPERIMENTS, find_experiment
from fedforget.experiments.engine import Step, reproduce
from fedforget.experiments.options import Options, parse_classes, parse_methods, parse_targets
from fedforget.experiments.pages import labelled_tables, render_folder, write_pages


def main() -> None:
    arguments = command_parser().parse_args()
    try:
        (_render if arguments.command == "render" else _reproduce)(arguments)
    except FedForgetError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("Interrupted; what is done is kept, and the same command goes on.", file=sys.stderr)
        sys.exit(130)


def command_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fedforget.experiments")
    commands = parser.add_subparsers(dest="command", required=True)

    reproduce = commands.add_parser("reproduce", help="a table or figure of the paper, beside its numbers")
    reproduce.add_argument("name", help=f"one of {', '.join(EXPERIMENTS)}")
    reproduce.add_argument("--dataset", default="digits")
    reproduce.add_argument("--classes", default="all", help="such as 0-9 or 0,3,7")
    reproduce.add_argument("--targets", help="for audit: class,samples,client, each poisoned or with clean- before it")
    reproduce.add_argument("--methods", help="such as all or retrain,fedaf:paper")
    reproduce.add_argument("--trials", type=int)
    reproduce.add_argument("--device", default="cpu")
    reproduce.add_argument("--seed", type=int, default=0)
    reproduce.add_argument("--out", type=Path, default=Path("results"))
    reproduce.add_argument(
        "--merge", type=Path, nargs="*", action="extend", default=[], help="folders whose cells are taken in first"
    )
    reproduce.add_argument("--configuration", default="default", help="default or paper")
    reproduce.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    reproduce.add_argument("--quick", action="store_true", help="fewer classes, trials and samples")
    reproduce.add_argument("--json", action="store_true")

    render = commands.add_parser("render", help="write all pages from the cells in a folder")
    render.add_argument("folder", type=Path)
    return parser


def options_of(arguments: argparse.Namespace) -> Options:
    """What the words of a `reproduce` choose."""
    return Options(
        dataset=arguments.dataset, classes=parse_classes(arguments.classes),
        methods=None if arguments.methods is None else parse_methods(arguments.methods), trials=arguments.trials,
        device=arguments.device, seed=arguments.seed, out=arguments.out, quick=arguments.quick,
        threads=arguments.threads, configuration=arguments.configuration,
        targets=None if arguments.targets is None else parse_targets(arguments.targets),
    )  # fmt: skip


def _reproduce(arguments: argparse.Namespace) -> None:
    experiment, options = find_experiment(arguments.name), options_of(arguments)
    rows = reproduce(experiment, options, merge=arguments.merge, progress=_say)
    pages = write_pages(experiment, experiment.cell_file(options))
    if arguments.json:
        print(json.dumps({"rows": rows}))
        return
    for table in labelled_tables(experiment, rows):
        if not table.wide:
            print(table.to_text(), end="\n\n")
    print(f"Pages: {', '.join(map(str, pages))}")


def _say(step: Step) -> None:
    """One line for each cell, since a bare machine has no progress bar."""
    left = "" if step.seconds_left is None else f", {duration(step.seconds_left)} left"
    print(f"{step.done}/{step.total} {step.what}{left}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(3725)
    ('42 s', '1 h 2 min')
    """
    minutes = int(seconds) // 60
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {int(seconds) % 60} s" if minutes else f"{seconds:.0f} s"


def _render(arguments: argparse.Namespace) -> None:
    for path in render_folder(arguments.folder, list(EXPERIMENTS.values())):
        print(path)


if __name__ == "__main__":
    main()
