"""The errors a user meets: one sentence that names what is wrong and what to do."""


class FedForgetError(Exception):
    """Base of every error that fedforget raises on purpose. Its text is one sentence for a person."""


class InputError(FedForgetError):
    """The caller's input is wrong; nothing was started and nothing was changed."""


class NotYetError(InputError):
    """It cannot be done now, but may be later, without other words: somebody must approve, or repair something."""


class DivergedError(FedForgetError):
    """A computation left the finite numbers; the old model is still in place.

    `stage` names where it happened (a training round, the sketch, the forgetting step)."""

    def __init__(self, stage: str, detail: str) -> None:
        super().__init__(f"{stage} diverged: {detail}")
        self.stage = stage
        self.detail = detail

    def __reduce__(self) -> tuple[type["DivergedError"], tuple[str, str]]:
        return type(self), (self.stage, self.detail)


class ClientError(FedForgetError):
    """A client did not do what it was asked; the global model is as it was, and the request can be tried again."""

    def __init__(self, client: int, reason: str) -> None:
        super().__init__(f"Client {client} {reason}")
        self.client = client
        self.reason = reason


class RefusedError(FedForgetError):
    """What came over the wire is not what this side accepts; nothing was done."""
