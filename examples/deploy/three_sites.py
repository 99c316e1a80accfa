"""A federation with TLS and node keys on this machine, from nothing to an audited erasure.

    python examples/deploy/three_sites.py FOLDER [--sites 3] [--rounds 5] [--client 0] [--label 3]

FOLDER must be new. Each machine of a real deployment is a folder in it, with the files which that machine would hold:

    authority/   ca.key, ca.crt                                   who signs certificates; offline, best
    server/      server.key, server.crt, superlink.db, run/       the SuperLink
    site-0/ ...  node.key, node.key.pub, state/                   a SuperNode each
    operator/    home/config.toml                                 who runs `flwr`

docs/deploy.md does the same by hand, on machines of their own."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedforget.flower import APP
from fedforget.flower.environment import quiet_environment

HOST = "127.0.0.1"
CONNECTION = "federation"
BIN = Path(sys.executable).parent
MARK = "FEDFORGET_DEPLOYMENT"
"""A variable that everything we start has, and everything that starts in turn: so it can be found again."""

OPENSSL = f"""\
[req]
distinguished_name = nobody
[nobody]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = DNS:localhost,IP:{HOST}
"""


class DeploymentError(Exception):
    """Something that was started did not do its work."""


def make_certificates(authority: Path, server: Path) -> None:
    """A certificate authority of our own, and the SuperLink's certificate, which it signs."""
    settings = authority / "openssl.cnf"
    settings.write_text(OPENSSL)
    new_key = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-config", settings)
    _openssl(
        *new_key, "-x509", "-extensions", "authority", "-days", "3650", "-subj", "/CN=federation authority",
        "-keyout", authority / "ca.key", "-out", authority / "ca.crt",
    )  # fmt: skip
    _openssl(*new_key, "-subj", "/CN=localhost", "-keyout", server / "server.key", "-out", server / "server.csr")
    _openssl(
        "x509", "-req", "-in", server / "server.csr", "-CA", authority / "ca.crt", "-CAkey", authority / "ca.key",
        "-CAcreateserial", "-extfile", settings, "-extensions", "server", "-days", "365",
        "-out", server / "server.crt",
    )  # fmt: skip


def make_node_key(site: Path) -> Path:
    """A site's own key. The private half never leaves the site; Flower wants OpenSSH's format."""
    key = site / "node.key"
    _finish("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", site.name, "-f", key)
    return key


def _openssl(*words: str | Path) -> None:
    _finish("openssl", *words)


