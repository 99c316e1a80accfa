"""Our own federation as a Flower app: the node's side and the server's side that `bundle/pyproject.toml` names.

A node whose config names `data` (an .npz file, a folder of images) holds that file's training samples. Any other takes
its part of a data set that all of them know, as its partition-id says. The server trains, serves the
request of the run config, if there is one, and leaves a run folder as `fedforget train` does, with summary.json."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedforget.audit.verdict import verdict_line
from fedforget.data import Dataset, load_dataset
from fedforget.data.files import write_json
from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.flower.app.settings import AppSettings
from fedforget.flower.app.worker import serve_for_worker, telling_worker
from fedforget.flower.client_app import build_client_app, client_number
from fedforget.flower.federation import FlowerFederation
from fedforget.methods import LADDER
from fedforget.params import digest
from fedforget.requests import ErasureRequest
from fedforget.runs.audit import audit_run
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run
from fedforget.runs.forget import forget_run, results_of
from fedforget.runs.job import Job
from fedforget.runs.record import BEFORE, Result
from fedforget.runs.told import ending, untold
from fedforget.runs.train import train_run

log = logging.getLogger("flwr")


def load_own_client(context: Context) -> Client:
    """This node's part of the run's data set, with the run's network."""
    settings = AppSettings.read(context.run_config)
    own = context.node_config.get("data")
    return _client(settings.run, settings.classes, client_number(context), settings.device, str(own) if own else None)


@lru_cache(maxsize=8)
def _client(config: RunConfig, classes: int, number: int, device: str, own: str | None) -> Client:
    if number >= config.clients:
        raise InputError(f"This node is client {number}, but the run has clients 0 to {config.clients - 1}.")
    dataset = _with_classes(config.load_dataset() if own is None else load_dataset(own), classes)
    samples, held_out = dataset.train, dataset.test
    if own is None:
        parts, outside = config.parts(dataset)
        samples, held_out = samples.select(parts[number]), outside[number]
    elif config.hold_out:
        kept, aside = config.set_aside(torch.arange(len(samples)), number)
        samples, held_out = samples.select(kept), samples.select(aside)
    if config.backdoor is not None:
        samples = config.backdoor.poison(number, samples)
        held_out = config.backdoor.poison_held_out(number, held_out)
    place = torch.device(device)
    model = config.build_model(dataset, weights=False).to(place)
    return Client(number, samples, model, dataset.normalisation, len(dataset.classes), place, held_out=held_out)


def _with_classes(dataset: Dataset, count: int) -> Dataset:
    """A site need not hold every class."""
    if not count:
        return dataset
    if len(dataset.classes) > count:
        raise InputError(f"'{dataset.name}' has {len(dataset.classes)} classes, but the run config has {count}.")
    return replace(dataset, classes=(*dataset.classes, *map(str, range(len(dataset.classes), count))))


def serve(grid: Grid, settings: AppSettings) -> dict[str, Any]:
    """Train, or go on with the run in the folder `out`; serve the request; what came of it, also as summary.json.

    The model that one method makes becomes the run's own: the next request, in a `flwr run` with the same `out`, starts
    from it, and the same request again changes nothing. Several methods are compared, and the run stays as it is."""
    config, out = settings.run, settings.out
    dataset = _with_classes(config.load_dataset(), settings.classes)
    begun = (out / "run.json").exists()
    if begun and Run(out).config != config:
        raise InputError(f"Run folder {out} holds another run; choose another out.")
    questions = [] if settings.request is None else [(settings.request,)]
    federation = FlowerFederation(
        grid, config.build_model(dataset), len(dataset.classes), dataset.normalisation, clients=config.clients,
        needed=_needed(settings), questions=questions, device=settings.device, timeout_s=settings.timeout_s,
        join_timeout_s=settings.join_timeout_s,
    )  # fmt: skip
    if (out / "job.json").exists():
        return serve_for_worker(out, federation)
    run = train_run(out, None if begun else config, progress=_Rounds(config.schedule.rounds), federation=federation)
    summary: dict[str, Any] = {"rounds": run.rounds_done, "trained": digest(run.load_model()), "forgotten": {}}
    if settings.request is not None:
        requests = [settings.request]
        summary["target"] = settings.request.describe()
        for folder in _serve_request(run, settings.request, settings, federation):
            result = Result.read(folder)
            summary["forgotten"][result.name] = _told(result, folder, out)
        if settings.audit:
            found = audit_run(out, requests, level=settings.audit_level, federation=federation)
            summary["audit"] = found.to_json()["rows"]
            for row in found.rows:
                if row.verdict is not None and row.method != BEFORE:
                    log.info("The audit says of %s: %s", row.name, verdict_line(row.verdict))
    write_json(out / "summary.json", summary)
    return summary


