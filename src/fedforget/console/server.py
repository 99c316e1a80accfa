"""Run a console: open or make the ledger, let an admin in, serve until told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from fedforget.console.app import make_app
from fedforget.console.door import MOST_CONNECTIONS, Door
from fedforget.console.settings import ConsoleSettings, read_settings
from fedforget.errors import InputError
from fedforget.ledger.book import Ledger
from fedforget.ledger.checks import is_loopback
from fedforget.ledger.privacy import make_nothing_for_others
from fedforget.ledger.states import Role

FIRST_ADMIN = "admin"
LINK_LASTS = timedelta(hours=24)
GRACE_SECONDS = 5
"""How long answers under way may take when the console stops."""
KEEP_ALIVE_SECONDS = 30
"""How long an idle connection stays: pages of one person come seconds apart."""


class Server(uvicorn.Server):
    """Takes connections at a door of its own."""

    def __init__(self, config: uvicorn.Config, door: Door) -> None:
        super().__init__(config)
        self._door = door
        self._doors: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        if self.started:
            doors = [self._door.keep(listening, self._protocol, self.config.ssl) for listening in sockets or ()]
            self._doors = [asyncio.create_task(door) for door in doors]

    def _protocol(self) -> asyncio.Protocol:
        kind: Any = self.config.http_protocol_class
        made: asyncio.Protocol = kind(self.config, self.server_state, self.lifespan.state)
        return made

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for door in self._doors:
            door.cancel()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True  # asked twice
        self.should_exit = True  # and no more: uvicorn would raise the signal once again when all is done


def admin_link(ledger: Ledger, settings: ConsoleSettings) -> str | None:
    """A link for an admin, where none could get in otherwise: on a new machine, or while nobody has set a password."""
    admins = [row for row in ledger.accounts.all() if row.role == Role.ADMIN and row.disabled is None]
    if any(row.password or row.identity for row in admins):
        return None
    name = admins[0].name if admins else ledger.accounts.add(FIRST_ADMIN, Role.ADMIN).name
    return f"{settings.url.rstrip('/')}/link/{ledger.accounts.make_link(name, lasting=LINK_LASTS)}"


def address_for(host: str, port: int, *, tls: bool) -> str:
    """What people type, where nobody said."""
    named = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return f"{'https' if tls else 'http'}://{f'[{named}]' if ':' in named else named}:{port}"


def serve(
    home: Path | None,
    ledger_url: str | None,
    *,
    host: str,
    port: int,
    with_worker: bool,
    url: str | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> None:
    """Serve until interrupted."""
    tls = certificate is not None
    if tls != (key is not None):
        raise InputError("--certificate and --key belong together: the TLS certificate, and its private key.")
    if not is_loopback(host) and url is None and not tls:
        raise InputError(
            f"On {host} passwords and sessions would travel in the clear; give --certificate and --key, or put a TLS "
            "proxy in front and name its address with --url https://HOST."
        )
    for path in (certificate, key):
        if path is not None and not path.is_file():
            raise InputError(f"{path} is not there.")
    make_nothing_for_others()
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    with listening, Ledger.open(home, ledger_url) as ledger:
        settings = read_settings(ledger.home, url=url or address_for(host, port, tls=tls), behind_proxy=url is not None)
        ledger.trail.note_settings()
        if not ledger.keys.all():
            ledger.keys.make()
        app = make_app(ledger, settings, with_worker=with_worker)
        link = admin_link(ledger, settings)
        print(f"The console is at {settings.url} (home: {ledger.home}).")
        if link is not None:
            print(f"Sign in as admin, once, within 24 hours: {link}")
        print("Stop it with Ctrl-C.", flush=True)
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
        config = uvicorn.Config(
            app, host=host, port=port, log_level="warning", access_log=False, server_header=False, ws="none",
            proxy_headers=url is not None, timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS, limit_concurrency=MOST_CONNECTIONS, ssl_certfile=certificate,
            ssl_keyfile=key,
        )  # fmt: skip
        gc.collect()
        gc.freeze()  # what is loaded stays: looking through it again took a third of a second, for everybody
        # Without TLS whoever connects is on this machine: a person, or the proxy with everybody behind it.
        door = Door(int(settings.limits.connections_per_address) if tls else MOST_CONNECTIONS)
        Server(config, door).run([listening])


def _listen(host: str, port: int) -> socket.socket:
    """Before anything else: a port that is taken is one sentence, port 0 is a number by then, and who follows the
    printed link at once is not turned away."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise InputError(f"Cannot listen on {host} port {port}: {error}; choose another with --port.") from None
