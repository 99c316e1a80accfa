"""Whether the features of a model still hold the target: a fresh linear head on frozen features.

Forgetting can stop at the last layer: predictions change, while the features before it separate R by its trained label
as well as ever (linear probes of unlearned models, arXiv 2604.08271). A fresh head shows it. h(x) is the input of the
model's last linear layer; the head is ridge regression to one-hot labels, in closed form and float64:

    W = argmin ||H W - Y||^2 + lambda ||W||^2 = (H^T H + lambda I)^-1 H^T Y,      lambda = rho ||H||^2 / min(n, d)

The columns of H and Y are centred over the n samples that the head is fitted on, d is the number of features, and the
means are put back to predict. ||H||^2 / min(n, d) is the mean eigenvalue of H^T H that need not be 0, so neither the
scale nor the number of the features matters.

The head is fitted on half of R with the labels R was trained on, together with as many samples that the client retains,
and tested on the other half of R. The figure means nothing by itself, since good features serve unseen samples too:
compare it with Retrain's, not with 100 %. What is above Retrain's is memory in the features.

It has much to say where only a model that saw R can know its labels (mislabelled samples). It has little to say where
any features will do: a whole class that the client retains nothing of is told apart by an untrained network as well,
triggered or not. Then Retrain's figure is near 100 % too, and there is no room above it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.federation.evaluation import FORWARD_COST
from fedforget.federation.seam import Federation
from fedforget.federation.tasks import Reply, Task
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator

RIDGE = 0.1
"""rho. On digits a head does better on what the client retains the larger rho is, up to here and hardly beyond."""
FEWEST = 10
"""A half of fewer samples than this gives no figure."""
MOST = 4000
"""Of a larger target a random part of this size is looked at, since the features of all must fit into memory."""


@dataclass(frozen=True, kw_only=True)
class LinearProbe(Task):
    """The asking client fits a fresh head on the model's features and counts, on samples the head did not see, how many
    it gives the label they were trained on.

    Where that cannot be done (few samples, one label only, a model without a linear layer) the numbers are absent and a
    note says why. Where the client retains too little to test on, those numbers alone are absent."""

    at_target = True

    requests: tuple[ErasureRequest, ...]
    served: tuple[ErasureRequest, ...] = ()
    ridge: float = RIDGE
    fewest: int = FEWEST
    most: int = MOST

    def __post_init__(self) -> None:
        for name in ("ridge", "fewest", "most"):
            if not getattr(self, name) > 0:
                raise InputError(f"Probe setting '{name}' is {getattr(self, name)}, but it must be above 0.")

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        target = client.target(self.requests, self.served)
        target = self._some(target, client, "target", self.most)
        retained = client.retained((*self.served, *self.requests))
        retained = self._some(retained, client, "retained", len(target))
        half, kept_half = len(target) // 2, len(retained) // 2
        if half < self.fewest:
            why = f"a target of {len(target)} samples is too small, it takes {2 * self.fewest}."
            return Reply(client.index, notes=(_no_figures(client, why),))

        everything, n = Samples.concatenate([target, retained]), torch.arange(len(target) + len(retained))
        of_target, of_retained = n[: len(target)], n[len(target) :]
        order = [of_target[:half], of_retained[:kept_half], of_target[half:], of_retained[kept_half:]]
        samples, fitted = everything.select(torch.cat(order)), half + kept_half
        cost = FORWARD_COST * len(samples)
        labels, flipped = samples.labels.cpu(), (samples.labels != samples.true_labels).cpu()
        try:
            features = last_linear_inputs(client.load(state), samples.features, client.inputs)
            guess = ridge_predictions(features[:fitted], labels[:fitted], features[fitted:], client.classes, self.ridge)
        except InputError as error:
            return Reply(client.index, gradient_evaluations=cost, notes=(_no_figures(client, str(error)),))

        on_target, on_retained = (guess == labels[fitted:]).tensor_split([len(target) - half])
        flipped = flipped[fitted : fitted + len(on_target)]
        numbers = {
            "target/count": float(len(on_target)),
            "target/as_trained": float(on_target.sum()),
            "target/evidence": float(flipped.sum()),
            "target/flipped_hits": float(on_target[flipped].sum()),
        }
        notes: tuple[str, ...] = ()
        if len(on_retained) >= self.fewest:
            numbers |= {"retained/count": float(len(on_retained)), "retained/as_trained": float(on_retained.sum())}
        else:
            notes = (f"Client {client.index} retains too little to probe that too: {len(retained)} samples.",)
        return Reply(client.index, numbers=numbers, gradient_evaluations=cost, notes=notes)

    def _some(self, samples: Samples, client: Client, what: str, most: int) -> Samples:
        generator = derive_generator(self.seed, "probe", "client", client.index, what)
        return samples.select(torch.randperm(len(samples), generator=generator)[:most])


def _no_figures(client: Client, why: str) -> str:
    return f"There is no linear probe of client {client.index}: {why[0].lower()}{why[1:]}"


def ridge_predictions(features: Tensor, labels: Tensor, unseen: Tensor, classes: int, ridge: float) -> Tensor:
    """The labels that a head fitted on `features` and `labels` gives to the features `unseen` (the equation above).

    With more features than samples the same W comes from the n x n side: W = H^T (H H^T + lambda I)^-1 Y."""
    if len(labels.unique()) < 2:
        raise InputError("All its samples carry one label, so there is nothing to tell apart.")
    mean, prior = features.mean(dim=0), F.one_hot(labels, classes).double().mean(dim=0)
    h, y = features - mean, F.one_hot(labels, classes).double() - prior
    scale = float(h.square().sum())
    if not (math.isfinite(scale) and bool(torch.isfinite(unseen).all())):
        raise InputError("The model's features are not finite.")
    if scale <= torch.finfo(torch.float32).eps ** 2 * float(features.square().sum()):
        raise InputError("The model's features are the same for every sample.")
    n, d = h.shape
    shrinkage = ridge * scale / min(n, d) * torch.eye(min(n, d), dtype=h.dtype)
    head = (
        torch.linalg.solve(h.T @ h + shrinkage, h.T @ y) if d <= n else h.T @ torch.linalg.solve(h @ h.T + shrinkage, y)
    )
    scores: Tensor = (unseen - mean) @ head + prior
    return scores.argmax(dim=1)


@dataclass(frozen=True)
class Probe:
    """What a fresh head reads from a model's features, over all clients that ask; percent.

    `target_acc`: share of R's other half that gets the label it was trained on, over flipped samples where there are
    any. `retained_acc`: the share of the retained samples' other half. None where there is no figure; `notes` say why.
    `target_count`, `evidence` and `retained_count`: samples tested, and how many of R's carry a flipped label."""

    target_acc: float | None
    retained_acc: float | None
    target_count: int
    evidence: int
    retained_count: int
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "notes": list(self.notes)}


