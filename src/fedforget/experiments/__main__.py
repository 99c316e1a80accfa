"""`python -m fedforget.experiments`: experiments and benchmarks without the command line's libraries.

Needs torch, numpy, pyarrow and Pillow alone, so that it runs on a bare machine (plots need matplotlib)."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

from fedforget.errors import FedForgetError
from fedforget.experiments import EXPERIMENTS
from fedforget.experiments.benchmarks.measuring import Run
from fedforget.experiments.benchmarks.page import render, summary
from fedforget.experiments.benchmarks.parts import PARTS, run_parts
from fedforget.experiments.engine import Step
from fedforget.experiments.options import Options
from fedforget.experiments.pages import render_folder
from fedforget.experiments.whole import ALL, DATASET, chosen, reproduce_named


def main() -> None:
    given = command_parser().parse_args()
    try:
        given.run(given)
    except FedForgetError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("Interrupted; what is done is kept, and the same command goes on.", file=sys.stderr)
        sys.exit(130)


def command_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fedforget.experiments")
    commands = parser.add_subparsers(dest="command", required=True)

    cells = commands.add_parser("reproduce", help="a table or figure of the paper, beside its numbers")
    cells.add_argument("name", help=f"{ALL}, or one of {', '.join(EXPERIMENTS)}")
    cells.add_argument("--dataset", help=f"digits where none is named, or {DATASET} for {ALL}")
    cells.add_argument("--classes", default="all", help="such as 0-9 or 0,3,7")
    cells.add_argument("--targets", help="for audit: class,samples,client, each poisoned or with clean- before it")
    cells.add_argument("--methods", help="such as all or retrain,fedaf:paper")
    cells.add_argument("--trials", type=int)
    cells.add_argument("--seed", type=int, default=0)
    cells.add_argument("--out", type=Path, default=Path("results"))
    cells.add_argument(
        "--merge", type=Path, nargs="*", action="extend", default=[], help="folders whose cells are taken in first"
    )
    cells.add_argument("--configuration", default="default", help="default or paper")
    cells.set_defaults(run=_reproduce)

    bench = commands.add_parser("bench", help="speed, as ratios in one run")
    bench.add_argument("--part", action="append", default=[], help=f"one of {', '.join(PARTS)}; may be repeated")
    bench.add_argument("--repeats", type=int, default=3)
    bench.add_argument("--out", type=Path, help="a JSON file that takes the results in, part by part")
    bench.set_defaults(run=_bench)

    for command in (cells, bench):
        command.add_argument("--device", default="cpu")
        command.add_argument("--threads", type=int, default=os.cpu_count() or 1)
        command.add_argument("--quick", action="store_true", help="less of everything, to see that it works")
        command.add_argument("--json", action="store_true")

    pages = commands.add_parser("render", help="write all pages from the cells in a folder")
    pages.add_argument("folder", type=Path)
    pages.set_defaults(run=_render)

    page = commands.add_parser("performance", help="write the page of benchmarks from their results")
    page.add_argument("results", type=Path, nargs="+", help="the JSON files, one for each device")
    page.add_argument("--page", type=Path, default=Path("docs/performance.md"))
    page.set_defaults(run=lambda given: render(given.results, given.page))
    return parser


def options_of(given: argparse.Namespace) -> Options:
    """What the words of a `reproduce` choose."""
    names = {item.name for item in fields(Options)}
    return chosen(given.name, **{name: value for name, value in vars(given).items() if name in names})


def _reproduce(given: argparse.Namespace) -> None:
    values, tables, pages = reproduce_named(given.name, options_of(given), given.merge, _say)
    if given.json:
        print(json.dumps(values))
        return
    for table in tables:
        print(table.to_text(), end="\n\n")
    print(f"Pages: {', '.join(map(str, pages))}")


def _say(step: Step) -> None:
    """One line for each cell, since a bare machine has no progress bar."""
    left = "" if step.seconds_left is None else f", {timedelta(seconds=round(step.seconds_left))} left"
    print(f"{step.done}/{step.total} {step.what}{left}", file=sys.stderr, flush=True)


def _bench(given: argparse.Namespace) -> None:
    run = Run(device=given.device, quick=given.quick, repeats=given.repeats, threads=given.threads)
    results = run_parts(given.part, run, given.out, lambda done, total, what: _say(Step(what, done, total, None)))
    print(json.dumps(results) if given.json else "\n\n".join(table.to_text() for table in summary(results)))


def _render(given: argparse.Namespace) -> None:
    print("\n".join(map(str, render_folder(given.folder, list(EXPERIMENTS.values())))))


if __name__ == "__main__":
    main()
