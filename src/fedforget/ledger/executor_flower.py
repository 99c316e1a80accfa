"""Jobs on a Flower deployment: each is one `flwr run` of our app, which finds the job in its folder and leaves the
result there. The worker runs beside the SuperLink, or shares its files, and as the same user.

A federation's place is a file such as examples/deploy/federation.toml. A worker that takes over goes on with the run
that the dead one began: its number is in the folder."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedforget.errors import FedForgetError, InputError
from fedforget.ledger.executor_attached import describe_attached
from fedforget.ledger.federations import Description, Holding, describe_run, prepared
from fedforget.ledger.keeper import Keeper
from fedforget.ledger.run_folders import read_run
from fedforget.ledger.schema import Federation
from fedforget.runs.config import RunConfig
from fedforget.runs.job import Job, Outcome, Reached, drop_failure, raise_failure
from fedforget.runs.store import read_sealed, write_sealed

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger

log = logging.getLogger(__name__)
NOTE = "flower.json"
LOOK_EVERY_S = 0.5
ASK_EVERY_S = 20.0
"""How often the SuperLink is asked whether the run still goes on; each time starts Flower's command anew."""
MOST_SILENCE = 3
"""So often in a row nobody may answer."""
MINUTES_FOR_A_COMMAND = 5.0
ENDED = "finished"
OPTIONS = ("classes", "device", "timeout-s", "join-timeout-s")
"""What of the run config a place may say; the rest is in the run folder."""


@dataclass(frozen=True)
class FlowerPlace:
    """Where a Flower federation is, as its file says."""

    connection: str
    """The SuperLink's name in Flower's config.toml."""
    home: Path
    """The folder of that config.toml (default: $FLWR_HOME, else ~/.flwr)."""
    run: Path
    """What `flwr run` trained: the folder `out` of docs/deploy.md."""
    run_config: dict[str, Any] = field(default_factory=dict)
    clients: tuple[dict[str, Any], ...] = ()
    """Only where the sites have data of their own, client 0 first: each with the `counts` of its samples by class, or
    how many `samples` there are, and perhaps a `name`."""

    @classmethod
    def read(cls, file: Path) -> FlowerPlace:
        try:
            values = tomllib.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"The description {file} of a Flower federation cannot be read: {error}.") from None
        known = {"connection": str, "home": str, "run": str, "run-config": dict, "clients": list}
        for name, value in values.items():
            if name not in known or not isinstance(value, known[name]):
                raise InputError(f"In {file}, '{name}' is unknown or of the wrong kind; there are {', '.join(known)}.")
        for name in ("connection", "run"):
            if not values.get(name):
                raise InputError(f"{file} must name its '{name}'.")
        options = values.get("run-config", {})
        strange = next((name for name in options if name not in OPTIONS), None)
        if strange is not None:
            raise InputError(f"In {file}, run-config has '{strange}', but it may only have {', '.join(OPTIONS)}.")
        home = values.get("home") or os.environ.get("FLWR_HOME") or Path.home() / ".flwr"
        here = file.parent
        clients = tuple(values.get("clients", ()))
        return cls(values["connection"], here / home, here / values["run"], options, clients)


def describe_flower(file: Path) -> tuple[Description, dict[str, Tensor]]:
    """What a Flower federation's clients hold, as far as the server may know, and its model."""
    place = FlowerPlace.read(file)
    if not place.clients:
        return describe_run(place.run)
    run, model = read_run(place.run)
    count, shape = int(place.run_config.get("classes", 0)), tuple[int, ...]()
    try:
        dataset = run.config.load_dataset()
        count, shape = count or len(dataset.classes), dataset.shape
    except InputError:  # the shape may stay unsaid
        if not count:
            raise
    clients: list[Holding] = []
    for number, client in enumerate(place.clients):
        counts = list(client.get("counts", ()))
        samples, name = int(client.get("samples", sum(counts))), str(client.get("name", f"client {number}"))
        clients.append({"client": number, "name": name, "samples": samples, "counts": counts})
    if len(clients) != run.config.clients or any(len(held["counts"]) not in (0, count) for held in clients):
        raise InputError(f"{file} must describe {run.config.clients} clients, and {count} classes of each.")
    described: Description = {"classes": list(map(str, range(count))), "clients": clients, "shape": list(shape)}
    return prepared(described, run.config), model


def register_flower(ledger: Ledger, name: str, place: Path, *, actor: str, **settings: Any) -> Federation:
    """Make a Flower federation one that requests can be about: by the file that describes it, or an attached app by its
    folder."""
    description, model = describe_attached(place) if place.is_dir() else describe_flower(place)
    where = str(place.resolve())
    return ledger.federations.register(name, "flower", where, description, model, actor=actor, **settings)


def run_words(config: RunConfig, entries: Mapping[str, Any]) -> str:
    """What `flwr run --run-config` takes for this run: one entry of JSON, and the `entries` beside it.

    A value stands in TOML's single quotes, where nothing is escaped; the one sign that cannot stand there has another
    name in JSON."""
    run = json.dumps(config.to_json()).replace("'", "\\u0027")
    return " ".join([f"run='{run}'", *(f"{name}={json.dumps(value)}" for name, value in entries.items())])


