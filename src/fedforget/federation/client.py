"""A client: its samples, and a network to run them through. Everything private lives here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedforget.data.samples import Normalisation, Samples
from fedforget.errors import InputError
from fedforget.requests import ErasureRequest, check_feature, target_mask, withdrawn_features, withdrawn_mask

SUMS = "ridge.sums"
"""Under this name a client keeps the sums of its data (`federation.sums`)."""


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
    no_ids: str = ""
    """Why single samples cannot be named here; empty where they can."""
    notes: tuple[str, ...] = ()
    """What a person should know of the data when some of them are withdrawn."""

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
        """Where (R, D') lie in this client's samples: the target that its `requests` name, and the retained rest. Where
        a feature is the target, a sample lies in both: it stays, without the feature.

        What the client has erased is never retained, save a target that is `being_forgotten` by this very task: a
        method may have to look once more at what it makes the model forget."""
        target = target_mask(requests, self.index, self.samples)
        gone = withdrawn_mask(self.erased, self.index, self.samples)
        gone &= ~withdrawn_mask(being_forgotten, self.index, self.samples)
        gone |= withdrawn_mask(requests, self.index, self.samples)
        return target.nonzero().squeeze(1), (~gone).nonzero().squeeze(1)

    def retained(
        self,
        requests: Sequence[ErasureRequest],
        being_forgotten: Sequence[ErasureRequest] = (),
        part: Callable[[int], Tensor] | None = None,
    ) -> Samples:
        """D' itself: the only samples to train on, with every withdrawn feature blanked. A `part` of n samples says
        which positions among them are wanted; the others are not copied."""
        kept = self.positions(requests, being_forgotten)[1]
        if part is not None and len(kept):
            kept = kept[part(len(kept))]
        samples = self.samples if len(kept) == len(self.samples) else self.samples.select(kept)
        return self._blanked(samples, requests, being_forgotten)

    def target(self, requests: Sequence[ErasureRequest], served: Sequence[ErasureRequest] = ()) -> Samples:
        """R itself, without what was `served` before: that is forgotten already."""
        mask = target_mask(requests, self.index, self.samples)
        mask &= ~withdrawn_mask(served, self.index, self.samples)
        return self._blanked(self.samples.select(mask), served, requests)

    def _blanked(
        self, samples: Samples, requests: Sequence[ErasureRequest], being_forgotten: Sequence[ErasureRequest]
    ) -> Samples:
        """`samples` without the features that `requests` take, and without those that were erased before."""
        shape = samples.features.shape[1:]
        erased = withdrawn_features([r for r in self.erased if r not in being_forgotten], self.index, shape)
        mask = erased | withdrawn_features(requests, self.index, shape)
        if not bool(mask.any()):
            return samples
        return samples.with_features(self.normalisation.blanked(samples.features, mask))

    def withdraw(self, requests: Sequence[ErasureRequest]) -> None:
        """Erase from now on; a request that is known already changes nothing. Sums that hold the target go too."""
        self.kept.pop(SUMS, None)
        self.erased += tuple(request for request in requests if request not in self.erased)

    def sizes(self, requests: Sequence[ErasureRequest]) -> tuple[int, int]:
        """How many samples (R, D') have."""
        target, retained = self.positions(requests)
        return len(target), len(retained)

    def check(self, request: ErasureRequest) -> int:
        """Refuse a request that names nothing of this client's; return the size of its target."""
        if request.kind == "class" and not bool(request.matches(self.samples).any()):
            if request.label is not None and request.label >= self.classes:
                raise InputError(f"Class {request.label} does not exist; the data has classes 0 to {self.classes - 1}.")
            held = ", ".join(str(c) for c in self.samples.true_labels.unique().tolist())
            raise InputError(f"Client {self.index} holds no sample of class {request.label}; it holds classes {held}.")
        if request.kind == "samples":
            if self.no_ids:
                raise InputError(self.no_ids)
            unknown = set(request.sample_ids) - set(self.samples.ids.tolist())
            if unknown:
                more = f" (nor are {len(unknown) - 1} more)" if len(unknown) > 1 else ""
                raise InputError(
                    f"Sample {min(unknown)} is not among client {self.index}'s data{more}; "
                    "a client can only withdraw its own samples."
                )
        if request.kind == "feature":
            check_feature(request.feature, self.samples.features.shape[1:])
        return int(request.matches(self.samples).sum())
