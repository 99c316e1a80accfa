"""Keeps a claim alive while its work is done, from a thread of its own: the lease, and how far the work is."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedforget.errors import FedForgetError
from fedforget.ledger.errors import LeaseLostError
from fedforget.ledger.results import rung_told
from fedforget.ledger.work import Claim
from fedforget.runs.job import NotWanted, rungs_tried

if TYPE_CHECKING:
    from fedforget.ledger.book import Ledger

log = logging.getLogger(__name__)
TELL_EVERY_S = 0.5
"""Progress is for people: two lines a second are enough for them, and for the database."""
FORGETTING = ("forgetting", 0.0, 0.2)
STAGES = {
    "retrain": ("retraining for comparison", 0.2, 0.4),
    "measuring": ("measuring", 0.4, 0.5),
    "oracles": ("training oracles", 0.5, 0.8),
    "examining oracles": ("examining oracles", 0.8, 0.9),
    "examining": ("examining", 0.9, 0.97),
    "comparing": ("comparing", 0.97, 1.0),
}
"""What the audit calls its steps; how people read them, and which part of the whole they are, roughly."""


class Keeper:
    """Who an executor tells how it goes; each of its calls raises where the work is not wanted any more. In a `with`:
    the claim's lease is renewed as long as the block runs."""

    def __init__(self, ledger: Ledger, claim: Claim, lease_seconds: float, stop: threading.Event) -> None:
        self._ledger, self._claim, self._lease_seconds, self._stop = ledger, claim, lease_seconds, stop
        self.lost = False
        """Another worker has the claim's requests."""
        self._audits = False
        self._reached: tuple[str, float] = (FORGETTING[0], 0.0)
        self._told: tuple[str, float] | None = None
        self._telling = threading.Lock()
        self._over = threading.Event()
        self._climb: Path | None = None
        self._rungs: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def progress(self, what: str, done: int, total: int) -> None:
        self.check()
        stage, begin, end = STAGES.get(what, (what, 0.0, 0.0)) if self._audits else FORGETTING
        reached = begin + (end - begin) * (done / total if total else 1.0)
        self._reached = (stage, max(reached, self._reached[1]))

    def watch(self, folder: Path) -> None:
        """Tell the ledger of each rung of the ladder that the job of this folder has behind it."""
        self._climb = folder

    def auditing(self) -> None:
        """The model has forgotten; what follows is the audit."""
        self.check()
        self._climb = None
        if not self._audits:
            self._ledger.work.start_audit(self._claim)
            self._audits = True
            self._reached = ("auditing", max(FORGETTING[2], self._reached[1]))
            self._tell()  # at once: a quick audit can be over before the next tick

    def check(self) -> None:
        """Nothing to tell, only: is the work still wanted?"""
        if self.lost or self._stop.is_set():
            raise NotWanted

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _tell(self) -> None:
        with self._telling:  # so that an older line never follows a newer one
            if self._told != self._reached:
                self._told = self._reached
                self._ledger.work.set_progress(self._claim, *self._told)

    def _tell_rungs(self) -> None:
        found = [] if self._climb is None else [rung_told(rung) for rung in rungs_tried(self._climb)]
        if new := [rung for rung in found if rung not in self._rungs]:
            self._ledger.work.tell_rungs(self._claim, new)
            self._rungs += new

    def _keep(self) -> None:
        renew_every = self._lease_seconds / 3.0
        renewed = time.monotonic()
        while True:
            try:
                self._tell()
                self._tell_rungs()
                if time.monotonic() - renewed >= renew_every:
                    self._ledger.work.heartbeat(self._claim, self._lease_seconds)
                    renewed = time.monotonic()
            except LeaseLostError as error:
                log.warning("%s", error)
                self.lost = True
                return
            except FedForgetError as error:
                # A database that is away may come back in time; if not, whoever takes over makes us lose the lease.
                log.warning("The lease of %s could not be renewed: %s", self._claim.federation.name, error)
            except Exception:
                log.exception("The lease of %s could not be renewed.", self._claim.federation.name)
            if self._over.wait(min(TELL_EVERY_S, renew_every)):
                return
