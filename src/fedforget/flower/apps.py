"""Our own federation as a Flower app: the node's side and the server's side that `app/pyproject.toml` names.

Every node takes its part of a data set that all of them know, as its partition-id says. The server trains, serves the
request of the run config, if there is one, and leaves a run folder as `fedforget train` does, with summary.json."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedforget.data.partition import partition
from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.files import write_json
from fedforget.flower.client_app import build_client_app, client_number
from fedforget.flower.federation import FlowerFederation
from fedforget.flower.settings import AppSettings
from fedforget.params import digest
from fedforget.pipeline import audit_run, forget_run, train_run
from fedforget.runs import Run, RunConfig, load_model, read_sealed


def load_own_client(context: Context) -> Client:
    """This node's part of the run's data set, with the run's network."""
    settings = AppSettings.read(context.run_config)
    return _client(settings.run, client_number(context), settings.device)


@lru_cache(maxsize=8)
def _client(config: RunConfig, number: int, device: str) -> Client:
    dataset = config.load_dataset()
    if number >= config.clients:
        raise InputError(f"This node is client {number}, but the run has clients 0 to {config.clients - 1}.")
    part = partition(config.partition, dataset.train.labels, config.clients, config.schedule.seed)[number]
    samples = dataset.train.select(part)
    if config.backdoor is not None:
        samples = config.backdoor.poison(number, samples)
    place = torch.device(device)
    model = config.build_model(dataset).to(place)
    return Client(number, samples, model, dataset.normalisation, len(dataset.classes), place)


def serve(grid: Grid, settings: AppSettings) -> dict[str, Any]:
    """Train, or go on with the run in the folder `out`; serve the request; what came of it, also as summary.json."""
    config, out = settings.run, settings.out
    dataset = config.load_dataset()
    federation = FlowerFederation(
        grid, config.build_model(dataset), len(dataset.classes), dataset.normalisation, clients=config.clients,
        device=settings.device, timeout_s=settings.timeout_s, join_timeout_s=settings.join_timeout_s,
    )  # fmt: skip
    begun = (out / "run.json").exists()
    if begun and Run(out).config != config:
        raise InputError(f"Run folder {out} holds another run; choose another out.")
    run = train_run(out, None if begun else config, federation=federation)
    summary: dict[str, Any] = {"rounds": run.rounds_done, "trained": digest(run.load_model()), "forgotten": {}}
    if settings.request is not None:
        requests = [settings.request]
        summary["target"] = settings.request.describe()
        for method, preset in settings.methods:
            folder = forget_run(out, requests, method, preset, federation=federation)
            assert folder is not None, "nobody else trains this run"
            result = read_sealed(folder / "result.json")
            model = load_model(folder / "model.safetensors", result["sha256"])
            summary["forgotten"][f"{method}:{preset}"] = {
                "digest": digest(model),
                "folder": folder.relative_to(out).as_posix(),
                "cost": result["cost"],
                "notes": result["notes"],
            }
        if settings.audit:
            summary["audit"] = audit_run(out, requests, federation=federation)["rows"]
    write_json(out / "summary.json", summary)
    return summary


client_app = build_client_app(load_own_client)
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    serve(grid, AppSettings.read(context.run_config))
