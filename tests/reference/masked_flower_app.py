"""Our own app for a server that serves its request with masked sketches, which the run config cannot ask for.

Tests copy this file into an app folder of their own; the package has nothing of the kind."""

from __future__ import annotations

from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedforget.data.files import write_json
from fedforget.flower import FlowerFederation
from fedforget.flower.app.settings import AppSettings
from fedforget.methods import forget
from fedforget.params import digest
from fedforget.runs.folder import Run

MASKED: dict[str, Any] = {
    "sketch_scope": "federation", "sketch_masked": True, "sketch_rows": 5, "memory": "suppressed", "recovery_rounds": 0,
}  # fmt: skip
"""With no more messages than the masks need: a process of its own answers each."""
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Forget in the trained model of the folder `out`; what came of it is in summary.json."""
    settings = AppSettings.read(context.run_config)
    assert settings.request is not None
    run, dataset = Run(settings.out), settings.run.load_dataset()
    federation = FlowerFederation(
        grid, settings.run.build_model(dataset), len(dataset.classes), dataset.normalisation,
        clients=settings.run.clients, timeout_s=settings.timeout_s, join_timeout_s=settings.join_timeout_s,
    )  # fmt: skip
    result = forget(federation, run.load_model(), settings.request, settings.run.schedule, "overwrite", **MASKED)
    told = {"digest": digest(result.state), "bytes": result.cost.bytes, "notes": list(result.notes)}
    write_json(settings.out / "summary.json", told)
