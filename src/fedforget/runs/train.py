"""Train a federation into a run folder, and go on where it was left."""

from __future__ import annotations

from pathlib import Path

from fedforget.errors import InputError
from fedforget.federation.evaluation import evaluate
from fedforget.federation.observed import Progress, Watched, silent
from fedforget.federation.rounds import run_round
from fedforget.federation.seam import Federation, thread_count
from fedforget.params import state_of
from fedforget.runs.config import RunConfig
from fedforget.runs.folder import Run
from fedforget.runs.forget import serve_late, serve_queue


def train_run(
    folder: Path,
    config: RunConfig | None = None,
    *,
    progress: Progress = silent,
    device: str = "cpu",
    federation: Federation | None = None,
) -> Run:
    """Train the federation of `config` into a new folder, or, without `config`, go on where `folder` was left.
    `federation` may be one on other machines that holds the data of `config`; else it is made here.

    Every draw is named by seed, round and client, so the model after a round depends on the model before it alone:
    a resumed run ends with the same bits. Requests that arrive meanwhile are served between two rounds."""
    if config is not None:
        if config.head is not None:
            config.head.check_origin(config.dataset, folder)
        dataset = config.load_dataset()
        federation = federation or config.build_federation(dataset, device)
        run = Run.create(folder, config, state_of(federation.model))
    else:
        run = Run(folder)
        dataset = run.config.load_dataset()
        federation = federation or run.config.build_federation(dataset, device)
    schedule = run.config.schedule
    with run.training_lock() as alone:
        if not alone:
            raise InputError(f"Another process is training {folder}; wait for it, or stop it first.")
        if not run.started:
            run.save_round(0, state_of(federation.model), served=())
        state = run.load_model()
        total = schedule.rounds * len(federation.clients)
        watched = Watched(federation, "training", total, progress, done=run.rounds_done * len(federation.clients))
        for round in range(run.rounds_done, schedule.rounds):
            state = serve_queue(run, federation, state)
            served = run.served
            state = run_round(watched, state, schedule.train_task(round, served), run.history)
            with thread_count(schedule.threads):
                federation.model.load_state_dict(state)
                tested = evaluate(federation.model, dataset.test, federation.normalisation, federation.device)
            run.add_metrics({"round": round + 1, "test_acc": tested.accuracy, "test_loss": tested.mean_loss})
            run.save_round(round + 1, state, served)
    serve_late(run, federation, progress)
    return run
