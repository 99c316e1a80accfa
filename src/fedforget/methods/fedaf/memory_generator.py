"""The memory generator: harmless new labels for the target data (the paper's section 4.2).

A memory is a probability vector y~ for each target sample x. Training on (x, y~) overwrites what (x, y) taught:

    uniform     y~ = 1/C
    random      y~ ~ Dirichlet(1, ..., 1); for two classes this is the paper's [r, 1 - r], r ~ U(0, 1)
    teacher     y^ = 1/Q sum_i softmax(theta_i(x)), Q untrained copies of the network                 (Eq. 3)
    debiased    y~ = v y^ / |v y^|_1,  v = 1 + (sigma - 1) y                                          (Eq. 4)
    suppressed  y~ = softmax(z),  z = the current model's logits with the trained label's one set to the smallest
    reminded    y~ = softmax(theta_r(x)),  theta_r = theta* after amnesia and a reminder (`reminded_teacher`)

The last two are not in the paper (docs/decisions/memories.md; `extensions/recovery.py`). `suppressed` teaches what the
model itself believes apart from the trained label. `reminded`, the default, teaches what the other clients' data
supports without R."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import InputError
from fedforget.federation.client import Client
from fedforget.federation.evaluation import FORWARD_COST, predict
from fedforget.models import BATCH_NORMS, fresh_copy
from fedforget.params import copy_state
from fedforget.seeds import derive_generator, derive_seed

MemoryKind = Literal["uniform", "random", "teacher", "debiased", "suppressed"]
Sigma = float | Literal["auto", "literal"]


def generate_memory(
    kind: MemoryKind, model: nn.Module, target: Samples, client: Client, *, teachers: int, sigma: Sigma, seed: int
) -> tuple[Tensor, float]:
    """(memories [n, C], gradient evaluations spent) for the target samples; `model` is theta*, left as it is."""
    n, classes = len(target), client.classes
    labels = target.labels.to(client.device)
    if kind == "uniform":
        return torch.full((n, classes), 1.0 / classes, device=client.device), 0.0
    if kind == "random":
        concentration = torch.ones(n, classes)
        drawn = torch._sample_dirichlet(concentration, derive_generator(seed, "memory", "random", client.index))
        return drawn.to(client.device), 0.0
    if kind == "suppressed":
        logits = predict(model, target.features, client.normalisation, client.device)
        return suppress(logits, labels), FORWARD_COST * n
    if kind in ("teacher", "debiased"):
        teacher_seed = derive_seed(seed, "memory", "teachers", client.index)
        predictions = teacher_labels(model, target, client, teachers, teacher_seed)
        memory = predictions if kind == "teacher" else debias(predictions, labels, sigma)
        return memory, FORWARD_COST * n * teachers
    raise InputError(f"Memory '{kind}' is unknown; choose uniform, random, teacher, debiased or suppressed.")


def reminded_labels(teacher: Mapping[str, Tensor], target: Samples, client: Client) -> tuple[Tensor, float]:
    """(the reminded teacher's predictions for the target, gradient evaluations spent); the model keeps its weights."""
    weights = copy_state(client.model.state_dict())
    logits = predict(client.load(teacher), target.features, client.normalisation, client.device)
    client.load(weights)
    return F.softmax(logits, dim=1), FORWARD_COST * len(target)


def teacher_labels(model: nn.Module, target: Samples, client: Client, teachers: int, seed: int) -> Tensor:
    """y^ of Eq. 3: the mean prediction of `teachers` untrained copies, in evaluation mode. Only their BatchNorm uses
    each batch's own statistics, since running statistics of an untrained network say nothing."""
    total = torch.zeros(len(target), client.classes, device=client.device)
    for q in range(teachers):
        teacher = fresh_copy(model, derive_seed(seed, q)).to(client.device).eval()
        for module in teacher.modules():
            if isinstance(module, BATCH_NORMS):
                module.train()
        with torch.no_grad():
            parts = [teacher(client.inputs(part)) for part in _even_batches(target.features)]
        total += F.softmax(torch.cat(parts).float(), dim=1)[: len(target)]
    return total / teachers


def debias(predictions: Tensor, labels: Tensor, sigma: Sigma) -> Tensor:
    """y~ of Eq. 4. With `auto`, sigma = min(1, average weight / target weight) for each sample: it under-weights the
    target class exactly where the teachers favour it. `literal` is the quotient as the text has it, target / average.

    >>> debias(torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([0]), 0.0)
    tensor([[0.0000, 0.5000, 0.5000]])
    """
    at_target = predictions.gather(1, labels[:, None])
    average = predictions.mean(dim=1, keepdim=True)
    if sigma == "auto":
        weight = (average / at_target).clamp(max=1.0)
    elif sigma == "literal":
        weight = at_target / average
    else:
        weight = torch.full_like(at_target, float(sigma))
    weighted = predictions.scatter(1, labels[:, None], weight * at_target)
    return weighted / weighted.sum(dim=1, keepdim=True)


def suppress(logits: Tensor, labels: Tensor) -> Tensor:
    """softmax of the logits after the trained label's logit was lowered to the sample's smallest.

    >>> suppress(torch.tensor([[9.0, 1.0, 1.0]]), torch.tensor([0]))
    tensor([[0.3333, 0.3333, 0.3333]])
    """
    return F.softmax(logits.scatter(1, labels[:, None], logits.amin(dim=1, keepdim=True)), dim=1)


def _even_batches(features: Tensor, batch_size: int = 500) -> tuple[Tensor, ...]:
    """Batches of nearly equal size, so that no teacher sees a batch of one sample. A lone sample comes twice."""
    if len(features) == 1:
        features = torch.cat([features, features])
    return features.tensor_split(max(1, -(-len(features) // batch_size)))