class _Rounds:
    """Tells the log of each round that is done."""

    def __init__(self, rounds: int) -> None:
        self._rounds, self._told = rounds, 0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = done * self._rounds // total if what == "training" and total else 0
        if now > self._told:
            self._told = now
            log.info("Round %d of %d is done.", now, self._rounds)


def _needed(settings: AppSettings) -> set[int]:
    """Whose request is served where the training is done: nobody else is waited for, but for who is in a
    shard with them: without that client it would not be trained as it was. A training needs everybody."""
    job, out = Job.read(settings.out), settings.out
    if job is not None:
        return _working(settings.run, {request.client for request in job.requests})
    if (
        settings.request is None
        or not (out / "run.json").exists()
        or Run(out).rounds_done < settings.run.schedule.rounds
    ):
        return set()
    return _working(settings.run, {settings.request.client})


def _working(config: RunConfig, asking: set[int]) -> set[int]:
    shards = {client % config.shards for client in asking}
    return asking if config.shards == 1 else {c for c in range(config.clients) if c % config.shards in shards}


def _told(result: Result, folder: Path, out: Path) -> dict[str, Any]:
    """What the summary says of a model that forgot."""
    told: dict[str, Any] = {
        "digest": digest(result.load_model(folder)),
        "folder": folder.relative_to(out).as_posix(),
        "cost": result.cost.to_json(),
        "notes": list(result.notes),
    }
    if result.rungs:
        told |= {"rungs": [rung.to_json() for rung in result.rungs], "retrain_forecast": result.retrain_forecast}
    return told


def _serve_request(
    run: Run, request: ErasureRequest, settings: AppSettings, federation: FlowerFederation
) -> Iterator[Path]:
    """The folder of every model that forgot. The log tells how a climb goes on, and where it ended."""
    if request in run.served:
        served = {folder: result for folder, result in results_of(run).items() if result.requests == (request,)}
        if settings.climbing and not any(
            settings.climbing.items() <= result.settings.items() for result in served.values()
        ):
            raise InputError(
                f"The run has served {request.describe()} already, and went on from there; "
                "to climb in another way, choose another out."
            )
        yield from (folder for folder, result in served.items() if result.diverged is None)
        return
    told: list[str] = []

    def say(sentence: str) -> None:
        told.append(sentence)
        log.info("%s", sentence)

    for method, preset in settings.methods:
        folder = forget_run(
            run.folder, [request], method, preset, federation=federation, adopt=len(settings.methods) == 1,
            say=say, **(settings.climbing if method == LADDER else {}),
        )  # fmt: skip
        assert folder is not None, "nobody else trains this run"
        climbed = Result.read(folder)
        if climbed.rungs:
            for sentence in (
                *untold(climbed.rungs, told),
                *ending(climbed.rungs, climbed.notes, climbed.cost, climbed.retrain_forecast),
            ):
                say(sentence)
        yield folder


client_app = build_client_app(load_own_client)
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    settings = AppSettings.read(context.run_config)
    with telling_worker(settings.out):
        serve(grid, settings)
