"""Fixtures of the data tests: no test finds the machine's data or touches the user's cache unless it says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedforget.data import locations


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any data set and with an empty cache, which is returned."""
    (tmp_path / "home" / "project").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home" / "project")
    monkeypatch.setattr(locations, "CHECKOUT", tmp_path / "site-packages")
    monkeypatch.delenv("FEDFORGET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fedforget"


@pytest.fixture
def own_folder(nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty $FEDFORGET_DATA on a machine without data."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv("FEDFORGET_DATA", str(folder))
    return folder


class Site:
    """What a small web server serves, how it misbehaves, and what it was asked."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, bytes] = {}
        self.break_once_after: dict[str, int] = {}
        self.ignores_range = False
        self.range_shift = 0
        self.chunked = False
        self.stalls = False
        self.gave_up = False
        self.released = threading.Event()
        self.asked: list[tuple[str, str | None]] = []

    def url(self, path: str) -> str:
        return self.address + path


class _Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        site, wanted = self.site, self.headers.get("Range")
        site.asked.append((self.path, wanted))
        if self.path not in site.files:
            self.send_error(404)
            return
        body, start = site.files[self.path], 0
        if wanted and not site.ignores_range:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.send_error(416)
                return
            start += site.range_shift
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        body = body[start:]
        sent = body[: site.break_once_after.pop(self.path, len(body))]
        if site.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(f"{len(body):x}\r\n".encode() + sent)
            if len(sent) == len(body):
                self.wfile.write(b"\r\n0\r\n\r\n")
        else:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(sent)
        if site.stalls:
            self.wfile.flush()
            site.gave_up = not site.released.wait(60)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    """A real HTTP server on 127.0.0.1."""
    handler = type("Handler", (_Handler,), {"protocol_version": "HTTP/1.1"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.site = Site(f"http://127.0.0.1:{server.server_address[1]}/")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield handler.site
    handler.site.released.set()
    server.shutdown()
    server.server_close()
    thread.join()
