"""Our own app for nodes that may send NaN: a file `nan` in a node's state-dir names the task whose reply gets one.

Tests copy this file into an app folder of their own; the package has nothing of the kind."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fedforget.flower.app.apps import load_own_client
from fedforget.flower.client_app import client_number, register
from fedforget.flower.messages import TASK_TYPE, read_reply, read_task, reply_content
from fedforget.params import copy_state


def spoil(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    note = Path(str(context.node_config["state-dir"])) / "nan"
    ours = message.metadata.message_type == TASK_TYPE and note.exists()
    spoils = ours and type(read_task(message.content)[0]).__name__ == note.read_text()
    reply = call_next(message, context)
    if spoils:
        honest = read_reply(reply.content, client_number(context))
        tensors = copy_state(honest.tensors)
        next(iter(tensors.values())).view(-1)[0] = math.nan
        reply.content = reply_content(replace(honest, tensors=tensors))
    return reply


client_app = ClientApp(mods=[spoil])
register(client_app, load_own_client)
