"""`python -m fedforget.experiments NAME`: run an experiment's cells, or render the result pages from them.

Needs torch, numpy, pyarrow and Pillow alone, so that it runs on a bare machine."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from fedforget.errors import FedForgetError
from fedforget.experiments import core
from fedforget.experiments.cells import CellFile
from fedforget.experiments.core_page import render_core, update_readme


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fedforget.experiments")
    commands = parser.add_subparsers(dest="command", required=True)
    run_core = commands.add_parser("core", help="FedAF against Retrain on MNIST, poisoned and clean")
    run_core.add_argument("--out", type=Path, default=Path("docs/results/core.jsonl"))
    run_core.add_argument("--only", nargs="*", default=[], help="only units whose key contains all of these")
    run_core.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    render = commands.add_parser("render", help="write the pages from the cells")
    render.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        if arguments.command == "core":
            todo = [unit for unit in core.units() if all(word in unit.key for word in arguments.only)]
            core.run(CellFile(arguments.out), todo, arguments.threads, lambda line: print(line, flush=True))
        else:
            render_core(arguments.folder / "core.jsonl", arguments.folder / "core.md")
            update_readme(arguments.folder / "core.jsonl", arguments.folder.parent.parent / "README.md")
    except FedForgetError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
