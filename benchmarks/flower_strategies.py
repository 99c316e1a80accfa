"""`python -m benchmarks.flower_strategies`: a request in an attached Flower app, under every strategy of Flower's.

The app (digits_app.py) trains 12 rounds; site 0 withdraws its threes, honest or poisoned; the ladder serves
the request, and the app trains 4 rounds more. Beside it the same app that never had them, 12 + 4 rounds. Prints the
table of docs/results/flower-strategies.md, in percent, each figure a mean over seeds."""

from __future__ import annotations

import argparse
import json
import logging
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
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

from benchmarks.digits_app import BATCH, LR, SITES, Kind, Net, figures, make_app, target_positions
from fedforget.errors import FedForgetError
from fedforget.flower.node_store import NodeStore
from fedforget.flower.strategy import Forget
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import Climb

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests" / "reference"))
from in_process_grid import InProcessGrid  # noqa: E402 (a part of the tests)

ROUNDS, LATER = 12, 4
ALL: dict[str, Any] = {"min_available_nodes": SITES}
SIDE_FIXED, SIDE_ADAPTIVE = DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyServerSideAdaptiveClipping


@dataclass(frozen=True)
class Row:
    """A way to train: the strategy, what is unusual about the app, and whether a strategy stands around `Forget`."""

    strategy: Callable[[], Strategy]
    kind: Kind = field(default_factory=Kind)
    around: Callable[[Strategy], Strategy] | None = None
    rounds: int = ROUNDS


ROWS: dict[str, Row] = {
    "FedAvg": Row(lambda: FedAvg(**ALL)),
    "FedAvg, 4 local epochs": Row(lambda: FedAvg(**ALL), Kind(epochs=4), rounds=8),
    "FedAvg, half of the sites a round": Row(lambda: FedAvg(fraction_train=0.5, **ALL), rounds=16),
    "FedAvg, weighted loss": Row(lambda: FedAvg(**ALL), Kind(weighted=True)),
    "FedProx": Row(lambda: FedProx(proximal_mu=0.1, **ALL)),
    "FedAvgM": Row(lambda: FedAvgM(server_learning_rate=0.5, server_momentum=0.5, **ALL)),
    "FedAdagrad": Row(lambda: FedAdagrad(eta=0.05, tau=1e-2, **ALL)),
    "FedAdam": Row(lambda: FedAdam(eta=0.02, beta_1=0.9, beta_2=0.99, tau=1e-2, **ALL)),
    "FedYogi": Row(lambda: FedYogi(eta=0.02, beta_1=0.9, beta_2=0.99, tau=1e-2, **ALL)),
    "FedMedian": Row(lambda: FedMedian(**ALL)),
    "FedTrimmedAvg": Row(lambda: FedTrimmedAvg(beta=0.25, **ALL)),
    "Krum": Row(lambda: Krum(num_malicious_nodes=0, **ALL)),
    "QFedAvg": Row(lambda: QFedAvg(client_learning_rate=LR, q=0.1, **ALL)),
    "DP inside, fixed clipping at the server": Row(lambda: SIDE_FIXED(FedAvg(**ALL), 0.02, 3.0, SITES)),
    "DP inside, adaptive clipping at the server": Row(
        lambda: SIDE_ADAPTIVE(FedAvg(**ALL), 0.0, SITES, 3.0, clipped_count_stddev=0.0)
    ),
    "DP inside, fixed clipping by a mod": Row(
        lambda: DifferentialPrivacyClientSideFixedClipping(FedAvg(**ALL), 0.02, 3.0, SITES),
        Kind(mods=(fixedclipping_mod,)),
    ),
    "DP inside, adaptive clipping by a mod": Row(
        lambda: DifferentialPrivacyClientSideAdaptiveClipping(FedAvg(**ALL), 0.0, SITES, 3.0, clipped_count_stddev=0.0),
        Kind(mods=(adaptiveclipping_mod,)),
    ),
    "DP outside": Row(lambda: FedAvg(**ALL), around=lambda inner: SIDE_FIXED(inner, 0.02, 3.0, SITES)),
}


