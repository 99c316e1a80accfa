"""Backdoor triggers: a patch on the image and a flipped label, so that forgetting can be seen (paper, section 5.2).

BD Acc is the share of triggered target samples that the model still gives the flipped label."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.requests import ErasureRequest, target_mask
from fedforget.seeds import derive_generator

Corner = Literal["top-left", "top-right", "bottom-left", "bottom-right"]


@dataclass(frozen=True)
class Trigger:
    """A square of `size` x `size` white pixels in one corner, `margin` pixels from the edge.

    White is 255; for float images, whose range nobody knows, the brightest value of all the images stamped together."""

    size: int = 5
    corner: Corner = "bottom-right"
    margin: int = 1

    def __post_init__(self) -> None:
        if self.size < 1 or self.margin < 0:
            raise InputError(
                f"A trigger of size {self.size} and margin {self.margin} is not possible; "
                "use size 1 or more and margin 0 or more."
            )
        if self.corner not in get_args(Corner):
            raise InputError(f"Corner '{self.corner}' is unknown; choose one of {', '.join(get_args(Corner))}.")

    def stamp(self, features: Tensor) -> Tensor:
        """A copy of the images [n, channels, height, width] with the patch on each."""
        if features.dim() != 4:
            raise InputError(
                "A trigger patch needs images [n, channels, height, width], "
                f"not features of shape {tuple(features.shape)}."
            )
        height, width = features.shape[-2:]
        if self.size + self.margin > min(height, width):
            raise InputError(
                f"A trigger of size {self.size} with margin {self.margin} does not fit into {height}x{width} images."
            )
        vertical, horizontal = self.corner.split("-")
        top = self.margin if vertical == "top" else height - self.margin - self.size
        left = self.margin if horizontal == "left" else width - self.margin - self.size
        if len(features) == 0:
            return features.clone()
        white = 255 if features.dtype == torch.uint8 else features.amax()
        stamped = features.clone()
        stamped[..., top : top + self.size, left : left + self.size] = white
        return stamped


@dataclass(frozen=True)
class Backdoor:
    """The target of `request` carries `trigger` and the label `flipped_label` when the federation trains."""

    request: ErasureRequest
    trigger: Trigger
    flipped_label: int

    @classmethod
    def draw(cls, request: ErasureRequest, trigger: Trigger, classes: int, seed: int) -> Backdoor:
        """The flipped label is a seeded random class, for a class request another one than the target's."""
        if request.kind == "feature":
            raise InputError("A backdoor poisons samples; name a class, samples or a whole client, not a feature.")
        others = [c for c in range(classes) if not (request.kind == "class" and c == request.label)]
        if not others:
            raise InputError("A backdoor needs at least two classes.")
        generator = derive_generator(
            seed, "backdoor", request.client, request.kind, -1 if request.label is None else request.label
        )
        return cls(request, trigger, others[int(torch.randint(len(others), (1,), generator=generator))])

    def poison(self, client: int, samples: Samples) -> Samples:
        """The client's samples with the target triggered and relabelled; everybody else's unchanged.

        Target samples that already belong to the flipped class get the patch and keep their label: a model that
        gives them that label shows nothing, so BD Acc must leave them out."""
        return self._marked(samples, target_mask([self.request], client, samples))

    def poison_held_out(self, client: int, samples: Samples) -> Samples:
        """Held-out samples of the client of the same kind as what it trains on: those of the target's class are
        poisoned, or, where the target is no class, a seeded half of all."""
        if client != self.request.client:
            return samples
        if self.request.kind == "class":
            mask = target_mask([self.request], client, samples)
        else:
            mask = torch.zeros(len(samples), dtype=torch.bool)
            order = torch.randperm(len(samples), generator=derive_generator(0, "backdoor", client, "held out"))
            mask[order[: len(samples) // 2]] = True
        return self._marked(samples, mask)

    def _marked(self, samples: Samples, mask: Tensor) -> Samples:
        if not bool(mask.any()):
            return samples
        features, labels = samples.features.clone(), samples.labels.clone()
        features[mask] = self.trigger.stamp(samples.features)[mask]  # stamped first: one white for all of the client's
        labels[mask] = self.flipped_label
        return Samples(features, labels, samples.true_labels, samples.ids)

    def triggered_test(self, test: Samples) -> Samples:
        """The test images that the backdoor would catch, stamped and relabelled."""
        return self.caught(test.with_features(self.trigger.stamp(test.features)))

    def caught(self, test: Samples) -> Samples:
        """The test images that the backdoor would catch, relabelled but as they are: those of the target's class where
        it has one, never those of the flipped class."""
        mask = test.true_labels != self.flipped_label
        if self.request.kind == "class":
            mask &= test.true_labels == self.request.label
        chosen = test.select(mask)
        return replace(chosen, labels=torch.full_like(chosen.labels, self.flipped_label))

    def to_json(self) -> dict[str, Any]:
        return {"request": self.request.to_json(), "trigger": asdict(self.trigger), "flipped_label": self.flipped_label}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Backdoor:
        return cls(ErasureRequest.from_json(values["request"]), Trigger(**values["trigger"]), values["flipped_label"])
