"""Erasure requests: who asks, and what must go (the target, the paper's R)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fedforget.data.features import Feature, check_form, describe_feature, joint_mask
from fedforget.data.samples import Samples
from fedforget.errors import InputError

TargetKind = Literal["class", "samples", "client", "feature"]


@dataclass(frozen=True)
class ErasureRequest:
    """One client asks that a part of its data be forgotten.

    >>> ErasureRequest.of_class(client=0, label=3).describe()
    'class 3 of client 0'
    >>> ErasureRequest.of_client(2).describe()
    'everything of client 2'
    >>> ErasureRequest.of_feature(client=2, feature=7).describe()
    'column 7 of client 2'
    """

    client: int
    kind: TargetKind
    label: int | None = None
    sample_ids: tuple[int, ...] = ()
    feature: Feature = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(TargetKind):
            raise InputError(f"Target '{self.kind}' is unknown; choose one of {', '.join(get_args(TargetKind))}.")
        if self.client < 0:
            raise InputError(f"Client {self.client} does not exist; clients are numbered from 0.")
        if self.kind == "class" and (self.label is None or self.label < 0):
            raise InputError("A class request must name the class to forget, a number from 0.")
        if self.kind == "samples" and not self.sample_ids:
            raise InputError("The target is empty: a sample request must list at least one sample id.")
        if self.kind == "feature":
            check_form(self.feature)

    @classmethod
    def of_class(cls, client: int, label: int) -> ErasureRequest:
        """All samples of one class that the client holds (class-wise: the paper's main case)."""
        return cls(client, "class", label=label)

    @classmethod
    def of_samples(cls, client: int, sample_ids: Iterable[int]) -> ErasureRequest:
        """Listed samples of the client (sample-wise)."""
        return cls(client, "samples", sample_ids=tuple(sorted({int(i) for i in sample_ids})))

    @classmethod
    def of_client(cls, client: int) -> ErasureRequest:
        """Everything the client ever contributed (client-wise)."""
        return cls(client, "client")

    @classmethod
    def of_feature(cls, client: int, feature: int | Iterable[int]) -> ErasureRequest:
        """One feature of all the client's samples, which stay without it (feature-wise): a column of a table by its
        number, or a patch of an image as (top, left, height, width)."""
        return cls(client, "feature", feature=(feature,) if isinstance(feature, int) else tuple(feature))

    def describe(self) -> str:
        """The target in words."""
        if self.kind == "class":
            return f"class {self.label} of client {self.client}"
        if self.kind == "samples":
            return f"{len(self.sample_ids)} samples of client {self.client}"
        if self.kind == "feature":
            return f"{describe_feature(self.feature)} of client {self.client}"
        return f"everything of client {self.client}"

    def matches(self, samples: Samples) -> Tensor:
        """Boolean mask over the client's own `samples`: which of them are in the target.

        A class request means the class a sample really belongs to, also where its training label was poisoned.
        A feature request is about all of them."""
        if self.kind == "class":
            assert self.label is not None
            return samples.true_labels == self.label
        if self.kind == "samples":
            return torch.isin(samples.ids, torch.tensor(self.sample_ids, dtype=torch.int64))
        return torch.ones(len(samples), dtype=torch.bool)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` reads back."""
        values: dict[str, Any] = {"client": self.client, "kind": self.kind}
        if self.kind == "class":
            values["label"] = self.label
        if self.kind == "samples":
            values["sample_ids"] = list(self.sample_ids)
        if self.kind == "feature":
            values["feature"] = list(self.feature)
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ErasureRequest:
        sample_ids = tuple(sorted(set(values.get("sample_ids", ()))))
        return cls(values["client"], values["kind"], values.get("label"), sample_ids, tuple(values.get("feature", ())))


def target_mask(requests: Sequence[ErasureRequest], client: int, samples: Samples) -> Tensor:
    """Which of the client's samples any of its `requests` names."""
    mask = torch.zeros(len(samples), dtype=torch.bool)
    for request in requests:
        if request.client == client:
            mask |= request.matches(samples)
    return mask


def withdrawn_mask(requests: Sequence[ErasureRequest], client: int, samples: Samples) -> Tensor:
    """Which of the client's samples go altogether: a sample that loses a feature stays without it."""
    return target_mask([request for request in requests if request.kind != "feature"], client, samples)


def withdrawn_features(requests: Sequence[ErasureRequest], client: int, shape: Sequence[int]) -> Tensor:
    """Boolean, of a sample's shape: which of its features the client's `requests` take from all of its samples."""
    return joint_mask([r.feature for r in requests if r.kind == "feature" and r.client == client], shape)


def requests_id(requests: Sequence[ErasureRequest]) -> str:
    """A short stable name for a set of requests; order and repetition do not matter."""
    canonical = "[" + ", ".join(sorted({json.dumps(r.to_json(), sort_keys=True) for r in requests})) + "]"
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def describe_requests(requests: Sequence[ErasureRequest]) -> str:
    """All targets in words."""
    return " and ".join(request.describe() for request in requests)
