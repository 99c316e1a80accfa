"""Erasure requests: who asks, and what must go (the target, the paper's R).

A feature is a tuple of whole numbers from 0: (column,) or (top, left, height, width), a patch of an image with all its
channels."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor

from fedforget.errors import InputError

Feature = tuple[int, ...]
TargetKind = Literal["class", "samples", "client", "feature"]


class Identified(Protocol):
    """What a request looks at in samples (`data.samples.Samples`)."""

    @property
    def ids(self) -> Tensor: ...

    @property
    def true_labels(self) -> Tensor: ...

    def __len__(self) -> int: ...


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

    @classmethod
    def parse(
        cls,
        client: int | str | None,
        *,
        label: int | str | None = None,
        samples: str | Iterable[int] | None = None,
        feature: str | int | Iterable[int] | None = None,
        whole: bool = False,
        names: str = "a class, samples, a feature, or everything of a client",
    ) -> ErasureRequest:
        """The one target that somebody named, in words or in numbers. `names` says how one is named there, for the
        sentence that refuses none or several.

        >>> ErasureRequest.parse("0", label="3").describe()
        'class 3 of client 0'
        >>> ErasureRequest.parse(1, samples="17, 204 3511").sample_ids
        (17, 204, 3511)
        """
        if client is None or sum(part is not None for part in (label, samples, feature)) + whole != 1:
            raise InputError(f"Name one target, and whose it is: {names}.")
        client = _number(client, "client")
        if label is not None:
            return cls.of_class(client, _number(label, "class"))
        if feature is not None:
            return cls.of_feature(client, parse_feature(feature) if isinstance(feature, str) else feature)
        if samples is not None:
            words = samples.replace(",", " ").replace(";", " ").split() if isinstance(samples, str) else samples
            return cls.of_samples(client, [_number(word, "sample id") for word in words])
        return cls.of_client(client)

    def describe(self, classes: Sequence[str] = ()) -> str:
        """The target in words; a class also by its name, where `classes` say more than its number.

        >>> ErasureRequest.of_class(client=0, label=1).describe(["cat", "dog"])
        'class 1 (dog) of client 0'
        """
        if self.kind == "class":
            assert self.label is not None
            name = classes[self.label] if self.label < len(classes) else str(self.label)
            return f"class {self.label}{'' if name == str(self.label) else f' ({name})'} of client {self.client}"
        if self.kind == "samples":
            return f"{len(self.sample_ids)} samples of client {self.client}"
        if self.kind == "feature":
            return f"{describe_feature(self.feature)} of client {self.client}"
        return f"everything of client {self.client}"

    def matches(self, samples: Identified) -> Tensor:
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


def target_mask(requests: Sequence[ErasureRequest], client: int, samples: Identified) -> Tensor:
    """Which of the client's samples any of its `requests` names."""
    mask = torch.zeros(len(samples), dtype=torch.bool)
    for request in requests:
        if request.client == client:
            mask |= request.matches(samples)
    return mask


def withdrawn_mask(requests: Sequence[ErasureRequest], client: int, samples: Identified) -> Tensor:
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


def _number(word: int | str, what: str) -> int:
    """The number that a word is, short enough for a tensor."""
    if not isinstance(word, str):
        return word
    if not re.fullmatch(r"-?[0-9]{1,18}", word.strip()):
        raise InputError(f"'{word[:40]}' is no {what}; give a whole number.")
    return int(word)


def parse_feature(text: str) -> Feature:
    """The feature that a user wrote: "7" for a column, "11,11,6,6" for a patch.

    >>> parse_feature("7"), parse_feature("11,11,6,6")
    ((7,), (11, 11, 6, 6))
    """
    try:
        return check_form(tuple(int(word) for word in text.split(",")))
    except ValueError:
        raise InputError(
            f"'{text}' is no feature; give the number of a column, or a patch as top,left,height,width."
        ) from None


def check_form(feature: Sequence[int]) -> Feature:
    """Refuse what is neither a column nor a patch."""
    if len(feature) not in (1, 4) or any(type(number) is not int or number < 0 for number in feature):
        said = ",".join(str(number) for number in feature)
        raise InputError(
            f"'{said}' is no feature; give the number of a column, or a patch as top,left,height,width, from 0."
        )
    if len(feature) == 4 and 0 in feature[2:]:
        raise InputError(f"The patch {','.join(map(str, feature))} is empty; its height and width must be above 0.")
    return tuple(feature)


def check_feature(feature: Feature, shape: Sequence[int]) -> None:
    """Refuse a feature that samples of this shape do not have."""
    if len(feature) == 1:
        if len(shape) != 1:
            raise InputError(
                f"The samples have the shape {tuple(shape)} and no columns; name a patch as top,left,height,width."
            )
        if feature[0] >= shape[0]:
            raise InputError(f"Column {feature[0]} does not exist; the table has columns 0 to {shape[0] - 1}.")
        return
    if len(shape) != 3:
        raise InputError(f"The samples have the shape {tuple(shape)} and are no images; name a column by its number.")
    top, left, height, width = feature
    if top + height > shape[1] or left + width > shape[2]:
        raise InputError(
            f"The patch {top},{left},{height},{width} reaches beyond the image of {shape[1]}x{shape[2]} pixels."
        )


def describe_feature(feature: Feature) -> str:
    """In words.

    >>> describe_feature((7,)), describe_feature((11, 12, 6, 5))
    ('column 7', 'the 6x5 patch at 11,12')
    """
    if len(feature) == 1:
        return f"column {feature[0]}"
    top, left, height, width = feature
    return f"the {height}x{width} patch at {top},{left}"


def feature_mask(feature: Feature, shape: Sequence[int]) -> Tensor:
    """Boolean, of a sample's shape: where the feature lies."""
    mask = torch.zeros(tuple(shape), dtype=torch.bool)
    if len(feature) == 1:
        mask[feature[0]] = True
    else:
        top, left, height, width = feature
        mask[:, top : top + height, left : left + width] = True
    return mask


def joint_mask(features: Iterable[Feature], shape: Sequence[int]) -> Tensor:
    """Where any of the features lies."""
    mask = torch.zeros(tuple(shape), dtype=torch.bool)
    for feature in features:
        mask |= feature_mask(feature, shape)
    return mask


def covers(features: Iterable[Feature], feature: Feature) -> bool:
    """Whether all of a feature lies in others: blank those, and it is blank.

    >>> covers([(2, 2, 4, 2), (2, 4, 4, 2)], (3, 3, 2, 2)), covers([(2, 2, 4, 2)], (3, 3, 2, 2)), covers([(7,)], (8,))
    (True, False, False)
    """
    if len(feature) == 1:
        return feature in features
    patches = [other for other in features if len(other) == 4]
    height = max((top + height for top, _, height, _ in patches), default=0)
    width = max((left + width for _, left, _, width in patches), default=0)
    if feature[0] + feature[2] > height or feature[1] + feature[3] > width:
        return False
    shape = (1, height, width)
    return not bool((feature_mask(feature, shape) & ~joint_mask(patches, shape)).any())


def overlap(one: Feature, other: Feature) -> bool:
    """Whether two features have something in common.

    >>> overlap((2, 2, 4, 2), (3, 3, 2, 2)), overlap((2, 2, 4, 2), (2, 4, 4, 2)), overlap((7,), (7,))
    (True, False, True)
    """
    if len(one) != 4 or len(other) != 4:
        return one == other
    return all(one[i] < other[i] + other[i + 2] and other[i] < one[i] + one[i + 2] for i in (0, 1))
