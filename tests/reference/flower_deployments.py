"""A deployment with TLS and node keys whose machines can lose their power and come back.

Every machine of `three_sites` is a folder with a Flower home of its own, so what runs on it can be found and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "deploy"))
from three_sites import (
    CONNECTION,
    HOST,
    Deployment,
    config_words,
    left_running,
    listening,
    make_certificates,
    make_node_key,
)

from fedforget.flower import APP

PATIENCE_S = 900.0
"""For a run, or for one event in it; minutes even where two cores are busy with other work."""


class FragileDeployment(Deployment):
    """Real Flower processes; `power_cut` is kill -9 for all that runs on one machine.

    With `executor` the server's side of the app runs on a machine of that name, and outlives the SuperLink."""

    def __init__(self, folder: Path, sites: int, executor: bool = False) -> None:
        super().__init__(folder, sites)
        self.executor = executor

    def start_server(self) -> None:
        if not self.executor:
            self.start_superlink()
            return
        server = self.machine("server")
        link = self._start(
            server, "flower-superlink", "--host", HOST, "--port", self.port,
            "--ssl-ca-certfile", self.root_certificate, "--ssl-certfile", server / "server.crt",
            "--ssl-keyfile", server / "server.key", "--enable-supernode-auth", "--isolation", "process",
            "--database", server / "superlink.db", "--disable-runtime-dependency-installation",
        )  # fmt: skip
        self._links.append(link)
        self.wait_until(lambda: listening(self.port) or link.poll() is not None, "the SuperLink listens")

    def start_executor(self) -> None:
        words = ("--runtime-api-address", f"{HOST}:{self.port}", "--root-certificates", self.root_certificate)
        self._links.append(self._start(self.machine("executor"), "flower-superexec", *words))

    def start_site(self, number: int) -> None:
        """Start a SuperNode, or start it again: Flower turns it away as long as it believes in the one that died."""
        site = self.machine(f"site-{number}")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            before = len(self.said(site.name))
            node = self.start_supernode(number, site / "node.key", self.site_ports[number])
            self.wait_until(
                lambda: "SuperNode ID" in self.said(site.name)[before:] or node.poll() is not None,  # noqa: B023
                f"{site.name} joins",
            )
            if node.poll() is None:
                return
            assert time.monotonic() < deadline, self.logs()
            self.power_cut(site.name)  # it leaves its flower-superexec behind
            time.sleep(15)

    def power_cut(self, machine: str) -> None:
        """kill -9 for everything on a machine, also for what is being started meanwhile."""
        while found := self._running_on(machine):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in (*self._links, *self._nodes):
                if process.pid in found:
                    process.wait()

    def _running_on(self, machine: str) -> list[int]:
        home = f"FLWR_HOME={self.machine(machine) / 'home'}".encode()
        found = []
        for pid in left_running(self.folder):
            with suppress(OSError):
                if home in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.append(pid)
        return found

    def said(self, machine: str) -> str:
        """All that a machine's commands have printed."""
        path = self.machine(machine) / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def received(self, number: int) -> int:
        """How many messages a site has got."""
        return self.said(f"site-{number}").count("Received successfully")

    def answered(self, number: int) -> int:
        """How many replies of a site have arrived at the SuperLink."""
        return self.said(f"site-{number}").count("Sent successfully")

    def state_dir(self, number: int) -> Path:
        return self.folder / f"site-{number}" / "state"

    def logs(self) -> str:
        """The end of every machine's log, for the message of a test that failed."""
        return "\n\n".join(f"== {path.parent.name}\n{self.log(path.parent.name)}" for path in self.folder.glob("*/log"))

    def wait_until(self, condition: Callable[[], bool], what: str, look_every_s: float = 0.2) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"Waited {PATIENCE_S:g} s until {what}.\n{self.logs()}"
            time.sleep(look_every_s)

    def begin(self, config: Mapping[str, Any], app: Path = APP) -> FlwrRun:
        """`flwr run`, which is under way when this returns."""
        before, operator = len(self.said("operator")), self.machine("operator")
        words = config_words(config)
        return FlwrRun(
            self, self._start(operator, "flwr", "run", app, CONNECTION, "--run-config", words, "--stream"), before
        )

    def run(self, config: Mapping[str, Any], app: Path = APP) -> str:
        """`flwr run` to its end; all that it printed."""
        return self.begin(config, app).end()


@dataclass
class FlwrRun:
    """A `flwr run` and what its user sees."""

    deployment: FragileDeployment
    process: subprocess.Popen[bytes]
    begins_at: int

    def end(self) -> str:
        """Wait for it; all that it printed."""
        try:
            self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"The run did not end within {PATIENCE_S:g} s.\n{self.deployment.logs()}") from None
        return self.deployment.said("operator")[self.begins_at :]


@contextmanager
def fragile_deployment(folder: Path, sites: int, executor: bool = False) -> Iterator[FragileDeployment]:
    """A running federation, which is gone afterwards, whatever happens."""
    here = FragileDeployment(folder, sites, executor)
    try:
        make_certificates(here.machine("authority"), here.machine("server"))
        here.start_server()
        if executor:
            here.start_executor()
        here.connect_operator()
        for number in range(sites):
            site = here.machine(f"site-{number}")
            here.register(make_node_key(site).with_suffix(".key.pub"), site.name)
            here.start_site(number)
        yield here
    finally:
        here.stop()
        here.wait_until(lambda: not left_running(folder), "everything is gone")
