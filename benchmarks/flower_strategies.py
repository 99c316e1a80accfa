"""`python -m benchmarks.flower_strategies`: a request in an attached Flower app, under every strategy of Flower's.

The app (digits_app.py) trains; site 0 withdraws its threes, honest or poisoned; the request is served and the app
trains 4 rounds more. Once as it is by default, where a quick Retrain is made at once, and once by the ladder, as where
Retrain is not quick. Beside both the same app that never had them, from other weights and with other shuffles.

Every figure goes into flower_strategies.jsonl, one line for each cell; what is there is not computed again. Writes the
table of docs/results/flower-strategies.md."""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import logging
import random
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    QFedAvg,
    Strategy,
)

from benchmarks.digits_app import BATCH, SITES, Kind, Net, figures, make_app, target_positions
from fedforget.errors import FedForgetError
from fedforget.flower.node_store import NodeStore
from fedforget.flower.strategy import Forget
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import Climb

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests" / "reference"))
from in_process_grid import InProcessGrid  # noqa: E402 (a part of the tests)

ROUNDS, LATER = 8, 4
SEEDS = (103, 104, 105)
WAYS: dict[str, dict[str, Any]] = {"default": {}, "ladder": {"exact_below": 0.0}}
RETRAIN = "never had it"
NEAR = {"target": 5.0, "test": 2.0}
"""So near to Retrain a request must end, in points."""
RESULTS = HERE / "flower_strategies.jsonl"
PAGE = HERE.parent / "docs" / "results" / "flower-strategies.md"
ALL: dict[str, Any] = {"min_available_nodes": SITES, "fraction_evaluate": 0.0}
BETAS: dict[str, Any] = {"beta_1": 0.5, "beta_2": 0.99}
FIXED, ADAPTIVE = DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyServerSideAdaptiveClipping
MOD_FIXED, MOD_ADAPTIVE = DifferentialPrivacyClientSideFixedClipping, DifferentialPrivacyClientSideAdaptiveClipping


@dataclass(frozen=True)
class Row:
    """A way to train: the strategy, what is unusual about the app, and whether a strategy stands around `Forget`."""

    strategy: Callable[[], Strategy]
    kind: Kind = field(default_factory=Kind)
    around: Callable[[Strategy], Strategy] | None = None
    rounds: int = ROUNDS


ROWS: dict[str, Row] = {
    "FedAvg": Row(lambda: FedAvg(**ALL)),
    "FedAvg, 4 local epochs": Row(lambda: FedAvg(**ALL), Kind(epochs=4), rounds=4),
    "FedAvg, three of four sites a round": Row(lambda: FedAvg(fraction_train=0.75, **ALL), rounds=10),
    "FedAvg, weighted loss": Row(lambda: FedAvg(**ALL), Kind(weighted=True)),
    "FedProx": Row(lambda: FedProx(proximal_mu=0.01, **ALL), rounds=12),
    "FedAvgM": Row(lambda: FedAvgM(server_learning_rate=0.8, server_momentum=0.5, **ALL), rounds=10),
    "FedAdagrad": Row(lambda: FedAdagrad(eta=0.1, tau=0.1, **ALL), rounds=10),
    "FedAdam": Row(lambda: FedAdam(eta=0.1, tau=0.05, **BETAS, **ALL), rounds=12),
    "FedYogi": Row(lambda: FedYogi(eta=0.1, tau=0.05, **BETAS, **ALL), rounds=12),
    "FedMedian": Row(lambda: FedMedian(**ALL)),
    "FedTrimmedAvg": Row(lambda: FedTrimmedAvg(beta=0.25, **ALL)),
    "Krum": Row(lambda: Krum(num_malicious_nodes=1, **ALL), Kind(lr=0.05, epochs=1), rounds=22),
    "QFedAvg": Row(lambda: QFedAvg(client_learning_rate=0.5, q=0.01, **ALL), rounds=12),
    "DP inside, fixed clipping at the server": Row(lambda: FIXED(FedAvg(**ALL), 0.01, 5.0, SITES)),
    "DP inside, adaptive clipping at the server": Row(lambda: ADAPTIVE(FedAvg(**ALL), 0.01, SITES, 3.0, 0.9)),
    "DP inside, fixed clipping by a mod": Row(
        lambda: MOD_FIXED(FedAvg(**ALL), 0.01, 5.0, SITES), Kind(mods=(fixedclipping_mod,))
    ),
    "DP inside, adaptive clipping by a mod": Row(
        lambda: MOD_ADAPTIVE(FedAvg(**ALL), 0.01, SITES, 3.0, 0.9), Kind(mods=(adaptiveclipping_mod,))
    ),
    "FedAvg, noise by a mod": Row(lambda: FedAvg(**ALL), Kind(mods=(LocalDpMod(5.0, 0.01, 10.0, 1e-5),))),
    "DP outside": Row(lambda: FedAvg(**ALL), around=lambda inner: FIXED(inner, 0.01, 5.0, SITES)),
}


Cell = dict[str, Any]
"""One line of the file: which row, seed and side it is, and its figures."""


