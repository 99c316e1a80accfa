"""The worker: claims requests, makes the federation forget and audits it, and hands the result to the ledger.

    Worker(ledger, "a").run(stop)        until `stop` is set; several workers may run on one ledger

A worker may die at any point. Its lease ends, another one claims the same requests, and goes on in the same folder
(`workplace`). Only `versions.finish` makes a version, in one transaction, and only for who holds the claim: so there
is exactly one."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

from fedforget.audit.thresholds import thresholds
from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.ledger.book import Ledger
from fedforget.ledger.clock import MOST_JUMP, Jumps
from fedforget.ledger.errors import BusyError, LeaseLostError
from fedforget.ledger.executor_attached import AttachedExecutor
from fedforget.ledger.executor_flower import FlowerExecutor
from fedforget.ledger.executors import Executor, LocalExecutor
from fedforget.ledger.keeper import Keeper
from fedforget.ledger.results import Handover
from fedforget.ledger.schema import Federation
from fedforget.ledger.serving import serving
from fedforget.ledger.versions import Finished
from fedforget.ledger.work import Claim
from fedforget.ledger.workplace import remains, sweep, workplace
from fedforget.requests import describe_requests
from fedforget.runs.folder import Run
from fedforget.runs.job import Job, NotWanted, Outcome, clear, each_once, prepare
from fedforget.runs.record import REPORT

log = logging.getLogger(__name__)
AFTER_TROUBLE_S = 5.0
"""How long a worker waits that could not even claim, before it tries again."""


class Worker:
    """Serves the requests of a ledger, one claim after another."""

    def __init__(
        self,
        ledger: Ledger,
        name: str | None = None,
        executor: Executor | None = None,
        *,
        federation: str | None = None,
        lease_seconds: float = 60.0,
        poll_seconds: float = 1.0,
        tidy_seconds: float = 300.0,
        device: str = "cpu",
    ) -> None:
        """`executor` does the jobs of every federation; without it, the kind of the federation decides. `federation`:
        serve this one alone. `poll_seconds`: how often to look whether something waits. `tidy_seconds`: how often, at
        most, to destroy what is kept no longer."""
        self.ledger, self.federation = ledger, federation
        self.name = name or f"{socket.gethostname()[:60]}/{os.getpid()}"
        self._executor, self._device = executor, device
        self._lease_seconds, self._poll_seconds, self._tidy_seconds = lease_seconds, poll_seconds, tidy_seconds
        self._tidied: float | None = None
        self._jumps = Jumps(ledger.clock)

    def run(self, stop: threading.Event | None = None, once: bool = False) -> int:
        """Serve until `stop` is set, or, with `once`, until nothing is left that can be served now; how many requests
        were served. Set during a request, `stop` gives it back at the next reply of a client.

        An InputError at the start: nothing could be signed. Later, what goes wrong is in the log and in the ledger."""
        self.ledger.keys.check_signing()
        with self.ledger.webhooks.beside():
            return self._run(stop or threading.Event(), once)

    def _run(self, stop: threading.Event, once: bool) -> int:
        served = 0
        while not stop.is_set():
            try:
                self.ledger.keys.check_signing()  # before a request is begun that could not be certified
                claim = self.ledger.work.claim(self.name, self._lease_seconds, federation=self.federation)
                if claim is not None:
                    finished = self.serve(claim, stop)
                    served += 0 if finished is None else len(finished.requests)
                    continue
                self._tidy()
                if once:
                    break
                stop.wait(self._poll_seconds)
            except Exception as error:
                if once and not isinstance(error, BusyError):
                    raise
                known = isinstance(error, FedForgetError)
                log.error("%s", error) if known else log.exception("Something unexpected went wrong.")
                stop.wait(AFTER_TROUBLE_S)
        return served

    def serve(self, claim: Claim, stop: threading.Event | None = None) -> Finished | None:
        """Serve what was claimed; None where it came to nothing: the ledger says why."""
        target = describe_requests([request.erasure for request in claim.requests])
        log.info("%s: forgetting %s, from version %d.", claim.federation.name, target, claim.parent.number)
        keeper = Keeper(self.ledger, claim, self._lease_seconds, stop or threading.Event())
        began = time.monotonic()
        try:
            with keeper, workplace(self.ledger.home, claim.federation.name) as folder:
                finished = self._work(claim, folder, keeper)
        except NotWanted:
            if not keeper.lost:
                log.info("%s: stopping; %s waits again.", claim.federation.name, target)
                self._give_back(claim)
            return None
        except (LeaseLostError, BusyError) as error:
            # Nothing can be told to the ledger now. Its lease ends by itself, and who claims it next goes on with it.
            log.warning("%s", error)
            return None
        except Exception as error:
            self._fail(claim, error)
            return None
        except BaseException:
            self._give_back(claim)
            raise
        seconds = time.monotonic() - began
        if finished.version is None:
            log.warning("%s: an officer must decide. %s", claim.federation.name, finished.requests[0].reason)
        else:
            said = (claim.federation.name, finished.version.number, finished.version.verdict, seconds)
            log.info("%s: version %d is published (%s), after %.1f s.", *said)
        return finished

    def _work(self, claim: Claim, folder: Path, keeper: Keeper) -> Finished:
        federation, executor = claim.federation, self._executor
        if executor is None:
            executor = self._executor_of(federation)
        job = self._job(claim, executor)
        prepare(folder, job)
        keeper.watch(folder)
        outcome = executor.execute(federation.place, folder, job, keeper)
        keeper.check()
        finished = self._finish(claim, folder, outcome, executor.run_folder(federation.place))
        clear(folder)  # all of it is in the ledger now
        return finished

    def _executor_of(self, federation: Federation) -> Executor:
        if federation.kind != "flower":
            return LocalExecutor(self._device)
        return AttachedExecutor() if Path(federation.place).is_dir() else FlowerExecutor()

    def _finish(self, claim: Claim, folder: Path, outcome: Outcome, run: Path) -> Finished:
        """Hand over the result. Another worker may destroy files of old versions just now: then it names those left."""
        while True:
            result = self._result(claim, folder, outcome, run)
            try:
                return self.ledger.versions.finish(claim, result)
            except InputError:
                if all((self.ledger.home / path).is_file() for _, path in result.remains):
                    raise

    def _job(self, claim: Claim, executor: Executor) -> Job:
        federation, parent = claim.federation, claim.parent
        method, preset, settings = serving(federation, claim.requests[0])  # what is claimed together has the same
        if claim.at_most is not None:
            settings["at_most"] = claim.at_most
        self.ledger.models.check(parent.sha256)
        run = Run(executor.run_folder(federation.place))
        served = (*run.served, *(request.erasure for request in self.ledger.versions.served(federation.name)))
        return Job(
            config=run.config,
            version=parent.number,
            model=str(self.ledger.models.path(parent.sha256).resolve()),
            sha256=parent.sha256,
            requests=each_once(request.erasure for request in claim.requests),
            served=each_once(served),
            method=method,
            preset=preset,
            settings=settings,
            level=federation.audit_level,
            history=None if run.config.history_interval is None else str(run.folder.resolve() / "history"),
            exact=parent.verdict == "exact",
            thresholds={name: claim.thresholds[name] for name in thresholds()},
        )

    def _result(self, claim: Claim, folder: Path, outcome: Outcome, run: Path) -> Handover:
        model = self.ledger.models.store_bytes((folder / outcome.model).read_bytes())
        return Handover(
            replace(outcome.result, sha256=model),
            folder / outcome.evidence,
            outcome.before.retained_acc,
            outcome.after.retained_acc,
            folder / REPORT if (folder / REPORT).exists() else None,
            remains(self.ledger.home, claim.federation.name, run, claim.federation.method),
        )

    def _give_back(self, claim: Claim) -> None:
        try:
            self.ledger.work.give_back(claim)
        except FedForgetError as error:
            log.warning("%s", error)

    def _fail(self, claim: Claim, error: Exception) -> None:
        """Tell the ledger why. What is wrong with the input stays wrong; but of several requests only one may be, so
        they are tried again, each alone."""
        hopeless = isinstance(error, InputError | DivergedError) and len(claim.requests) == 1
        reason = str(error)
        if not isinstance(error, FedForgetError):
            log.exception("%s: something unexpected went wrong.", claim.federation.name, exc_info=error)
            reason = f"Something unexpected went wrong ({type(error).__name__}: {error}); the worker's log says where."
        try:
            for request in self.ledger.work.fail(claim, reason, retry=not hopeless):
                log.error(
                    "%s: %s is %s. %s", request.federation, request.erasure.describe(), request.state, request.reason
                )
        except FedForgetError as problem:
            log.warning("%s", problem)

    def _tidy(self) -> None:
        """Destroy what is kept no longer. If that fails, requests are served all the same."""
        now = time.monotonic()
        if self._tidied is not None and now - self._tidied < self._tidy_seconds:
            return
        self._tidied = now
        if (jump := self._jumps.jump()) > MOST_JUMP:
            log.error("The clock went ahead by %s; nothing is destroyed until it is right, or I am begun anew.", jump)
            return
        try:
            for federation in self.ledger.federations.all():
                version = self.ledger.versions.current(federation.name)
                sweep(self.ledger.home, federation.name, version.number)
            for version in self.ledger.destruction.destroy_superseded(actor=f"worker/{self.name}"):
                log.info("%s: version %d is destroyed.", version.federation, version.number)
            self.ledger.models.sweep(actor=f"worker/{self.name}")
            self.ledger.accounts.tidy_secrets()
        except (FedForgetError, OSError) as error:
            log.warning("Tidying up was not possible: %s", error)
