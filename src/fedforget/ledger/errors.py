"""What the ledger refuses. All of them are sentences for a person; the console makes a status code of the class."""

from __future__ import annotations

from fedforget.errors import FedForgetError, InputError


class MissingError(InputError):
    """There is no such thing (a web page answers 404)."""


class ConflictError(InputError):
    """The thing is there, but in a state that does not allow this (409)."""


class NotHeldError(InputError):
    """Samples were named that are not the client's; the sentence is for who may see what a client holds."""

    def __init__(self, client: int, told: str) -> None:
        super().__init__(told)
        self.client = client


class LeaseLostError(FedForgetError):
    """Another worker has taken over; what this one computed is not wanted any more."""


class TamperedError(FedForgetError):
    """Something is not as it was written."""


class BusyError(FedForgetError):
    """The database did not answer in time, or not at all (503)."""
