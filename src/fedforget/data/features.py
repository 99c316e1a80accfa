"""One feature of every sample: a column of a table, or a patch of an image with all its channels.

A feature is a tuple of whole numbers from 0: (column,) or (top, left, height, width). Blanked, it has one value in
every sample, so it says nothing of any of them: the value that the normalisation turns into 0, its mean (for an image
to the nearest of 256 greys; floats are not normalised here, so a table comes z-scored, and there it is 0 itself)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fedforget.data.samples import Normalisation
from fedforget.errors import InputError

Feature = tuple[int, ...]


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


def describe_feature(feature: Feature) -> str:
    """In words.

    >>> describe_feature((7,)), describe_feature((11, 12, 6, 5))
    ('column 7', 'the 6x5 patch at 11,12')
    """
    if len(feature) == 1:
        return f"column {feature[0]}"
    top, left, height, width = feature
    return f"the {height}x{width} patch at {top},{left}"


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


def blanked(values: Tensor, mask: Tensor, normalisation: Normalisation) -> Tensor:
    """A copy of the samples' features `values` [n, ...] that says nothing where `mask` is true."""
    neutral = normalisation.neutral(values).expand(values.shape[1:])
    return torch.where(mask.to(values.device), neutral, values)


def shuffled(values: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor:
    """A copy in which each sample has the values of another at `mask`, all of them of the same one."""
    other = values[torch.randperm(len(values), generator=generator).to(values.device)]
    return torch.where(mask.to(values.device), other, values)
