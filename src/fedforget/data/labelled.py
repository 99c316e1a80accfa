"""The check every loader shares: as many labels as samples, and every label a known class."""

from __future__ import annotations

import torch
from torch import Tensor

from fedforget.data.samples import Samples
from fedforget.errors import InputError


def labelled_samples(features: Tensor, labels: Tensor, classes: int, source: object, first_id: int = 0) -> Samples:
    """Samples with consecutive ids; a mistake is reported as one of `source`, the file or array it came from."""
    if len(features) != len(labels):
        raise InputError(f"{source} has {len(features)} samples but {len(labels)} labels; give one label per sample.")
    if len(labels) == 0:
        raise InputError(f"{source} holds no samples; give at least one.")
    labels = labels.to(torch.int64)
    odd = (labels < 0) | (labels >= classes)
    if bool(odd.any()):
        raise InputError(
            f"{source} has the label {int(labels[odd][0])}, but its {classes} classes are numbered 0 to {classes - 1}; "
            "correct the labels."
        )
    return Samples.of(features, labels, first_id)
