"""What can go wrong between a server and its nodes."""

from __future__ import annotations

from fedforget.errors import FedForgetError


class ClientError(FedForgetError):
    """A client did not do what it was asked; the global model is as it was, and the request can be tried again."""

    def __init__(self, client: int, reason: str) -> None:
        super().__init__(f"Client {client} {reason}")
        self.client = client
        self.reason = reason


class RefusedError(FedForgetError):
    """What came over the wire is not what this side accepts; nothing was done."""