class FlowerExecutor:
    """Does jobs by `flwr run`."""

    def run_folder(self, place: str) -> Path:
        return FlowerPlace.read(Path(place)).run

    def execute(self, place: str, folder: Path, job: Job, keeper: Keeper) -> Outcome:
        there = SuperLink(FlowerPlace.read(Path(place)))
        done = Outcome.read(folder, job)
        if done is not None:
            keeper.auditing()
            return done
        number = _begun(folder)
        if number is None or there.ended(number) is not False:
            drop_failure(folder)
            number = there.start(folder, job)
            write_sealed(folder / NOTE, {"run": number})
        try:
            return self._wait(there, number, folder, job, keeper)
        except BaseException:
            there.stop(number)
            (folder / NOTE).unlink(missing_ok=True)
            raise

    def _wait(self, there: SuperLink, number: int, folder: Path, job: Job, keeper: Keeper) -> Outcome:
        """Look into the folder until the app has left something there. Now and then ask the SuperLink whether the run
        still goes on; one that does not answer may come back."""
        asked, silent, ended = time.monotonic(), 0, False
        while True:
            if not ended and time.monotonic() - asked > ASK_EVERY_S:
                told = there.ended(number)
                asked, silent, ended = time.monotonic(), (silent + 1 if told is None else 0), told is True
            reached = Reached.read(folder, job)
            if reached is not None and reached.auditing:
                keeper.auditing()
            if reached is not None:
                keeper.progress(reached.what, reached.done, reached.total)
            keeper.check()
            raise_failure(folder, job)
            done = Outcome.read(folder, job)
            if done is not None:
                keeper.auditing()
                return done
            if ended:
                last = there.last_words(number)
                raise FedForgetError(f"Flower's run {number} ended without a result; its log ends: {last}")
            if silent >= MOST_SILENCE:
                raise FedForgetError(f"The SuperLink of {there.name} does not answer any more; is it running?")
            time.sleep(LOOK_EVERY_S)


def _begun(folder: Path) -> int | None:
    """The number of the run that serves this folder, if one was begun."""
    try:
        return int(read_sealed(folder / NOTE)["run"])
    except (InputError, ValueError, KeyError, OSError):
        return None


class SuperLink:
    """A deployment, as Flower's command line sees it."""

    def __init__(self, place: FlowerPlace) -> None:
        try:
            from fedforget.flower import APP
            from fedforget.flower.environment import quiet_environment
        except ModuleNotFoundError as error:
            raise InputError(
                f"A Flower federation needs the package {error.name}; install it with: pip install 'fedforget[flower]'."
            ) from None
        self.name, self._run_config, self._app = place.connection, place.run_config, APP
        # Flower starts commands of its own by name.
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        self._environment = {**quiet_environment(place.home), "PATH": programs}

    def start(self, folder: Path, job: Job) -> int:
        """Begin the run that does the job of `folder`; its number."""
        words = run_words(job.config, {**self._run_config, "out": str(folder.resolve())})
        told = self._flwr("run", str(self._app), self.name, "--run-config", words)
        try:
            return int(told["run-id"])
        except (KeyError, ValueError, TypeError):
            raise FedForgetError(f"Flower began a run without a number: {told!s:.200}") from None

    def ended(self, number: int) -> bool | None:
        """Whether a run is over, one way or the other; None where nobody can say."""
        try:
            told = self._flwr("list", self.name, "--run-id", str(number))
        except FedForgetError as error:
            log.warning("%s", error)
            return None
        return all(str(run.get("status", "")).startswith(ENDED) for run in told.get("runs", ()))

    def stop(self, number: int) -> None:
        """End a run, if it is there to be ended."""
        try:
            self._flwr("stop", str(number), self.name)
        except FedForgetError as error:
            log.info("%s", error)  # it is over already, most likely

    def last_words(self, number: int) -> str:
        """The last line of a run's log."""
        try:
            said = self._run("log", str(number), self.name, "--show")
        except FedForgetError as error:
            return str(error)
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return lines[-1][-400:] if lines else "its log is empty."

    def _flwr(self, *words: str) -> Mapping[str, Any]:
        """What one of Flower's commands says."""
        said = self._run(*words, "--format", "json")
        try:
            told = json.loads(said)
            if not isinstance(told, dict):
                raise ValueError
        except ValueError:
            raise FedForgetError(f"`flwr {words[0]}` gave no sensible answer: {said.strip()[-300:]}") from None
        if not told.get("success", True):
            raise FedForgetError(f"`flwr {words[0]}` failed: {told.get('error-message', '')!s:.400}")
        return told

    def _run(self, *words: str) -> str:
        command = [str(Path(sys.executable).parent / "flwr"), *words]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=self._environment, stdin=subprocess.DEVNULL,
                timeout=60 * MINUTES_FOR_A_COMMAND, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FedForgetError(f"`flwr {words[0]}` could not be run: {error}") from None
        if done.returncode and not done.stdout.strip():
            raise FedForgetError(f"`flwr {words[0]}` failed: {' '.join((done.stderr or '').split())[-400:]}")
        return done.stdout