def served(row: Row, poison: bool, seed: int, way: str = "default") -> Cell:
    """The model before, and after a request and `LATER` rounds more."""
    kind = replace(row.kind, poison=poison, seed=seed)
    with tempfile.TemporaryDirectory() as place:
        forget = Forget(
            row.strategy(),
            Net,
            rounds=row.rounds,
            lr=kind.lr,
            epochs=kind.epochs,
            batch_size=BATCH,
            threads=1,
            seed=seed,
        )
        outermost = forget if row.around is None else row.around(forget)
        before = _trained(outermost, kind, Path(place), row.rounds)
        forget.request(partition=0, sample_ids=target_positions(), **WAYS[way])
        grid = InProcessGrid(make_app(kind), SITES, Path(place))
        later = outermost.start(grid, before, num_rounds=LATER).arrays
    found: Cell = {"before": figures(before, poison), "after": figures(later, poison)}
    try:
        forget.check_served()
    except FedForgetError as error:
        return {**found, "refused": str(error)}
    (climb,) = forget.served
    assert isinstance(climb, Climb)
    return {**found, "rung": climb.rungs[-1].name, "word": climb.word}


def retrained(row: Row, seed: int) -> Cell:
    """The same app that never had the target, honest or poisoned: what is left is the same."""
    kind = replace(row.kind, seed=seed + 1000)
    with tempfile.TemporaryDirectory() as place:
        NodeStore(Path(place) / "site-0", 0).withdraw([ErasureRequest.of_samples(0, target_positions())])
        arrays = _trained(row.strategy(), kind, Path(place), row.rounds + LATER)
        return {"honest": figures(arrays, False), "poisoned": figures(arrays, True)}


def _trained(strategy: Strategy, kind: Kind, folder: Path, rounds: int) -> ArrayRecord:
    random.seed(kind.seed)
    np.random.seed(kind.seed)  # noqa: NPY002 (Flower draws its noise there)
    torch.manual_seed(kind.seed)
    grid = InProcessGrid(make_app(kind), SITES, folder)
    return strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds=rounds).arrays


def cells() -> Iterator[tuple[dict[str, Any], Callable[[], Cell]]]:
    """(what names a cell, how to compute it), the first seed's first."""
    for way, seed, (name, row) in itertools.product(WAYS, SEEDS, ROWS.items()):
        for poison in (False, True):
            names = {"row": name, "seed": seed, "way": way, "poison": poison}
            yield names, partial(served, row, poison, seed, way)
        if way == "default" and row.around is None:
            yield {"row": name, "seed": seed, "way": RETRAIN}, partial(retrained, row, seed)


def table(found: Sequence[Cell]) -> str:
    """As Markdown; a row stands there as soon as it has a Retrain and a request."""
    lines = [
        "| strategy | withdrawn | before | Retrain | by default | ended | by the ladder | ended |",
        "| --- | --- | ---: | ---: | ---: | --- | ---: | --- |",
    ]
    for name, poison in itertools.product(ROWS, (False, True)):
        ways = {way: [one for one in found if one["row"] == name and one["way"] == way] for way in (*WAYS, RETRAIN)}
        ours = {way: [one for one in ways[way] if one["poison"] == poison] for way in WAYS}
        beside = [one["poisoned" if poison else "honest"] for one in ways[RETRAIN]]
        if not ours["default"] or not (beside or ROWS[name].around):
            continue
        sides = [cell for way in WAYS for cell in _side(ours[way], beside)]
        before = _shown([one["before"] for one in ours["default"]])
        lines.append(
            f"| {name} | {'poisoned' if poison else 'honest'} | {before} | {_shown(beside)} | {' | '.join(sides)} |"
        )
    return "\n".join(lines)


def _side(ours: Sequence[Cell], beside: Sequence[dict[str, float]]) -> tuple[str, str]:
    """(the figures, marked where they are too far from Retrain's; where it ended)."""
    if not ours:
        return "", ""
    if "refused" in ours[0]:
        return "refused", ours[0]["refused"]
    after = [one["after"] for one in ours]
    marks = [
        _mark([one[what] for one in after], [one[what] for one in beside], points) for what, points in NEAR.items()
    ]
    ends = Counter(f"{one['rung']}: {one['word']}" for one in ours)
    return _shown(after, marks), ", ".join(f"{end} ({count})" if len(ends) > 1 else end for end, count in ends.items())


def _mark(ours: Sequence[float], beside: Sequence[float], points: float) -> str:
    """Nothing where the means are so near; * where ours lies in the range of single Retrains; ! where it does not."""
    mean = statistics.fmean(ours)
    if abs(mean - statistics.fmean(beside)) <= points:
        return ""
    return "*" if min(beside) <= mean <= max(beside) else "!"


def _shown(figures: Sequence[dict[str, float]], marks: Sequence[str] = ("", "")) -> str:
    """Target / test, each with its spread; nothing of nothing."""
    shown = []
    for what, mark in zip(NEAR, marks, strict=True) if figures else ():
        values = [one[what] for one in figures]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        shown.append(f"{statistics.fmean(values):.1f}{spread}{mark}")
    return " / ".join(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="compute nothing: only the table of what is there")
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    found = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    for names, compute in () if given.table else cells():
        if any(names.items() <= one.items() for one in found):
            continue
        gc.freeze()  # QFedAvg collects garbage for every reply
        found.append({**names, **compute()})
        with RESULTS.open("a") as file:
            file.write(json.dumps(found[-1]) + "\n")
    before, marker, rest = PAGE.read_text().partition("<!-- table -->\n")
    after = rest[rest.index("<!-- /table -->") :]
    PAGE.write_text(f"{before}{marker}\n{table(found)}\n\n{after}")


if __name__ == "__main__":
    main()
