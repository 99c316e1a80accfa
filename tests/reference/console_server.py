"""A console as people start it: `fedforget serve` as a process, on a port of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class RunningConsole:
    process: subprocess.Popen[str]
    said: list[str]

    @property
    def url(self) -> str:
        return self._find(r"The console is at (\S+)")

    @property
    def admin_link(self) -> str:
        return self._find(r"(http\S+/link/\S+)")

    def _find(self, pattern: str, patience: float = 60.0) -> str:
        until = time.monotonic() + patience
        while time.monotonic() < until:
            found = re.search(pattern, "".join(self.said))
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError("the console did not say it: " + "".join(self.said))


@contextmanager
def running_console(home: Path, *options: str) -> Iterator[RunningConsole]:
    """Started, and stopped as Ctrl-C would."""
    code = "from fedforget.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--home", str(home), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said: list[str] = []

    def listen() -> None:
        assert process.stdout is not None
        said.extend(iter(process.stdout.readline, ""))

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield RunningConsole(process, said)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
        thread.join(10)
