"""Real Flower processes on 127.0.0.1, quiet and offline, and surely gone at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedforget.flower.environment import quiet_environment

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "deploy"))
from three_sites import BIN, HOST, free_ports, listening


class Processes:
    """Starts Flower's commands, each with a log file of its own, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "home").mkdir(parents=True)
        self.environment = quiet_environment(folder / "home")
        # Flower starts further commands of its own by name.
        self.environment["PATH"] = f"{BIN}{os.pathsep}{self.environment.get('PATH', '')}"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *words: str | Path) -> subprocess.Popen[bytes]:
        command = [str(BIN / str(words[0])), *map(str, words[1:])]
        with open(self.log(name), "wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, env=self.environment
            )
        self._started.append(process)
        return process

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def logs(self) -> str:
        """The end of every log, for the message of a test that failed."""
        return "\n\n".join(f"== {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in self.folder.glob("*.log"))

    def connect(self, name: str, port: int) -> None:
        """Tell `flwr` about a SuperLink."""
        text = f'[superlink]\ndefault = "{name}"\n\n[superlink.{name}]\naddress = "{HOST}:{port}"\ninsecure = true\n'
        (self.folder / "home" / "config.toml").write_text(text)

    def start_superlink(self, *more: str) -> int:
        """A SuperLink that `flwr` knows as `there`; its port."""
        (port,) = free_ports(1)
        link = self.start(
            "superlink", "flower-superlink", "--insecure", "--disable-runtime-dependency-installation",
            "--host", HOST, "--port", str(port), *more,
        )  # fmt: skip
        wait_for_port(port, link)
        self.connect("there", port)
        return port

    def start_supernodes(self, port: int, count: int, states: Path, warm: bool = False) -> None:
        """So many SuperNodes of the SuperLink at `port`, each with a folder of its own under `states`."""
        supernode = ("python", "-m", "fedforget.flower.warm", "flower-supernode") if warm else ("flower-supernode",)
        for number, node_port in enumerate(free_ports(count)):
            settings = f"partition-id={number} num-partitions={count} state-dir='{states / str(number)}'"
            self.start(
                f"supernode-{number}", *supernode, "--insecure", "--superlink", f"{HOST}:{port}",
                "--host", HOST, "--port", str(node_port), "--node-config", settings,
            )  # fmt: skip

    def start_simulation(self, nodes: int) -> tuple[str, ...]:
        """A SuperLink that simulates its nodes; the words that `flwr run` needs for it."""
        self.start_superlink("--simulation")
        return ("--federation-config", f"num-supernodes={nodes} client-resources-num-cpus=1")

    def stop(self) -> None:
        ours = [pid for process in self._started for pid in (process.pid, *descendants(process.pid))]
        for process in reversed(self._started):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self._started:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in ours:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """The children of a process, their children, and so on."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    running = Processes(folder)
    try:
        yield running
    finally:
        running.stop()


def wait_for_port(port: int, process: subprocess.Popen[bytes], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not listening(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"nobody listens on port {port}")
        time.sleep(0.1)
