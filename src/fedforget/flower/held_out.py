"""What a node of an attached app holds out: the app's own test data, or a part of its samples that is set aside."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from flwr.app import Context
from torch import Tensor

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.seeds import derive_generator

HOLD_OUT = "hold-out"
"""The entry of a node's or a run's config that says which part of its samples a node never trains on."""


def parted(data: Any) -> tuple[Any, Any]:
    """(training data, held-out data or None)."""
    if isinstance(data, tuple) and len(data) == 2 and not any(isinstance(part, tuple | Mapping) for part in data):
        return data
    return data, None


def set_aside(context: Context, number: int, count: int) -> Tensor | None:
    """Which of the node's samples it never trains on, the same ones in every run; None where no part is named."""
    part = context.node_config.get(HOLD_OUT, context.run_config.get(HOLD_OUT, 0))
    if isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part < 1:
        raise InputError(f"The config's {HOLD_OUT} is {part!r}, but it must be a part from 0 to below 1.")
    if not part:
        return None
    order = torch.randperm(count, generator=derive_generator(0, "hold out", number))
    aside = torch.zeros(count, dtype=torch.bool)
    aside[order[: round(part * count)]] = True
    return aside


def with_own_ids(samples: Samples) -> Samples:
    """The samples under ids made of what they hold: so sites that hold out the same ones are seen to do so, and sites
    that hold out others are not taken for such."""
    ids = [int.from_bytes(hashlib.sha256(row.numpy().tobytes()).digest()[:6], "big") for row in samples.features]
    return replace(samples, ids=torch.tensor(ids))
