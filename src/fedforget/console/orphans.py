"""A child process that ends with its parent: standard input is a pipe, and it closes when the parent is gone."""

from __future__ import annotations

import os
import signal
import sys
import threading


def end_with_parent() -> None:
    """From now on, this process asks itself to end (SIGTERM) when nobody holds the other end of its input."""

    def wait() -> None:
        # Of the raw descriptor: a reader of sys.stdin would hold its lock when the interpreter ends.
        while os.read(descriptor, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    descriptor = sys.stdin.fileno()
    threading.Thread(target=wait, name="waits for the parent's end", daemon=True).start()
