"""Jobs in an attached app: each is a request in the app's inbox, which it looks into before its next round.

The place is the app's folder (`runs.attached`). The worker waits there for the answer. The app goes on from the model
that forgot at once, whatever the ledger makes of it: a version here is what came of a request, not what the app is at
now."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from torch import Tensor

from fedforget.data.files import make_folder
from fedforget.errors import FedForgetError, InputError
from fedforget.ledger.federations import Description, Holding
from fedforget.ledger.keeper import Keeper
from fedforget.runs.attached import REFUSED, SERVED, AttachedRun
from fedforget.runs.folder import Run
from fedforget.runs.job import Job, Outcome
from fedforget.runs.record import Figures, Result

LOOK_EVERY_S = 0.5


def is_attached(folder: Path) -> bool:
    """Whether this is the folder of an attached app."""
    return (folder / "run.json").is_file() and Run(folder).config.attached


def describe_attached(folder: Path) -> tuple[Description, dict[str, Tensor]]:
    """What an attached app's clients hold, as far as its server knows, and its newest model."""
    app = AttachedRun(folder)
    said = app.description
    clients: list[Holding] = [
        {"client": one["client"], "name": one["name"], "samples": one["samples"], "counts": []}
        for one in said["clients"]
    ]
    return {"classes": list(map(str, range(said["classes"]))), "clients": clients, "shape": []}, app.run.load_model()


class AttachedExecutor:
    """Does jobs by asking a running app."""

    def run_folder(self, place: str) -> Path:
        return Path(place)

    def execute(self, place: str, folder: Path, job: Job, keeper: Keeper) -> Outcome:
        app = AttachedRun(Path(place))
        if app.answered(job.requests).get("job") != job.id:
            app.ask(job.requests, job.method, job.preset, job.settings, job.id)
        while True:
            keeper.check()
            answer = app.answered(job.requests)
            if answer.get("job") == job.id and answer["state"] == SERVED:
                break
            if answer.get("job") == job.id and answer["state"] == REFUSED:
                raise InputError(answer["reason"])
            keeper.progress("waiting for the app's next round", 0, 1)
            time.sleep(LOOK_EVERY_S)
        keeper.auditing()
        if "after" not in answer:
            raise FedForgetError("The app answered without what it found; ask again.")
        source, place_here = app.run.folder / answer["folder"], folder / answer["folder"]
        make_folder(place_here)
        shutil.copytree(source, place_here, dirs_exist_ok=True)
        result = Result.read(place_here)
        before, after = Figures.from_json(answer["before"]), Figures.from_json(answer["after"])
        return Outcome(job.id, answer["folder"], result, before, after)
