"""A client: its samples, and a network to run them through. Everything private lives here."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedforget.data.samples import Normalisation, Samples
from fedforget.errors import InputError
from fedforget.requests import ErasureRequest, target_mask

AHEAD = "ahead."
"""What a client keeps under a name that begins so was made before any request, from samples that may be withdrawn
later: it has a `without(ids)`, the same thing with nothing of these samples in it."""
STATISTICS = "statistics"
"""Under this name a client keeps what it needs to forget a class whose samples are gone; it has `labels`, a tensor of
the classes."""


@dataclass(eq=False)
class Client:
    """Client k with its data D_k. `model` is a workspace any task may overwrite; the weights arrive with the task."""

    index: int
    samples: Samples
    model: nn.Module
    normalisation: Normalisation
    classes: int
    device: torch.device
    kept: MutableMapping[str, Any] = field(default_factory=dict)
    """What the client keeps for a next task, such as a sketch; it never leaves."""
    held_out: Samples | None = None
    """Samples of the same kind that this client never trains on, for the audit."""
    erased: tuple[ErasureRequest, ...] = ()
    """What the client has withdrawn, whoever asks: no part of its retained data any more."""

    def load(self, state: Mapping[str, Tensor]) -> nn.Module:
        """The workspace model with the weights of `state`."""
        self.model.load_state_dict(dict(state))
        return self.model

    def inputs(self, features: Tensor) -> Tensor:
        """Features as the network takes them."""
        return self.normalisation(features.to(self.device))

    def positions(
        self, requests: Sequence[ErasureRequest], being_forgotten: Sequence[ErasureRequest] = ()
    ) -> tuple[Tensor, Tensor]:
        """Where (R, D') lie in this client's samples: the target that its `requests` name, and the retained rest.

        What the client has erased is never retained, save a target that is `being_forgotten` by this very task: a
        method may have to look once more at what it makes the model forget."""
        mask = target_mask(requests, self.index, self.samples)
        gone = target_mask(self.erased, self.index, self.samples)
        gone &= ~target_mask(being_forgotten, self.index, self.samples)
        return mask.nonzero().squeeze(1), (~(mask | gone)).nonzero().squeeze(1)

    def target(self, requests: Sequence[ErasureRequest], served: Sequence[ErasureRequest] = ()) -> Tensor:
        """Where R lies, without what was `served` before: that is forgotten already."""
        target, withdrawn = self.positions(requests)[0], self.positions(served)[0]
        return target[~torch.isin(target, withdrawn)]

    def split(self, requests: Sequence[ErasureRequest]) -> tuple[Samples, Samples]:
        """(R, D') themselves, copied."""
        target, retained = self.positions(requests)
        return self.samples.select(target), self.samples.select(retained)

    def withdraw(self, requests: Sequence[ErasureRequest]) -> None:
        """Erase from now on, also from what was made ahead; a request that is known already changes nothing."""
        ids = self.samples.ids[target_mask(requests, self.index, self.samples)]
        for key in [key for key in self.kept if key.startswith(AHEAD)]:
            self.kept[key] = self.kept[key].without(ids)
        self.erased += tuple(request for request in requests if request not in self.erased)

    def recalls(self, request: ErasureRequest) -> bool:
        """Whether the client keeps statistics of what the request is about."""
        kept = self.kept.get(STATISTICS)
        return request.kind == "class" and kept is not None and request.label in kept.labels.tolist()

    def check(self, request: ErasureRequest) -> int:
        """Refuse a request that names nothing of this client's; return the size of its target."""
        if request.kind == "class" and not bool(request.matches(self.samples).any()) and not self.recalls(request):
            if request.label is not None and request.label >= self.classes:
                raise InputError(f"Class {request.label} does not exist; the data has classes 0 to {self.classes - 1}.")
            held = ", ".join(str(c) for c in self.samples.true_labels.unique().tolist())
            raise InputError(f"Client {self.index} holds no sample of class {request.label}; it holds classes {held}.")
        if request.kind == "samples":
            unknown = set(request.sample_ids) - set(self.samples.ids.tolist())
            if unknown:
                more = f" (nor are {len(unknown) - 1} more)" if len(unknown) > 1 else ""
                raise InputError(
                    f"Sample {min(unknown)} is not among client {self.index}'s data{more}; "
                    "a client can only withdraw its own samples."
                )
        return int(request.matches(self.samples).sum())
