"""The processes beside the console: a worker that serves requests, and the training of the demo federation.

They are processes, not threads: training holds the interpreter and the cores, may crash, and may be killed, and none of
that must touch the pages. A child watches its standard input, so it also ends when we are killed without a word."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from typing import Any, Literal

from fedforget.ledger.book import Ledger
from fedforget.ledger.errors import ConflictError

log = logging.getLogger("fedforget.console")
GRACE_SECONDS = 20.0
"""A worker that is told to stop may finish its step and give its request back."""
LONGEST_PAUSE = 60.0
Status = Literal["starting", "running", "restarting", "stopped"]


def child(ledger: Ledger, *words: str, **pipes: Any) -> subprocess.Popen[str]:
    """A Python process of ours on the same ledger. The URL may hold a password, so it goes by the environment."""
    environment = {**os.environ, "FEDFORGET_HOME": str(ledger.home), "FEDFORGET_LEDGER": ledger.database.url}
    command = [sys.executable, "-m", "fedforget.console.children", *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment, start_new_session=True, **pipes)


def end(process: subprocess.Popen[str], grace: float) -> None:
    """Ask, wait, and at last insist."""
    if process.stdin is not None:
        process.stdin.close()
    for insist, patience in ((process.terminate, grace), (process.kill, 10.0)):
        if process.poll() is None:
            insist()
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                continue


class WorkerProcess:
    """Keeps one worker running: when it dies, another one starts, after a pause that grows."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.status: Status = "stopped"
        self._stopping = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._keep_running, name="worker supervisor", daemon=True)

    def start(self) -> None:
        self.status = "starting"
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._process is not None:
            end(self._process, GRACE_SECONDS)
        if self._thread.is_alive():
            self._thread.join(5.0)
        self.status = "stopped"

    def _keep_running(self) -> None:
        pause = 1.0
        while not self._stopping.is_set():
            began = time.monotonic()
            self._process = child(self.ledger, "worker")
            self.status = "running"
            code = self._process.wait()
            if self._stopping.is_set():
                return
            if time.monotonic() - began > 5 * LONGEST_PAUSE:
                pause = 1.0
            log.error("the worker ended with status %s; another one starts in %.0f s", code, pause)
            self.status = "restarting"
            self._stopping.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


class DemoProcess:
    """Trains the demo federation and registers it, once, when somebody asks for it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.progress: dict[str, Any] = {"state": "idle", "stage": "", "fraction": 0.0}
        """state (idle, running, done, failed), stage, fraction, the reason of a failure. Replaced, never changed."""
        self._process: subprocess.Popen[str] | None = None
        self._starting = threading.Lock()

    def start(self, actor: str) -> None:
        with self._starting:
            if self.progress["state"] == "running":
                raise ConflictError("The demo federation is being trained already.")
            self.progress = {"state": "running", "stage": "starting", "fraction": 0.0}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            self._process = child(self.ledger, "demo", actor, **pipes)
        threading.Thread(target=self._follow, args=(self._process,), name="demo", daemon=True).start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        with process:  # closes the pipes, and waits
            for line in process.stdout:
                self.progress = self.progress | json.loads(line)
            reason = process.stderr.read().strip()
        if process.returncode == 0:
            self.progress = self.progress | {"state": "done", "fraction": 1.0}
            return
        log.error("the demo federation could not be trained: %s", reason)
        last = reason.splitlines()[-1] if reason else "the process was stopped"
        self.progress = self.progress | {"state": "failed", "reason": last[:300]}

    def stop(self) -> None:
        if self._process is not None:
            end(self._process, 2.0)
