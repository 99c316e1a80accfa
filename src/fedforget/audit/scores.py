"""How much one example looks like training data to one model: a number per example, from logits and trained labels.

Every score has the same sign: higher = more like a member, better remembered. All but the entropy are increasing
functions of p_y and so order the examples of one model alike; they differ in where they spread them out. Shares and
probabilities are in [0, 1], and everything is computed in double precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.errors import InputError

MARGIN_LIMIT = 100.0


def loss_score(logits: Tensor, labels: Tensor) -> Tensor:
    """log p_y, the cross entropy with its sign turned (Yeom et al. 2018, arXiv 1709.01604): [n], at most 0."""
    logits, labels = _checked(logits, labels)
    return F.log_softmax(logits, dim=1).gather(1, labels[:, None])[:, 0]


def entropy_score(logits: Tensor, labels: Tensor) -> Tensor:
    """sum_c p_c log p_c, the entropy with its sign turned (Song and Mittal 2021, arXiv 2003.10595): [n], in
    [-log classes, 0]. It does not look at the label: a sure mistake counts as remembered."""
    logits, labels = _checked(logits, labels)
    log_p = F.log_softmax(logits, dim=1)
    return (log_p.exp() * log_p).sum(1)


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """phi = f_y - log sum_{c != y} exp(f_c) = log(p_y / (1 - p_y)), the logit-scaled confidence (Carlini et al. 2022,
    arXiv 2112.03570), clipped to +-100 as KLoM does: [n].

    Unlike p_y it does not round to 1 and is close to normal over retrained models."""
    logits, labels = _checked(logits, labels)
    own = labels[:, None]
    others = logits.scatter(1, own, -torch.inf).logsumexp(1)
    return (logits.gather(1, own)[:, 0] - others).clamp(-MARGIN_LIMIT, MARGIN_LIMIT)


SCORES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "loss": loss_score,
    "entropy": entropy_score,
    "margin": margin,
}


def histogram(scores: Tensor, low: float, high: float, bins: int) -> Tensor:
    """How many scores lie in each of `bins` equal parts of [low, high): [bins] whole numbers, which are all that need
    leave a client. The range is agreed beforehand and not taken from the data; what lies outside counts in the nearest
    part, so that the counts sum to the number of scores."""
    if not low < high or bins < 1:
        raise InputError(f"A histogram needs low < high and at least one bin, not [{low}, {high}] in {bins}.")
    scores = finite(scores, 1, "scores")
    inner = low + (high - low) * torch.arange(1, bins, dtype=torch.float64) / bins
    return torch.bincount(torch.searchsorted(inner, scores, right=True), minlength=bins)


def finite(values: Tensor, dimensions: int, what: str) -> Tensor:
    """`values` in double precision on the CPU; an error where they have another shape or are not all numbers."""
    if values.dim() != dimensions:
        raise InputError(f"The {what} have {values.dim()} dimensions and need {dimensions}.")
    values = values.detach().to("cpu", torch.float64)
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"The {what} hold a value that is not a finite number; the model they come from diverged.")
    return values


def _checked(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    logits = finite(logits, 2, "logits")
    if labels.dim() != 1 or labels.is_floating_point() or len(labels) != len(logits):
        raise InputError(f"{len(logits)} rows of logits need as many whole numbers as labels.")
    labels = labels.detach().to("cpu", torch.int64)
    if len(labels) and logits.shape[1] < 2:
        raise InputError("A score needs logits of two classes or more.")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
        raise InputError(f"A label is outside 0 to {logits.shape[1] - 1}, the classes that the logits have.")
    return logits, labels
