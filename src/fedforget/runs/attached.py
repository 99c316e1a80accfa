"""The folder of an attached app: a run folder whose data lie at the app's nodes. It is the app's inbox and its record.

    run.json state.json checkpoints/   as in any run folder: how the app trains, its model, what that has forgotten
    app.json                           sealed: who its clients are, as far as the server knows
    queue/ID.json                      a request that waits; `fedforget forget FOLDER ...` leaves it there
    answers/ID.json                    sealed: what came of it
    forgotten/METHOD-PRESET-ID/        model.safetensors, result.json, and where a ledger asked evidence-alone.json

The running app looks into the queue before each of its rounds (`flower.strategy.Forget`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedforget.audit.case import Case
from fedforget.audit.measures import Measures, measure_clients, share_as_trained, share_as_true
from fedforget.data.files import make_folder, write_bytes
from fedforget.errors import InputError
from fedforget.federation.evaluation import Evaluation
from fedforget.federation.observed import silent
from fedforget.federation.rounds import Schedule
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import Measure
from fedforget.methods import LADDER, Forgetting
from fedforget.params import State, digest
from fedforget.requests import ErasureRequest, requests_id
from fedforget.runs.audit import judge_models
from fedforget.runs.climb import NOT_DONE, Climb
from fedforget.runs.config import AT_NODES, RunConfig
from fedforget.runs.folder import Run, Trunk
from fedforget.runs.forget import Asked as Asked
from fedforget.runs.forget import read_queued, record_result, results_of
from fedforget.runs.record import BEFORE, Figures, Result
from fedforget.runs.store import model_bytes, read_sealed, write_sealed
from fedforget.runs.told import ended_at

TRAINED_ON = "The app had trained on since the version before, and went on from this model at once."
SERVED, REFUSED, WAITING = "served", "refused", "waiting"


class AttachedRun:
    """An opened folder of an attached app."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(folder)
        if not self.run.config.attached:
            raise InputError(f"{folder} is a run folder with data of its own, not that of an attached app.")

    @classmethod
    def opened(cls, folder: Path, network: str, schedule: Schedule, state: State) -> AttachedRun:
        """The app's folder, which now holds `state` as its model; it is made where there is none."""
        if not (Path(folder) / "run.json").exists():
            Run.create(folder, RunConfig(AT_NODES, 1, "own", network, schedule), state)
        attached = cls(folder)
        attached.keep(state, attached._forgotten_by(state) if attached.run.started else ())
        return attached

    def _forgotten_by(self, state: State) -> tuple[ErasureRequest, ...]:
        """What a model that the app begins with has forgotten. One of before a request, as from a checkpoint or where
        the app was killed between the two, has not: such a request goes back into the queue."""
        sha256, served = hashlib.sha256(model_bytes(state)).hexdigest(), self.run.served
        if sha256 == self.run.trunk.sha256:
            return served
        results = [result for result in results_of(self.run).values() if result.sha256 != result.before.sha256]
        known = [result.before.served for result in results if result.before.sha256 == sha256]
        if not known:
            return served
        left = min(known, key=len)
        again = dict.fromkeys(result.requests for result in results if not set(result.requests) <= set(left))
        for requests in again:
            if not (self.run.folder / "queue" / f"{requests_id(requests)}.json").exists():
                self.ask(requests, LADDER, "default", {}, "")
        return left

    def keep(self, state: State, served: Sequence[ErasureRequest]) -> Trunk:
        """Make this the app's newest model. It lies under its own checksum: no other model is overwritten."""
        data = model_bytes(state)
        sha256 = hashlib.sha256(data).hexdigest()
        name = f"checkpoints/{sha256[:16]}.safetensors"
        make_folder(self.run.folder / "checkpoints")
        write_bytes(self.run.folder / name, data)
        trunk = Trunk(name, sha256, tuple(served))
        write_sealed(self.run.folder / "state.json", {"round": self.run.config.schedule.rounds, **trunk.to_json()})
        return trunk

    def describe(self, clients: Sequence[Mapping[str, Any]], classes: int) -> None:
        """Note who is there, for a ledger."""
        write_sealed(self.run.folder / "app.json", {"clients": list(clients), "classes": classes})

    @property
    def description(self) -> dict[str, Any]:
        try:
            return read_sealed(self.run.folder / "app.json")
        except (OSError, ValueError):
            raise InputError(
                f"{self.run.folder} does not say yet who its clients are; start the app once, then ask again."
            ) from None

    # The inbox

    def waiting(self) -> list[Asked]:
        """What lies in the queue, oldest name first; what cannot be read is answered, and leaves it."""
        found = []
        for path in self.run.queued():
            try:
                found.append(read_queued(path))
            except InputError as error:
                write_sealed(self._answer(path.stem), {"state": REFUSED, "reason": str(error), "job": ""})
                path.unlink()
        return found

    def ask(
        self, requests: Sequence[ErasureRequest], method: str, preset: str, settings: Mapping[str, Any], job: str
    ) -> None:
        """Leave a request in the queue, for a worker's job."""
        asked = [request.to_json() for request in requests]
        values = {"requests": asked, "method": method, "preset": preset, "settings": dict(settings), "job": job}
        if self.answered(requests).get("job") != job:
            self._answer(requests_id(requests)).unlink(missing_ok=True)
        self.run.enqueue(requests_id(requests), values)

    def answer(self, asked: Asked, state: str, **values: Any) -> None:
        """Write down what came of a request, and take it from the queue unless it still waits."""
        write_sealed(self._answer(asked.path.stem), {"state": state, "job": asked.job, **values})
        if state != WAITING:
            asked.path.unlink(missing_ok=True)

    def answered(self, requests: Sequence[ErasureRequest]) -> dict[str, Any]:
        """What came of these requests; empty where nobody has answered yet."""
        try:
            return read_sealed(self._answer(requests_id(requests)))
        except (OSError, ValueError):
            return {}

    def _answer(self, name: str) -> Path:
        make_folder(self.run.folder / "answers")
        return self.run.folder / "answers" / f"{name}.json"

    # The record

    def record(self, made: Forgetting, before: Trunk) -> None:
        """Write down a model that forgot, and make it the app's own. One in which the target still is has not forgotten
        it: the same request can be made again, to climb higher."""
        record_result(self.run, made, before)
        still_there = isinstance(made, Climb) and made.word in NOT_DONE
        self.keep(made.state, before.served if still_there else (*before.served, *made.requests))

    def answer_served(self, asked: Asked, federation: Federation) -> None:
        """Answer from the record; for a ledger's job with what an examination finds while the nodes are there."""
        chosen = {place: result for place, result in results_of(self.run).items() if result.requests == asked.requests}
        if not chosen:
            raise InputError("The model has forgotten this already, together with something else.")
        place, result = list(chosen.items())[-1]
        word = ended.word if (ended := ended_at(result.rungs)) is not None else ""
        if result.rungs and not word:
            word = result.rungs[-1].word
        told = {"word": word, "folder": place.relative_to(self.run.folder).as_posix(), "notes": list(result.notes)}
        self.answer(asked, SERVED, **told, **(self._examined(federation, place, result) if asked.job else {}))

    def _examined(self, federation: Federation, place: Path, result: Result) -> dict[str, Any]:
        """What a ledger wants to know of the model before and of the one that forgot: the clients' accuracies, and the
        evidence of an audit that trains no oracle."""
        case = Case(federation, result.requests, self.run.config.schedule, "alone", result.before.served)
        models = {BEFORE: self.run.load_trunk(result.before), result.name: result.load_model(place)}
        noted = replace(result, notes=(*result.notes, TRAINED_ON))
        judged = judge_models(self.run, case, 0, None, models, {place: noted}, silent)
        found = {}
        for name, row in (("before", Figures(BEFORE, None)), ("after", Figures.of(result))):
            target, kept = measure_clients(federation, models[row.name], case.about(Measure))
            now = _measures(target, kept)
            found[name] = replace(row, model=digest(models[row.name]), now=now, **judged.get(row.name, {})).to_json()
        return found


def _measures(target: Evaluation, kept: Evaluation) -> Measures:
    """The clients' figures; there is no test data here."""
    return Measures(
        None, share_as_trained(target), None, None, share_as_true(target), target.mean_loss, kept.accuracy, None, []
    )
