"""Serves one request on Flower and writes down where its time went, for benchmarks/flower_overhead.py."""

from __future__ import annotations

import time
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from recorded import Recorded

from fedforget.data.files import write_json
from fedforget.federation.tasks import CountSamples
from fedforget.flower import FlowerFederation
from fedforget.flower.app.settings import AppSettings
from fedforget.methods import forget
from fedforget.params import digest
from fedforget.runs.store import load_model, read_sealed

REPEATS = 3
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    settings = AppSettings.read(context.run_config)
    dataset = settings.run.load_dataset()
    federation = FlowerFederation(
        grid,
        settings.run.build_model(dataset),
        len(dataset.classes),
        dataset.normalisation,
        clients=settings.run.clients,
    )
    trained = load_model(settings.out / "trained.safetensors", read_sealed(settings.out / "trained.json")["sha256"])
    assert settings.request is not None
    empty, alone = ([_round_trip(federation, to) for _ in range(REPEATS)] for to in (None, [settings.request.client]))
    idle = _loopback_bytes(), time.perf_counter()
    time.sleep(5.0)
    idle_rate = (_loopback_bytes() - idle[0]) / (time.perf_counter() - idle[1])
    recorded = Recorded(federation)
    before = _loopback_bytes()
    start = time.perf_counter()
    result = forget(recorded, trained, settings.request, settings.run.schedule, "overwrite")
    seconds = time.perf_counter() - start
    write_json(
        settings.out / "summary.json",
        {
            "seconds": seconds,
            "asks": recorded.asks,
            "bytes": result.cost.bytes,
            "loopback_bytes": _loopback_bytes() - before,
            "idle_bytes_per_second": idle_rate,
            "empty_message_to_all_seconds": empty,
            "empty_message_to_one_seconds": alone,
            "digest": digest(result.state),
        },
    )


def _round_trip(federation: FlowerFederation, to: list[int] | None) -> float:
    """Seconds of a task that does nothing and carries nothing."""
    start = time.perf_counter()
    for _ in federation.ask(CountSamples(seed=0, threads=1), {}, to):
        pass
    return time.perf_counter() - start


def _loopback_bytes() -> int:
    """What went over 127.0.0.1 so far, with every header and every poll."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.partition(":")[2].split()[8])
