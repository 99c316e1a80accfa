"""Runs parts and keeps their results: one JSON file for each device, each part with the circumstances it was run in."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedforget.data.files import write_json
from fedforget.errors import InputError
from fedforget.experiments.benchmarks.measuring import Run
from fedforget.experiments.benchmarks.parts import PARTS

Results = dict[str, Any]
Progress = Callable[[int, int, str], None]
"""(parts done, parts in all, what is going on)."""


def run_parts(names: Sequence[str], run: Run, out: Path | None = None, progress: Progress | None = None) -> Results:
    """The results of the parts `names` (all of them where none is named), beside what `out` already holds. `out` is
    written after each part: what an interruption leaves is whole."""
    chosen = check_parts(names)
    results = read_results(out) if out is not None and out.exists() else {}
    torch.set_num_threads(run.threads)
    for done, name in enumerate(chosen):
        tell = replace(run, say=lambda what, d=done, n=name: progress and progress(d, len(chosen), f"{n}: {what}"))  # type: ignore[misc]
        tell.say("begins")
        results[name] = {"run": run.circumstances(), **PARTS[name](tell)}
        if out is not None:
            write_json(out, results)
    if progress is not None:
        progress(len(chosen), len(chosen), "done")
    return results


def check_parts(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in PARTS:
            raise InputError(f"The benchmark has no part '{name}'; choose one of {', '.join(PARTS)}.")
    return [name for name in PARTS if not names or name in names]


def read_results(path: Path) -> Results:
    try:
        found = json.loads(path.read_text())
        if not (isinstance(found, dict) and all(isinstance(part, dict) and "run" in part for part in found.values())):
            raise ValueError
    except (OSError, ValueError):
        raise InputError(f"{path} holds no results of the benchmark; choose another --out.") from None
    return found
