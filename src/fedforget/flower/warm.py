"""A SuperNode whose messages find a process that has everything imported.

    python -m fedforget.flower.warm flower-supernode --insecure --superlink 127.0.0.1:9092 ...

Flower starts `flwr-clientapp` for each message, and importing Python, torch and Flower takes that process seconds of a
core. This command imports them once. It puts a `flwr-clientapp` of its own first on PATH, starts the SuperNode, and
forks itself for each message; the fork runs Flower's own `flwr-clientapp` and ends.

What it gives up: the forks share what was imported before them. A package that was updated, and an environment
variable that is read on import, count only after a restart. The app itself is loaded anew for each message, as ever."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from flwr.supernode.cli import flwr_clientapp

import fedforget.flower.attach  # noqa: F401 (imported for the forks, with torch)

COMMAND = "flwr-clientapp"
POLLING = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
OFTEN = "0.1"
"""Seconds between two looks for a message, unless the user says otherwise."""
LONGEST = 1 << 16
SHIM = """#!{python} -IS
import json, socket, sys
parent = socket.socket(socket.AF_UNIX)
parent.connect({place!r})
parent.sendall(json.dumps(sys.argv[1:]).encode())
"""


def main() -> int:
    """Start the command that follows, and fork for its messages until it ends; its exit status."""
    words = sys.argv[1:]
    if not words:
        print("Name the command to start: python -m fedforget.flower.warm flower-supernode ...", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="fedforget-warm-") as folder, socket.socket(socket.AF_UNIX) as door:
        place, shim = Path(folder, "door"), Path(folder, COMMAND)
        door.bind(str(place))
        door.listen()
        door.settimeout(0.2)
        shim.write_text(SHIM.format(python=sys.executable, place=str(place)))
        shim.chmod(0o700)
        path = os.pathsep.join([folder, str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        try:
            node = subprocess.Popen(words, env={POLLING: OFTEN, **os.environ, "PATH": path})
        except OSError as error:
            print(f"{words[0]} cannot be started: {error.strerror}.", file=sys.stderr)
            return 2
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: node.send_signal(received))
        forks: list[int] = []
        while node.poll() is None:
            forks = [fork for fork in forks if os.waitpid(fork, os.WNOHANG) == (0, 0)]
            try:
                asking, _ = door.accept()
            except TimeoutError:
                continue
            with asking:
                asking.settimeout(30.0)
                fork = os.fork()
                if fork == 0:
                    door.close()
                    _serve(asking)
                forks.append(fork)
        return node.returncode


def _serve(asking: socket.socket) -> None:
    """In the fork: Flower's own command with the words that the shim was given."""
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        received = b""
        while part := asking.recv(LONGEST):
            received += part
        # A fresh process draws its own numbers; torch begins each of them at the same.
        random.seed()
        np.random.seed()  # noqa: NPY002 (an app may draw from it)
        sys.argv = [COMMAND, *json.loads(received)]
        flwr_clientapp()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
