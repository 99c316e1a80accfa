"""A feature as the target: give the weights that read it back to chance, as far as it was the feature that taught them.

Retrain's model is not deaf to a feature that it never saw: its weights that read it are as they were drawn. So

    r_j = sum over askers k of n_k E_x ||J_j(x) - J_j(x0)||^2  /  sum over all k of n_k E_x ||J_j(x)||^2,    at most 1
    theta_j <- (1 - r_j) theta_j + r_j theta0_j                       then a part of training, with the feature blanked

J_j(x) is the derivative of the logits by weight j, x0 is x with the feature blanked, theta0 a fresh draw. r_j is how
much of what weight j does depends on the withdrawn feature: 1 for what reads nothing else, if everybody withdraws it;
about n_k / n of that if one client does, since what the others' data supports is not its own to take; 0 where the
feature makes no difference. E ||J_j||^2 is taken along random signs u of the logits, E (u . J_j)^2.

Where a column of a table is read by weights of its own (those of a linear first layer), all that was learnt of it came
through them: r_j = 0 for every other weight. Not in the paper, which knows no feature targets;
docs/decisions/features.md says what else was tried."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.federation.rounds import participants, train_part
from fedforget.federation.tasks import Reply, TargetTask
from fedforget.methods.checks import finite
from fedforget.methods.fedaf.extensions.planning import Plan
from fedforget.methods.fisher import derivatives
from fedforget.methods.negation import first_kernel
from fedforget.models import fresh_copy
from fedforget.params import State, copy_state, state_of, trainable, unflatten, weight_count
from fedforget.requests import ErasureRequest, withdrawn_features
from fedforget.seeds import derive_generator, derive_seed

REBUILDING = 0.2
"""How long the model trains on without the feature, as a part of the training it once took."""
NUMBERS_AT_ONCE = 2**24
"""Per-sample derivatives are made for so many samples at a time as fit into this."""


def forget_features(plan: Plan, state: State) -> State:
    """The model without the features that the plan's requests name. Each client reads them in `sketch_samples` of its
    samples at most, and trains on over `recovery_min_samples` of them at least."""
    federation, schedule, settings = plan.federation, plan.schedule, plan.settings
    limit = None if settings.sketch_samples is None else int(settings.sketch_samples)
    with federation.stage("forgetting"):
        task = schedule.about(ReadFeatures, plan.requests, plan.served, samples=limit)
        sums: State = {}
        for reply in federation.ask(task, state, participants(federation, plan.exclude)):
            for name, part in finite(reply, "FedAF").items():
                sums[name] = sums[name] + part if name in sums else part
        r = share(sums["by_feature"], sums["read"])
        columns = column_weights(federation.model, state, plan.requests, schedule.seed)
        r = r if columns is None else r * columns.to(r.device)
        fresh = derive_seed(schedule.seed, "fedaf", "fresh")
        current = redrawn(federation.model, state, r, fresh)
    with federation.stage("rebuilding"):
        return train_part(
            federation, current, schedule, REBUILDING, plan.exclude, "without the feature",
            min_samples=settings.recovery_min_samples,
        )  # fmt: skip


def share(by_feature: Tensor, read: Tensor) -> Tensor:
    """r. A weight that does nothing at all keeps its value."""
    return torch.where(read > 0, by_feature / read.clamp(min=1e-300), torch.zeros_like(read)).clamp(max=1.0)


def column_weights(model: nn.Module, state: State, requests: Sequence[ErasureRequest], seed: int) -> Tensor | None:
    """Which weights read the withdrawn columns of a table, if those columns of a linear first layer are all that reads
    them: with 0 there the network says the same, to the bit, whatever the columns hold. Else None."""
    try:
        name = first_kernel(model)
        kernel = trainable(model)[name]
        columns = sorted({column for request in requests for (column,) in [request.feature]})
        if kernel.dim() != 2 or columns[-1] >= kernel.shape[1]:
            return None
        weights = copy_state(state, "cpu")
        deaf = {**weights, name: weights[name].index_fill(1, torch.tensor(columns), 0.0)}
        x, other = torch.randn((2, 16, kernel.shape[1]), generator=derive_generator(seed, "features", "columns"))
        other = torch.where(torch.isin(torch.arange(kernel.shape[1]), torch.tensor(columns)), other, x)
        network = copy.deepcopy(model).cpu().eval()  # an index that is out of range spoils a GPU for the whole process
        with torch.no_grad():
            said = [functional_call(network, deaf, (values.to(weights[name]),)) for values in (x, other)]
    except (InputError, LookupError, ValueError, RuntimeError, TypeError, AssertionError):
        return None  # a patch, no such layer, a frozen one, or a network that takes other values than these
    if not torch.equal(*said):
        return None
    mask = {name: torch.zeros(parameter.shape, dtype=torch.bool) for name, parameter in trainable(model).items()}
    mask[name][:, columns] = True
    return torch.cat([part.flatten() for part in mask.values()])


def redrawn(model: nn.Module, state: State, r: Tensor, seed: int) -> State:
    """(1 - r_j) theta_j + r_j theta0_j on the trainable weights."""
    fresh = state_of(fresh_copy(model, seed))
    current = dict(state)
    for name, part in unflatten(r, trainable(model)).items():
        part = part.to(state[name])
        current[name] = (1.0 - part) * state[name] + part * fresh[name].to(state[name])
    return current


@dataclass(frozen=True, kw_only=True)
class ReadFeatures(TargetTask):
    """n_k E ||J_j(x)||^2 and n_k E ||J_j(x) - J_j(x0)||^2 at one client, over `samples` of its samples at most; the
    latter is 0 at a client that withdraws nothing."""

    returns = "tensors"

    samples: int | None = None

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        asks = any(request.client == client.index for request in self.requests)
        pool = client.target(self.requests, self.served) if asks else client.retained(self.served)
        whole = len(pool)
        if whole == 0:
            return Reply(client.index)
        generator = derive_generator(self.seed, "features", "client", client.index, "subsample")
        pool = pool.select(torch.randperm(whole, generator=generator)[: self.samples])
        mask = withdrawn_features(self.requests, client.index, pool.features.shape[1:])
        without = client.normalisation.blanked(pool.features, mask)
        model = client.load(state).eval()
        signs = 2.0 * torch.randint(0, 2, (len(pool), client.classes), generator=generator) - 1.0
        size = weight_count(model)
        by_feature, read = (torch.zeros(size, dtype=torch.float64, device=client.device) for _ in range(2))
        for batch in torch.arange(len(pool)).split(max(1, min(32, NUMBERS_AT_ONCE // size))):
            u, place = signs[batch].to(client.device), batch.to(pool.features.device)
            rows = signed_derivatives(model, client.inputs(pool.features[place]), u)
            read += rows.double().square().sum(dim=0)
            if asks:
                rows -= signed_derivatives(model, client.inputs(without[place]), u)
                by_feature += rows.double().square().sum(dim=0)
        return Reply(
            client.index,
            tensors={"by_feature": by_feature * (whole / len(pool)), "read": read * (whole / len(pool))},
            numbers={"samples": float(whole)},
            gradient_evaluations=float(len(pool) * (2 if asks else 1)),
        )


def signed_derivatives(model: nn.Module, x: Tensor, signs: Tensor) -> Tensor:
    """u . J(x) for each sample, [n, weights]."""
    rows = derivatives(model, lambda logits, u: (logits * u).sum(), x, signs)
    return torch.cat([derivative.flatten(1) for derivative in rows.values()], dim=1)
