"""`python -m benchmarks.console_load`: the console under load on loopback, as JSON.

A new ledger with some requests in it, `fedforget serve --no-worker` as a process of its own with the rate limits
raised, and this process as the visitors: so many requests a second, nine reads to one submission. They are sent by the
clock, not when the last answer came; each one's time counts from when it was due, so a server that stalls cannot hide
it. Afterwards the whole ledger is checked."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedforget.ledger.book import Ledger
from fedforget.ledger.federations import describe
from fedforget.requests import ErasureRequest

CLASSES, CLIENTS, ACCOUNTS = 10, 8, 20
LIMITS = """[limits]
sign_ins_per_minute = 1000000
submissions_per_minute = 1000000
denials_per_minute = 1000000
"""
MIX = ("queue page", "request page", "list", "list", "one", "one", "one", "federations", "events", "submit")
"""Nine reads to one submission; pages for people and the API for programs."""


@dataclass
class Visitors:
    """Who asks: cookies of people, tokens of programs, and the requests they know of."""

    cookie: str
    officer: str
    requesters: list[str]
    tokens: list[str]
    known: list[str]


@dataclass
class Tally:
    seconds: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    created: int = 0
    errors: list[str] = field(default_factory=list)


def prepare(home: Path, requests: int) -> Visitors:
    """A ledger with people, a federation and requests; none of it by the console."""
    (home).mkdir(parents=True)
    (home / "console.toml").write_text(LIMITS)
    counts = {client: tuple(10 + client + label for label in range(CLASSES)) for client in range(CLIENTS)}
    description = describe(map(str, range(CLASSES)), counts)
    with Ledger.open(home) as ledger:
        ledger.keys.make()
        ledger.federations.register("load", "local", "/nowhere", description, {"w": torch.zeros(8)})
        ledger.accounts.add("officer", "officer")
        names = [f"requester{number}" for number in range(ACCOUNTS)]
        for name in names:
            ledger.accounts.add(name, "requester")
        officer = ledger.accounts.open_session("officer", by="test")
        sessions = [ledger.accounts.open_session(name, by="test") for name in names]
        tokens = [ledger.accounts.make_token(name, "load", actor="system")[0] for name in names]
        known = []
        for number in range(requests):
            target = ErasureRequest.of_class(number % CLIENTS, number % CLASSES)
            found = ledger.requests.submit(
                "load", target, subject=f"before-{number}", ground="objection", asked_by=names[number % ACCOUNTS]
            )
            known.append(found.request.id)
    return Visitors("", officer, sessions, tokens, known)


class Connection:
    """One kept-alive connection, and a reader that understands what our server sends."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.used = 0.0
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, head: bytes, body: bytes = b"") -> tuple[int, bytes]:
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        assert self.reader is not None
        self.writer.write(head + body)
        await self.writer.drain()
        start = await self.reader.readuntil(b"\r\n\r\n")
        status = int(start[9:12])
        length = re.search(rb"content-length: (\d+)", start.lower())
        content = await self.reader.readexactly(int(length[1])) if length else b""
        if b"connection: close" in start.lower():
            self.writer.close()
        return status, content


