"""`python -m fedforget.experiments.benchmarks`: the benchmark without the command line's libraries, and the
page of its results.

Needs torch, numpy, pyarrow and Pillow alone (the page's plots need matplotlib)."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from fedforget.errors import FedForgetError
from fedforget.experiments.benchmarks.lines import summary
from fedforget.experiments.benchmarks.measuring import Run
from fedforget.experiments.benchmarks.parts import PARTS
from fedforget.experiments.benchmarks.results import run_parts


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m fedforget.experiments.benchmarks", description="Speed, as ratios in one run."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    bench = commands.add_parser("bench", help="measure")
    bench.add_argument("--part", action="append", default=[], help=f"one of {', '.join(PARTS)}; may be repeated")
    bench.add_argument("--device", default="cpu")
    bench.add_argument("--repeats", type=int, default=3)
    bench.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    bench.add_argument("--quick", action="store_true", help="tiny sizes on noise, to see that it works")
    bench.add_argument("--out", type=Path, help="a JSON file that takes the results in, part by part")
    bench.add_argument("--json", action="store_true")
    render = commands.add_parser("render", help="write the page from results")
    render.add_argument("results", type=Path, nargs="+", help="the JSON files, one for each device")
    render.add_argument("--page", type=Path, default=Path("docs/performance.md"))
    given = parser.parse_args()
    try:
        if given.command == "render":
            from fedforget.experiments.benchmarks.page import render as write_page

            print("\n".join(map(str, write_page(given.results, given.page))))
            return
        run = Run(given.device, given.quick, given.repeats, given.threads)
        results = run_parts(given.part, run, given.out, _say)
        print(json.dumps(results) if given.json else "\n\n".join(table.to_text() for table in summary(results)))
    except FedForgetError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("Interrupted; the parts that are done are kept in --out.", file=sys.stderr)
        sys.exit(130)


def _say(done: int, total: int, what: str) -> None:
    print(f"{done}/{total} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
