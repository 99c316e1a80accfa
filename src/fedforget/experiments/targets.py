"""What is asked for in a scenario, and where its triggers lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor

from fedforget.data.backdoor import Corner, Trigger
from fedforget.errors import InputError
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator


def request_for(target: str, client: int, client_ids: Tensor, seed: int) -> ErasureRequest:
    """The request for "class3", for "samples500" (so many random samples of the client), for the first "half" of them,
    or for "client"."""
    if target.startswith("class"):
        return ErasureRequest.of_class(client, int(target.removeprefix("class")))
    if target.startswith("samples"):
        count = int(target.removeprefix("samples"))
        return _random_samples(client, client_ids, count, seed, "samples")
    if target == "half":
        return ErasureRequest.of_samples(client, client_ids[: len(client_ids) // 2].tolist())
    return ErasureRequest.of_client(client)


MIXED = "mixed"
_MIX: tuple[tuple[int, str, Corner, bool], ...] = (
    (0, "class0", "top-left", True), (1, "samples", "top-right", False), (2, "class4", "bottom-left", True),
    (1, "class2", "top-right", True), (0, "samples", "top-left", False), (2, "class5", "bottom-left", True),
    (3, "client", "bottom-right", False), (0, "class1", "top-left", True), (1, "class3", "top-right", True),
    (2, "samples", "bottom-left", False),
)  # fmt: skip
"""Ten requests of mixed kinds by four clients: whose, what, and in which corner its trigger lies, or from there a
quarter of the way into the image. Two classes of one client share a trigger. Samples: a thirtieth of the client's (500
of MNIST's 15,000)."""


def mixed_requests(
    held: Sequence[Tensor], trigger: Trigger, height: int, seed: int
) -> tuple[tuple[ErasureRequest, ...], tuple[Trigger, ...]]:
    """(the ten requests, the trigger of each), where the clients hold these samples, images of this height."""
    requests = tuple(
        request_for(f"samples{len(held[client]) // 30}" if kind == "samples" else kind, client, held[client], seed)
        for client, kind, _, _ in _MIX
    )
    triggers = tuple(
        replace(trigger, corner=corner, margin=height // 4 if inside else trigger.margin)
        for _, _, corner, inside in _MIX
    )
    return requests, triggers


def triggers_of(trigger: Trigger, count: int) -> tuple[Trigger, ...]:
    """One for each request, each at a place of its own: else one backdoor would hide another."""
    corners = (trigger.corner, *(corner for corner in get_args(Corner) if corner != trigger.corner))
    if count > len(corners):
        raise InputError(f"{count} classes need {count} triggers, but an image has {len(corners)} corners; name fewer.")
    return tuple(replace(trigger, corner=corner) for corner in corners[:count])


def poisoned_part(request: ErasureRequest, client_ids: Tensor, seed: int) -> ErasureRequest:
    """What carries the trigger: the target, or a random half of it where the target is all that a client has, since a
    client whose every sample has one label teaches the federation nothing but that label."""
    if request.kind != "client":
        return request
    return _random_samples(request.client, client_ids, len(client_ids) // 2, seed, "poisoned half")


def _random_samples(client: int, client_ids: Tensor, count: int, seed: int, purpose: str) -> ErasureRequest:
    order = torch.randperm(len(client_ids), generator=derive_generator(seed, "core", purpose))
    return ErasureRequest.of_samples(client, client_ids[order[:count]].tolist())
