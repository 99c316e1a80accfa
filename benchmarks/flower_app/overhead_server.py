"""Serves one request on Flower and writes down where its time went, for benchmarks/flower_overhead.py."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp
from recorded import Recorded

from fedforget.data.files import write_json
from fedforget.federation.tasks import CountSamples
from fedforget.flower import FlowerFederation
from fedforget.flower.app.settings import AppSettings
from fedforget.flower.messages import Questions
from fedforget.methods import forget
from fedforget.params import digest
from fedforget.runs.store import load_model, read_sealed

REPEATS = 3
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    settings = AppSettings.read(context.run_config)
    federation = _join(grid, settings)
    trained = load_model(settings.out / "trained.safetensors", read_sealed(settings.out / "trained.json")["sha256"])
    assert settings.request is not None
    empty, alone = ([_round_trip(federation, to) for _ in range(REPEATS)] for to in (None, [settings.request.client]))
    idle = _loopback_bytes(), time.perf_counter()
    time.sleep(5.0)
    idle_rate = (_loopback_bytes() - idle[0]) / (time.perf_counter() - idle[1])
    before, sent = _loopback_bytes(), _Sent(grid)
    start = time.perf_counter()
    # As our own app does it: from the question who is there to the model without the target.
    federation = _join(grid, settings, [(settings.request,)])
    recorded = Recorded(federation)
    result = forget(recorded, trained, settings.request, settings.run.schedule, "overwrite")
    seconds = time.perf_counter() - start
    write_json(
        settings.out / "summary.json",
        {
            "seconds": seconds,
            "asks": recorded.asks,
            "messages": sum(sent.steps),
            "steps": len(sent.steps),
            "bytes": result.cost.bytes,
            "loopback_bytes": _loopback_bytes() - before,
            "idle_bytes_per_second": idle_rate,
            "empty_message_to_all_seconds": empty,
            "empty_message_to_one_seconds": alone,
            "digest": digest(result.state),
        },
    )


def _join(grid: Grid, settings: AppSettings, questions: Questions = ()) -> FlowerFederation:
    dataset = settings.run.load_dataset()
    return FlowerFederation(
        grid, settings.run.build_model(dataset), len(dataset.classes), dataset.normalisation,
        clients=settings.run.clients, questions=questions, join_timeout_s=900.0,
    )  # fmt: skip


class _Sent:
    """How many messages went out together, step by step."""

    def __init__(self, grid: Grid) -> None:
        self.steps: list[int] = []
        self._push = grid.push_messages
        grid.push_messages = self._counted  # type: ignore[method-assign]

    def _counted(self, messages: Iterable[Message]) -> Iterable[str]:
        together = list(messages)
        self.steps.append(len(together))
        return self._push(together)


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
