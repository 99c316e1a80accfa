"""The door of the server: how many connections it takes, of all and of one address, and how long they may be silent.

uvicorn alone waits for ever for a visitor's first request, and counts a connection when its TLS handshake is over: a
thousand sockets that say nothing, and nobody else gets in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from ssl import SSLContext
from typing import Any

log = logging.getLogger("fedforget.console")
MOST_CONNECTIONS = 800
"""At once. A process may often open 1,024 files, and the ledger needs some of them."""
HANDSHAKE_SECONDS = 10.0
REQUEST_SECONDS = 30.0
"""From the first moment of a connection, or the first byte of a later request, to the request's last byte."""
FAREWELL_SECONDS = 2.0
"""For the other side to agree that a TLS connection ends."""


class Door:
    """Takes connections, `most` at once and `most_of_one` address, and closes those that keep it waiting."""

    def __init__(
        self,
        most_of_one: int,
        most: int = MOST_CONNECTIONS,
        handshake: float = HANDSHAKE_SECONDS,
        request: float = REQUEST_SECONDS,
    ) -> None:
        self.most_of_one, self.most, self.handshake, self.request = most_of_one, most, handshake, request
        self._inside: Counter[str] = Counter()
        self._coming: set[asyncio.Task[None]] = set()

    async def keep(self, listening: socket.socket, make: Callable[[], Any], tls: SSLContext | None) -> None:
        """Take what comes at this socket, until cancelled. `make` gives one of uvicorn's protocols."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:  # gone again, or no more files can be opened
                log.warning("no connection could be taken: %s", error)
                await asyncio.sleep(1.0)
                continue
            who = counted_as(address[0])
            if self._inside[who] >= self.most_of_one or self._inside.total() >= self.most:
                connection.close()
            else:
                self._inside[who] += 1
                task = asyncio.create_task(self._let_in(connection, who, make, tls))
                self._coming.add(task)
                task.add_done_callback(self._coming.discard)
            await asyncio.sleep(0)  # those who are inside have their turn, however many come

    async def _let_in(
        self, connection: socket.socket, who: str, make: Callable[[], Any], tls: SSLContext | None
    ) -> None:
        guest: Any = Guest(make(), self.request, lambda: self._count_off(who))
        times = {"ssl_handshake_timeout": self.handshake, "ssl_shutdown_timeout": FAREWELL_SECONDS} if tls else {}
        try:
            with contextlib.suppress(OSError):  # no handshake, or not in time
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                loop = asyncio.get_running_loop()
                await loop.connect_accepted_socket(lambda: guest, connection, ssl=tls, **times)
        finally:
            if not guest.came:
                self._count_off(who)

    def _count_off(self, who: str) -> None:
        self._inside[who] -= 1
        if not self._inside[who]:
            del self._inside[who]


def counted_as(host: str) -> str:
    """Whom a limit counts as one: an IPv4 address, and of IPv6 the network that one subscriber has all of.

    >>> counted_as("192.0.2.7"), counted_as("::ffff:192.0.2.7"), counted_as("2001:db8::1:2:3:4")
    ('192.0.2.7', '192.0.2.7', '2001:db8::/64')
    """
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or ip_network((address, 64), strict=False))
    return str(address)


class Guest:
    """One connection: uvicorn's protocol `inner` does the work, this one looks at the clock."""

    def __init__(self, inner: Any, seconds: float, leave: Callable[[], None]) -> None:
        self.inner, self.seconds, self.leave, self.came = inner, seconds, leave, False
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self.came, self._transport = True, transport
        self.inner.connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        self.inner.data_received(data)
        if self._has_all():
            self._stop()
        elif self._waiting is None:
            self._wait()

    def _has_all(self) -> bool:
        """Whether the newest request arrived in whole and is being served."""
        cycle = self.inner.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().call_later(self.seconds, self._transport.abort)

    def _stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def connection_lost(self, error: Exception | None) -> None:
        self._stop()
        self.leave()
        self.inner.connection_lost(error)

    def __getattr__(self, name: str) -> Any:
        """Whatever else a transport tells a protocol."""
        return getattr(self.inner, name)
