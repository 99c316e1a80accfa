"""A run folder that somebody wants registered. It may come from anywhere and hold anything, with right checksums too:
so it is looked through before anything is done with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from fedforget.errors import InputError
from fedforget.ledger.errors import NotHeldError
from fedforget.params import State, first_non_finite
from fedforget.requests import ErasureRequest
from fedforget.runs.folder import Run


def read_run(folder: Path) -> tuple[Run, State]:
    """A trained run and its model."""
    try:
        run = Run(Path(folder))
        trunk, finished = run.trunk, run.finished
        forms = ((trunk.model, r"checkpoints/[a-z0-9-]+\.safetensors"), (trunk.sha256, "[0-9a-f]{64}"))
        odd = next((named for named, form in forms if not re.fullmatch(form, named)), None)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InputError(
            f"{folder} is no run folder that training left: what it holds makes no sense ({type(error).__name__})."
        ) from None
    if not finished:
        raise InputError(f"Training of {folder} is not finished; finish it with `fedforget train --resume`.")
    if odd is not None:
        raise InputError(f"{folder} names {odd!r:.100} as its own, but that is no file of it; train again.")
    model = run.load_trunk(trunk)
    broken = first_non_finite(model)
    if broken is not None:
        raise InputError(f"The model of {folder} is broken: '{broken}' holds values that are no numbers; train again.")
    return run, model


def check_held(folder: Path, request: ErasureRequest) -> None:
    """Refuse samples that the client does not hold, where its run folder is on this machine. Elsewhere the client
    itself refuses them."""
    if not (folder / "run.json").is_file() or Run(folder).config.attached:
        return
    held = _held_ids(str(folder)).get(request.client, torch.empty(0, dtype=torch.int64))
    asked = torch.tensor(request.sample_ids, dtype=torch.int64)
    if strange := asked[~torch.isin(asked, held)].tolist():
        first = ", ".join(map(str, strange[:20])) + (" and others" if len(strange) > 20 else "")
        whose = f"client {request.client}"
        raise NotHeldError(
            request.client,
            f"{len(strange)} of the {len(asked)} samples are not {whose}'s: {first}. Use the numbers that {whose} has "
            f"for its own samples{', such as ' + ', '.join(map(str, held[:10].tolist())) if len(held) else ''}.",
        )


@lru_cache(maxsize=8)
def _held_ids(folder: str) -> dict[int, Tensor]:
    """The sample ids of each client of a run. Which they are follows from the run's configuration."""
    config = Run(Path(folder)).config
    federation = config.build_federation(config.load_dataset())
    return {client: federation.client(client).samples.ids.clone() for client in federation.clients}


def check_fits(model: Mapping[str, Tensor], network: Mapping[str, Tensor], folder: Path) -> None:
    """Refuse a model whose tensors are not those of the network that the run's configuration names."""
    for name in (*network, *model):
        if name not in model:
            raise InputError(f"The model of {folder} lacks '{name}', which its network has; train again.")
        if name not in network:
            raise InputError(f"The model of {folder} has '{name}', which its network has not; train again.")
        if _looks(model[name]) != _looks(network[name]):
            must_be = f"'{name}' is {_looks(model[name])}, but must be {_looks(network[name])}"
            raise InputError(f"The model of {folder} is not one of its network: {must_be}.")


def _looks(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of {tuple(tensor.shape)}"
