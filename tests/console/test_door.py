"""Who says nothing keeps nobody out: connections are counted by address, and silence ends."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvicorn
from console_server import own_certificate, running_console
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from fedforget.console.door import Door
from fedforget.console.server import Server

HEAD = b"GET / HTTP/1.1\r\nhost: x\r\n"
SILENCES = {"before the first byte": b"", "in the head": HEAD, "in the body": HEAD + b"content-length: 9\r\n\r\nhalf"}


@dataclass
class Serving:
    port: int
    trusted: ssl.SSLContext | None

    @property
    def url(self) -> str:
        return f"{'https' if self.trusted else 'http'}://127.0.0.1:{self.port}"

    def connect(self, source: str = "127.0.0.1", *, handshake: bool = True, patience: float = 10.0) -> socket.socket:
        """A connection from an address of loopback, which has many."""
        plain = socket.create_connection(("127.0.0.1", self.port), patience, (source, 0))
        if self.trusted is None or not handshake:
            return plain
        return self.trusted.wrap_socket(plain, server_hostname="127.0.0.1")

    def client(self, source: str = "127.0.0.1") -> httpx.Client:
        transport = httpx.HTTPTransport(local_address=source, verify=self.trusted or False)
        return httpx.Client(base_url=self.url, transport=transport, timeout=10)


async def answer(request: Request) -> Response:
    """What was sent; after a while, where the address says so."""
    body = await request.body()
    await asyncio.sleep(float(request.query_params.get("after", 0)))
    return PlainTextResponse(body or b"nothing")


@contextmanager
def serving(door: Door, folder: Path | None = None, loop: str = "auto") -> Iterator[Serving]:
    """A server with this door, with TLS if there is a folder for its certificate."""
    app = FastAPI()
    app.add_route("/", answer, ["GET", "POST"])
    files = (None, None) if folder is None else own_certificate(folder)
    config = uvicorn.Config(
        app,
        loop=loop,
        ws="none",
        log_level="critical",
        ssl_certfile=files[0],
        ssl_keyfile=files[1],
        timeout_keep_alive=30,
    )
    server = Server(config, door)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        trusted = None if folder is None else ssl.create_default_context(cafile=str(files[0]))
        yield Serving(listening.getsockname()[1], trusted)
        server.should_exit = True
        thread.join(20)


def ends(connection: socket.socket) -> float:
    """After how many seconds the other side ended this connection."""
    began = time.monotonic()
    connection.settimeout(20)
    with contextlib.suppress(ConnectionResetError, ssl.SSLError):
        while connection.recv(4096):
            pass
    return time.monotonic() - began


def is_let_in(server: Serving, source: str = "127.0.0.1") -> bool:
    """Whether this address is served, now or in a moment."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        with contextlib.suppress(httpx.TransportError), server.client(source) as client:
            return client.get("/").status_code == 200
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("silence", SILENCES)
def test_a_request_that_stops_is_not_waited_for(tmp_path: Path, silence: str, tls: bool):
    with serving(Door(9, request=0.2), tmp_path if tls else None) as server, server.connect() as connection:
        connection.sendall(SILENCES[silence])
        assert ends(connection) < 5


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_handshake_that_does_not_begin_is_not_waited_for(tmp_path: Path, loop: str):
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    with serving(Door(1, handshake=0.2), tmp_path, loop) as server:
        with server.connect(handshake=False) as connection:
            assert ends(connection) < 5
        assert is_let_in(server)


def test_a_later_request_is_not_waited_for_either():
    """uvicorn stops its own clock at the first byte of it."""
    with serving(Door(9, request=0.2)) as server, server.connect() as connection:
        connection.sendall(HEAD + b"\r\n")
        assert connection.recv(4096).endswith(b"nothing")
        connection.sendall(b"G")
        assert ends(connection) < 5


def test_who_asked_in_time_may_wait_for_the_answer(tmp_path: Path):
    with serving(Door(9, request=0.2), tmp_path) as server, server.client() as client:
        assert client.post("/?after=0.6", content=b"whole").text == "whole"
        time.sleep(0.3)
        assert client.get("/").text == "nothing", "and an idle connection stays for the next request"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_one_address_has_so_many_connections(tmp_path: Path, tls: bool):
    with serving(Door(3), tmp_path if tls else None) as server, ExitStack() as held:
        first = [held.enter_context(server.connect("127.0.0.2", handshake=tls)) for _ in range(3)]
        with server.connect("127.0.0.2", handshake=False) as fourth:
            assert ends(fourth) < 5
        with server.client("127.0.0.3") as other:
            assert other.get("/").status_code == 200, "another address is served"
        first[0].close()
        assert is_let_in(server, "127.0.0.2"), "and so is this one, with one connection less"


def test_all_together_have_so_many():
    with serving(Door(9, most=2)) as server, ExitStack() as held:
        connections = [held.enter_context(server.connect(f"127.0.0.{last}")) for last in (2, 3, 4)]
        assert ends(connections[2]) < 5


@pytest.mark.real
def test_silent_sockets_do_not_close_the_console(tmp_path: Path):
    """The console as people start it, with TLS. It may open 200 files, so that 300 sockets are as a thousand; half of
    them begin no handshake, half no request."""
    certificate, key = own_certificate(tmp_path)
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "console.toml").write_text("[limits]\nconnections_per_address = 40\n")
    options = ("--no-worker", "--certificate", str(certificate), "--key", str(key))
    with running_console(tmp_path / "home", *options) as console, ExitStack() as held:
        url = httpx.URL(console.url)
        server = Serving(url.port or 0, ssl.create_default_context(cafile=str(certificate)))
        resource.prlimit(console.process.pid, resource.RLIMIT_NOFILE, (200, 200))
        for silent in range(300):
            source, handshake = (("127.0.0.2", False), ("127.0.0.3", True))[silent % 2]
            with contextlib.suppress(OSError):  # it is refused, or nobody is there for the handshake any more
                held.enter_context(server.connect(source, handshake=handshake, patience=0.3))
        with server.client() as visitor:
            began = time.monotonic()
            assert visitor.get("/sign-in").status_code == 200
            assert time.monotonic() - began < 5