def _finish(*words: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """Run a command to its end; what it printed."""
    command = [str(word) for word in words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    except FileNotFoundError:
        raise DeploymentError(f"{words[0]} is not installed here.") from None
    if done.returncode:
        raise DeploymentError(f"{words[0]} {words[1]} failed:\n{done.stderr or done.stdout}")
    return done.stdout


class Deployment:
    """The machines of a federation, each a folder; `deployment` makes one and stops it."""

    def __init__(self, folder: Path, sites: int, data: Sequence[str] = (), warm: bool = False) -> None:
        self.folder, self.sites, self.data = folder.resolve(), sites, data
        self._supernode = ("python", "-m", "fedforget.flower.warm", "flower-supernode")[0 if warm else 3 :]
        self.port, *self.site_ports = free_ports(1 + sites)
        self._links: list[subprocess.Popen[bytes]] = []
        self._nodes: list[subprocess.Popen[bytes]] = []

    def machine(self, name: str) -> Path:
        """The folder of a machine, which nobody else on this computer may look into."""
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (path / "home").mkdir(exist_ok=True)
        return path

    @property
    def root_certificate(self) -> Path:
        return self.folder / "authority" / "ca.crt"

    def environment(self, machine: Path) -> dict[str, str]:
        """Quiet: no telemetry, no update check, no installing. Flower starts commands of its own by name."""
        path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**quiet_environment(machine / "home"), "PATH": path, MARK: str(self.folder)}

    def start_superlink(self) -> None:
        server = self.machine("server")
        link = self._start(
            server, "flower-superlink", "--host", HOST, "--port", self.port,
            "--ssl-ca-certfile", self.root_certificate, "--ssl-certfile", server / "server.crt",
            "--ssl-keyfile", server / "server.key", "--enable-supernode-auth",
            "--database", server / "superlink.db", "--disable-runtime-dependency-installation",
        )  # fmt: skip
        self._links.append(link)
        deadline = time.monotonic() + 60.0
        while not listening(self.port):
            if link.poll() is not None or time.monotonic() > deadline:
                raise DeploymentError(f"The SuperLink did not start:\n{self.log('server')}")
            time.sleep(0.1)

    def connect_operator(self) -> None:
        """Tell the operator's `flwr` where the SuperLink is, and whose signature its certificate has."""
        (self.machine("operator") / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "{HOST}:{self.port}"\n'
            f"root-certificates = {json.dumps(str(self.root_certificate))}\n"
        )

    def register(self, public_key: Path, name: str) -> int:
        """Allow the node with this key to join; its id, which it keeps for ever."""
        words = ("supernode", "register", public_key, CONNECTION, "--name", name, "--format", "json")
        told = _finish(BIN / "flwr", *words, environment=self.environment(self.machine("operator")))
        return int(json.loads(told)["node-id"])

    def start_supernode(self, number: int, key: Path, port: int) -> subprocess.Popen[bytes]:
        site = key.parent
        config = {
            "partition-id": number,
            "num-partitions": self.sites,
            "name": site.name,
            "state-dir": str(site / "state"),
        }
        if self.data:
            config["data"] = self.data[number]
        node = self._start(
            site, *self._supernode, "--superlink", f"{HOST}:{self.port}", "--root-certificates",
            self.root_certificate, "--auth-supernode-private-key", key, "--host", HOST, "--port", port,
            "--node-config", config_words(config),
        )  # fmt: skip
        self._nodes.append(node)
        return node

    def serve(self, config: Mapping[str, Any], timeout_s: float = 3600.0, app: Path = APP) -> dict[str, Any]:
        """One `flwr run` of our app: it trains, unless the folder `run` holds that training already, and serves the
        request of `config`. Its summary."""
        out = self.folder / "server" / "run"
        summary = out / "summary.json"
        summary.unlink(missing_ok=True)
        words = config_words({"clients": self.sites, **config, "out": str(out)})
        operator = self.machine("operator")
        run = self._start(operator, "flwr", "run", app, CONNECTION, "--run-config", words, "--stream")
        try:
            run.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise DeploymentError(f"The run did not end within {timeout_s:g} s:\n{self.log('operator')}") from None
        finally:
            _end([run])
        if not summary.exists():
            raise DeploymentError(f"The run failed:\n{self.log('operator')}")
        return json.loads(summary.read_text())

    def log(self, machine: str) -> str:
        """The end of what a machine's command printed."""
        return (self.folder / machine / "log").read_text(errors="replace")[-4000:]

    def _start(self, machine: Path, command: str, *words: str | Path | int) -> subprocess.Popen[bytes]:
        with open(machine / "log", "ab") as log:
            return subprocess.Popen(
                [str(BIN / command), *map(str, words)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                cwd=machine, env=self.environment(machine),
            )  # fmt: skip

    def stop(self) -> None:
        """The nodes first, since they say goodbye to the SuperLink; then whatever these have left running."""
        _end(self._nodes)
        _end(self._links)
        for pid in left_running(self.folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def left_running(folder: Path) -> list[int]:
    """The processes of this deployment, also those that its processes started (read from Linux's /proc)."""
    mark = f"{MARK}={folder.resolve()}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def config_words(values: Mapping[str, Any]) -> str:
    """Flower's way to write a config on a command line.

    >>> config_words({"rounds": 3, "audit": True, "name": "site-0"})
    'rounds=3 audit=true name="site-0"'
    """
    return " ".join(f"{name}={json.dumps(value)}" for name, value in values.items())


def listening(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0):
            return True
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@contextmanager
def deployment(folder: Path, sites: int = 3, data: Sequence[str] = (), warm: bool = False) -> Iterator[Deployment]:
    """A running federation with TLS and node keys, which is gone afterwards, whatever happens. `data` names a file for
    each site; without, they share scikit-learn's digits. `warm`: each SuperNode forks for its messages."""
    if folder.exists() and any(folder.iterdir()):
        raise DeploymentError(f"{folder} is not empty; choose a new folder.")
    here = Deployment(folder, sites, data, warm)
    try:
        make_certificates(here.machine("authority"), here.machine("server"))
        here.start_superlink()
        here.connect_operator()
        for number, port in enumerate(here.site_ports):
            name = f"site-{number}"
            key = make_node_key(here.machine(name))
            here.register(key.with_suffix(".key.pub"), name)
            here.start_supernode(number, key, port)
        yield here
    finally:
        here.stop()


def table(summary: Mapping[str, Any]) -> str:
    """The audit in a few lines."""
    lines = [f"{'model':<20} {'test data':>9} {'target as trained':>18} {'as its true class':>18}"]
    for row in summary["audit"]:
        name = row["method"] if row["preset"] is None else f"{row['method']}:{row['preset']}"
        figures = (row["test_acc"], row["bd_acc"], row["true_acc"])
        shown = ("-" if figure is None else f"{figure:.1f}" for figure in figures)
        lines.append("{:<20} {:>9} {:>18} {:>18}".format(name, *shown))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="A federation with TLS and node keys on 127.0.0.1 serves a request.")
    parser.add_argument("folder", type=Path, help="a new folder for everything")
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--client", type=int, default=0, help="who withdraws")
    parser.add_argument("--label", type=int, default=3, help="the class that is withdrawn; -1: all of that client")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is stopped
    config = {
        "rounds": given.rounds, "lr": 0.05, "batch-size": 16,
        "request-client": given.client, "request-class": given.label, "backdoor": True, "audit": True,
    }  # fmt: skip
    try:
        with deployment(given.folder, given.sites) as federation:
            print(
                f"SuperLink on https://{HOST}:{federation.port}; {given.sites} nodes with keys are joining.", flush=True
            )
            summary = federation.serve(config)
    except DeploymentError as error:
        sys.exit(str(error))
    print(f"{summary['rounds']} rounds of training, then the request: {summary['target']}, which carries a trigger and")
    print(f"a wrong label, so that one can see whether it is forgotten. In percent:\n\n{table(summary)}\n")
    print(f"Report: {given.folder / 'server' / 'run' / 'report.html'}")


if __name__ == "__main__":
    main()
