"""What a node keeps of the app's model, such as a layer of its own in `context.state`, was trained with that model: it
would bring the target back into the next average, and into a retraining. So it goes once a request has put another
model in place, and stays where the request leaves the model as it was.

The messages of the app's own rounds name the model in place from then on. So a node that was away hears of it too."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Context, Message

log = logging.getLogger("flwr")
RECORD = "fedforget-model"


class Renewal:
    """The server's side: which model the app's rounds go on from."""

    def __init__(self) -> None:
        self._model = ""

    def renew(self) -> None:
        """Another model is in place."""
        self._model = secrets.token_hex(8)

    def marked(self, messages: Iterable[Message]) -> list[Message]:
        """The messages, which now name it."""
        marked = list(messages)
        for message in marked if self._model else ():
            message.content[RECORD] = ConfigRecord({"model": self._model})
        return marked


def drop_old_arrays(message: Message, context: Context) -> None:
    """The node's side: drop what was trained with another model, and take the mark off the message."""
    mark = message.content.config_records.get(RECORD) if message.has_content() else None
    if mark is None:
        return
    del message.content[RECORD]
    known = context.state.config_records.get(RECORD)
    if known is not None and known["model"] == mark["model"]:
        return
    for name in [name for name, record in context.state.items() if isinstance(record, ArrayRecord)]:
        log.warning("The node's '%s' in context.state is dropped: it was trained with the model of before.", name)
        del context.state[name]
    context.state[RECORD] = ConfigRecord({"model": mark["model"]})