def measure(row: Row, poison: bool, seed: int = 0) -> dict[str, Any]:
    """The figures of one request: the model before, after the request, after `LATER` rounds more, and Retrain's."""
    kind = replace(row.kind, poison=poison, seed=seed)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            own, retrained = (_trained(row, kind, Path(folder) / side, side == "never") for side in ("own", "never"))
            return {**own, "retrain": retrained["later"]}
    finally:
        torch.set_num_threads(threads)


def _trained(row: Row, kind: Kind, folder: Path, never: bool) -> dict[str, Any]:
    """Train, serve the request, train on; or, with `never`, the same without the target from the first round on."""
    request = ErasureRequest.of_samples(0, target_positions())
    random.seed(kind.seed)
    torch.manual_seed(kind.seed + (1000 if never else 0))
    grid, initial = InProcessGrid(make_app(kind), SITES, folder), ArrayRecord(Net().state_dict())
    inner = row.strategy()
    forget = Forget(inner, Net, rounds=row.rounds, lr=LR, epochs=kind.epochs, batch_size=BATCH, threads=1)
    outer = forget if row.around is None else row.around(forget)
    if never:
        NodeStore(folder / "site-0", 0).withdraw([request])
        inner = inner if row.around is None else row.around(inner)
        arrays = inner.start(grid, initial, num_rounds=row.rounds).arrays
        return {"later": figures(inner.start(grid, arrays, num_rounds=LATER).arrays, kind.poison)}
    arrays = (inner if row.around is None else row.around(inner)).start(grid, initial, num_rounds=row.rounds).arrays
    found: dict[str, Any] = {"before": figures(arrays, kind.poison)}
    forget.request(partition=0, sample_ids=request.sample_ids)
    result = outer.start(grid, arrays, num_rounds=LATER)
    found["later"] = figures(result.arrays, kind.poison)
    try:
        forget.check_served()
    except FedForgetError as error:
        return {**found, "refused": str(error)}
    (climb,) = forget.served
    assert isinstance(climb, Climb)
    return {**found, "rung": climb.rungs[-1].name, "word": climb.word}


def mean(found: Sequence[dict[str, Any]], when: str, what: str) -> float:
    return statistics.fmean(one[when][what] for one in found)


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """As Markdown."""
    lines = [
        "| strategy | withdrawn | before | after and 4 rounds later | Retrain, 4 rounds later | test accuracy beside "
        "Retrain | ended |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, runs in found.items():
        strategy, _, target = name.rpartition(": ")
        if refused := [one["refused"] for one in runs if "refused" in one]:
            lines.append(
                f"| {strategy} | {target} | {mean(runs, 'before', 'target'):.0f} | refused | | | {refused[0]} |"
            )
            continue
        ends = sorted({f"{one['rung']}: {one['word']}" for one in runs})
        points = mean(runs, "later", "test") - mean(runs, "retrain", "test")
        lines.append(
            f"| {strategy} | {target} | {mean(runs, 'before', 'target'):.1f} | {mean(runs, 'later', 'target'):.1f} | "
            f"{mean(runs, 'retrain', 'target'):.1f} | {points:+.1f} | {'; '.join(ends)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="one row")
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    found: dict[str, list[dict[str, Any]]] = {}
    for name, row in ROWS.items():
        if given.only not in (None, name):
            continue
        for poison in (False, True):
            runs = [measure(row, poison, seed) for seed in range(given.seeds)]
            found[f"{name}: {'poisoned' if poison else 'honest'}"] = runs
            print(json.dumps({"row": name, "poisoned": poison, "runs": runs}), file=sys.stderr)
    print(table(found))


if __name__ == "__main__":
    main()