def linear_probe(
    federation: Federation,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    *,
    served: Sequence[ErasureRequest] = (),
    seed: int = 0,
    threads: int = 1,
    ridge: float = RIDGE,
) -> Probe:
    """The probe of `state`: every client that asks fits a head of its own, and the counts are added up."""
    task = LinearProbe(seed=seed, threads=threads, requests=tuple(requests), served=tuple(served), ridge=ridge)
    sums: dict[str, int] = {}
    notes: list[str] = []
    for reply in federation.ask(task, state, sorted({request.client for request in requests})):
        for name, count in reply.numbers.items():
            sums[name] = sums.get(name, 0) + int(count)
        notes += reply.notes
    judged, hits = ("evidence", "flipped_hits") if sums.get("target/evidence") else ("count", "as_trained")
    return Probe(
        target_acc=_percent(sums.get(f"target/{hits}", 0), sums.get(f"target/{judged}", 0)),
        retained_acc=_percent(sums.get("retained/as_trained", 0), sums.get("retained/count", 0)),
        target_count=sums.get("target/count", 0),
        evidence=sums.get("target/evidence", 0),
        retained_count=sums.get("retained/count", 0),
        notes=tuple(notes),
    )


def _percent(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


@torch.no_grad()
def last_linear_inputs(
    model: nn.Module, features: Tensor, inputs: Callable[[Tensor], Tensor], batch_size: int = 500
) -> Tensor:
    """H [n, d] in float64: what reaches the last `nn.Linear` that runs, for each sample, in evaluation mode."""
    reached: list[Tensor] = []

    def keep(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        reached[:] = [(args[0] if args else kwargs["input"]).clone()]  # a model may go on with it in place

    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in layers]
    rows: list[Tensor] = []
    model.eval()
    try:
        for part in features.split(batch_size):
            reached.clear()
            model(inputs(part))
            if not reached:
                raise InputError("The model runs no nn.Linear layer, so it has no features before one.")
            if len(reached[0]) != len(part):
                raise InputError("The model's last nn.Linear layer does not get one row for each sample.")
            rows.append(reached[0].flatten(1).double().cpu())
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(rows)
