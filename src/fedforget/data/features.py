"""One feature of every sample (`requests.Feature`): a column of a table, or a patch of an image.

Blanked, it has one value in every sample, so it says nothing of any of them: the value that the normalisation turns
into 0, its mean (for an image to the nearest of 256 greys; floats are not normalised here, so a table comes z-scored,
and there it is 0 itself)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedforget.data.samples import Normalisation
from fedforget.errors import InputError
from fedforget.requests import Feature


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


def blanked(values: Tensor, mask: Tensor, normalisation: Normalisation) -> Tensor:
    """A copy of the samples' features `values` [n, ...] that says nothing where `mask` is true."""
    neutral = normalisation.neutral(values).expand(values.shape[1:])
    return torch.where(mask.to(values.device), neutral, values)


def shuffled(values: Tensor, mask: Tensor, generator: torch.Generator) -> Tensor:
    """A copy in which each sample has the values of another at `mask`, all of them of the same one."""
    other = values[torch.randperm(len(values), generator=generator).to(values.device)]
    return torch.where(mask.to(values.device), other, values)