class Load:
    def __init__(self, port: int, visitors: Visitors, seed: int) -> None:
        self.port, self.visitors, self.draw = port, visitors, random.Random(seed)
        self.free: list[Connection] = []
        self.tally = Tally()
        self.number = 0

    def _head(self, method: str, path: str, credential: str, more: str = "") -> bytes:
        return f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n{credential}\r\n{more}\r\n".encode()

    def next(self, kind: str) -> tuple[bytes, bytes]:
        people = self.visitors
        cookie = f"cookie: {people.cookie}={people.officer}"
        token = f"authorization: Bearer {self.draw.choice(people.tokens)}"
        own = f"cookie: {people.cookie}={self.draw.choice(people.requesters)}"
        id = self.draw.choice(people.known)
        if kind == "queue page":
            return self._head("GET", "/", self.draw.choice((cookie, own))), b""
        if kind == "request page":
            return self._head("GET", f"/requests/{id}", cookie), b""
        if kind == "list":
            return self._head("GET", "/api/v1/requests?limit=50", self.draw.choice((token, cookie))), b""
        if kind == "one":
            return self._head("GET", f"/api/v1/requests/{id}", cookie), b""
        if kind == "federations":
            return self._head("GET", "/api/v1/federations", token), b""
        if kind == "events":
            return self._head("GET", "/api/v1/events?limit=50", cookie), b""
        self.number += 1
        target = {"kind": "class", "label": self.draw.randrange(CLASSES)}
        values = {"federation": "load", "client": self.draw.randrange(CLIENTS), "target": target,
                  "subject": f"load-{self.number}", "ground": "objection"}  # fmt: skip
        body = json.dumps(values).encode()
        more = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        return self._head("POST", "/api/v1/requests", token, more), body

    def _connection(self) -> Connection:
        """One that was used a moment ago, since a server closes those that idle; else a new one."""
        while self.free:
            connection = self.free.pop()
            if time.perf_counter() - connection.used < 10.0:
                return connection
        return Connection("127.0.0.1", self.port)

    async def one(self, kind: str, due: float) -> None:
        connection = self._connection()
        head, body = self.next(kind)
        try:
            status, content = await asyncio.wait_for(connection.ask(head, body), 30.0)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.tally.errors.append(f"{kind}: {type(error).__name__} {error}"[:200])
            return
        connection.used = time.perf_counter()
        self.free.append(connection)
        self.tally.seconds.setdefault(kind, []).append(time.perf_counter() - due)
        self.tally.statuses[f"{kind} {status}"] += 1
        if status != (201 if kind == "submit" else 200):
            self.tally.errors.append(f"{kind}: {status} {content[:200]!r}")
        elif kind == "submit":
            self.tally.created += 1
            self.visitors.known.append(json.loads(content)["id"])

    async def run(self, rate: float, seconds: float) -> float:
        """Send by the clock; how long it took."""
        began = time.perf_counter()
        tasks = []
        for number in range(int(rate * seconds)):
            due = began + number / rate
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(self.one(MIX[number % len(MIX)], due)))
        await asyncio.gather(*tasks)
        return time.perf_counter() - began


def percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    shares = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p999": 0.999}
    found = {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in shares.items()}
    return {name: round(1000 * value, 1) for name, value in (found | {"max": ordered[-1]}).items()}


def start_console(home: Path) -> tuple[subprocess.Popen[str], int]:
    code = "from fedforget.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--home", str(home), "--port", "0", "--no-worker"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"at http://127\.0\.0\.1:(\d+)", line):
            return process, int(found[1])
    raise SystemExit("the console did not start")


def cpu_seconds(pid: int) -> float:
    """What a process has used; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def measure(seconds: float, rate: float, requests: int = 500, seed: int = 0) -> dict[str, Any]:
    """Load a console for so long; the figures, and whether its ledger is whole afterwards."""
    with tempfile.TemporaryDirectory(prefix="fedforget-load-") as folder:
        home = Path(folder) / "home"
        visitors = prepare(home, requests)
        process, port = start_console(home)
        visitors.cookie = f"fedforget-{port}"
        try:
            load = Load(port, visitors, seed)
            asyncio.run(load.run(min(rate, 50.0), 2.0))  # warm: templates, connections, threads
            submitted_before, load.tally = load.tally.created, Tally()
            load.free.clear()
            used = cpu_seconds(process.pid)
            took = asyncio.run(load.run(rate, seconds))
            used = cpu_seconds(process.pid) - used
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
        with Ledger.open(home) as ledger:
            counted = sum(ledger.trail.figures()["requests"].values())
            check = ledger.trail.check()
        tally = load.tally
        expected = requests + submitted_before + tally.created
        every = [value for values in tally.seconds.values() for value in values]
        return {
            "seconds": round(took, 2), "asked": int(rate * seconds), "answered": len(every),
            "per_second": round(len(every) / took, 1), "milliseconds": percentiles(every),
            "by_kind": {kind: percentiles(values) for kind, values in sorted(tally.seconds.items())},
            "submitted": tally.created, "errors": len(tally.errors), "first_errors": tally.errors[:5],
            "server_cpu_share": round(used / took, 2), "server_exit": process.returncode,
            "ledger": {"requests": counted, "expected": expected, "intact": check.intact,
                       "problems": list(check.problems[:5])},
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--requests", type=int, default=500, help="requests in the ledger before")
    parser.add_argument("--out", type=Path, help="write the JSON into this file too")
    given = parser.parse_args()
    found = json.dumps(measure(given.seconds, given.rate, given.requests), indent=1)
    print(found)
    if given.out:
        given.out.write_text(found + "\n")


if __name__ == "__main__":
    main()
