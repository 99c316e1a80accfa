"""The first audit: what a model knows of the target, and of everything else. Percentages throughout.

test_acc       accuracy on test data                     retained_acc   accuracy on everybody's D'
bd_acc         share of R still predicted as the label it was trained on (BD Acc; for a clean target, its accuracy)
bd_acc_test    the same on triggered test images: does the backdoor still open?
bd_acc_plain   the same on those test images without the trigger: how many get that label for other reasons
true_acc       share of R predicted as the class it really is
target_loss    mean cross entropy on R against the trained label
target_class_test_acc    accuracy on unseen test images of the target's class"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.audit.case import Case
from fedforget.audit.feature_sensitivity import about_features
from fedforget.data.backdoor import Backdoor
from fedforget.data.samples import Samples
from fedforget.federation.evaluation import Evaluation, counted, evaluate, predict
from fedforget.federation.rounds import further_round, run_round
from fedforget.federation.seam import Federation, thread_count
from fedforget.federation.tasks import Measure
from fedforget.params import distance
from fedforget.requests import ErasureRequest


@dataclass(frozen=True)
class Measures:
    """One model's figures. None where there is nothing to measure; never a number in its place."""

    test_acc: float | None
    bd_acc: float | None
    bd_acc_test: float | None
    bd_acc_plain: float | None
    true_acc: float | None
    target_loss: float | None
    retained_acc: float | None
    target_class_test_acc: float | None
    per_class: list[float | None]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    federation: Federation,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    test: Samples,
    *,
    served: Sequence[ErasureRequest] = (),
    backdoor: Backdoor | None = None,
    seed: int = 0,
    threads: int = 1,
) -> Measures:
    """Test data is measured here; R and D' are measured by the clients that hold them, and only counts come back."""
    task = Measure(seed=seed, threads=threads, requests=tuple(requests), served=tuple(served))
    target, retained = measure_clients(federation, state, task)
    model = federation.model
    with thread_count(threads):
        model.load_state_dict(dict(state))
        logits = predict(model, test.features, federation.normalisation, federation.device).cpu()
        triggered = plain = None
        if backdoor is not None:
            triggered, plain = (
                evaluate(model, caught, federation.normalisation, federation.device)
                for caught in (backdoor.triggered_test(test), backdoor.caught(test))
            )
    if about_features(requests):  # the samples stay: what the model says of them is no memory, its sensitivity is
        target = Evaluation()
    labels = {request.label for request in requests if request.label is not None}
    per_class = accuracy_by_class(logits, test, federation.classes)
    return Measures(
        test_acc=counted(logits, test).accuracy,
        bd_acc=share_as_trained(target),
        bd_acc_test=None if triggered is None else share_as_trained(triggered),
        bd_acc_plain=None if plain is None else share_as_trained(plain),
        true_acc=share_as_true(target),
        target_loss=target.mean_loss,
        retained_acc=retained.accuracy,
        target_class_test_acc=per_class[labels.pop()] if len(labels) == 1 else None,
        per_class=per_class,
    )


def measure_now_and_later(
    case: Case, state: Mapping[str, Tensor], test: Samples, backdoor: Backdoor | None = None
) -> tuple[Measures, Measures]:
    """The model as it is, and after one further ordinary round without the target: what is only suppressed
    comes back there."""

    def figures(weights: Mapping[str, Tensor]) -> Measures:
        return measure(
            case.federation, weights, case.requests, test,
            served=case.served, backdoor=backdoor, seed=case.schedule.seed, threads=case.schedule.threads,
        )  # fmt: skip

    further = further_round(case.schedule, case.schedule.rounds, case.exclude)
    return figures(state), figures(run_round(case.federation, state, further))


def measure_clients(
    federation: Federation, state: Mapping[str, Tensor], task: Measure
) -> tuple[Evaluation, Evaluation]:
    """(on R, on D') over all clients. What earlier requests erased (the task's `served`) is in neither."""
    target = retained = Evaluation()
    for reply in federation.ask(task, state):
        target = target + Evaluation.from_numbers(reply.numbers, "target")
        retained = retained + Evaluation.from_numbers(reply.numbers, "retained")
    return target, retained


def accuracy_by_class(logits: Tensor, samples: Samples, classes: int) -> list[float | None]:
    """For each true class, in percent; None where there is no sample."""
    true = samples.true_labels.cpu()
    right = true[logits.argmax(1) == true] if len(true) else true
    pairs = zip(*(torch.bincount(of, minlength=classes).tolist() for of in (right, true)), strict=True)
    return [100.0 * hits / count if count else None for hits, count in pairs]


def share_as_trained(target: Evaluation) -> float | None:
    """Over the flipped samples if there are any (triggered samples of the flipped class prove nothing)."""
    if target.evidence:
        return 100.0 * target.flipped_hits / target.evidence
    return 100.0 * target.as_trained / target.count if target.count else None


def share_as_true(target: Evaluation) -> float | None:
    if target.evidence:
        return 100.0 * target.flipped_as_true / target.evidence
    return 100.0 * target.as_true / target.count if target.count else None


@dataclass(frozen=True)
class Distance:
    """How far a model is from Retrain: in weights (Euclidean), in predicted classes (share of test samples that differ,
    percent) and in predicted probabilities (mean KL(Retrain || model) on test data, nats)."""

    weights: float
    disagreement: float
    divergence: float


def distance_to(
    federation: Federation, state: Mapping[str, Tensor], oracle: Mapping[str, Tensor], test: Samples, threads: int = 1
) -> Distance:
    """Distance of `state` to the retrained model `oracle`."""
    with thread_count(threads):
        logits: list[Tensor] = []
        for weights in (oracle, state):
            federation.model.load_state_dict(dict(weights))
            logits.append(predict(federation.model, test.features, federation.normalisation, federation.device))
        p, q = (F.log_softmax(z.double(), dim=1) for z in logits)
        differ = (logits[0].argmax(1) != logits[1].argmax(1)).double().mean()
        divergence = F.kl_div(q, p, reduction="batchmean", log_target=True)
    return Distance(distance(oracle, state), 100.0 * float(differ), float(torch.clamp(divergence, min=0.0)))
