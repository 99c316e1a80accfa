"""FedQUIT: the global model, made to suppress the trained label, teaches its own copy (Mora et al., arXiv 2408.07587).

    z~  = theta*(x), with the trained label's logit set to the sample's smallest           the teacher, frozen
    L   = mean over x in R of KL(softmax(z~) || softmax(theta(x)))                          the student, from theta*

At the client that asks: Adam, at most 20 epochs, stopped once the loss has not fallen for 3 of them. The student
becomes the global model, then ordinary rounds on the retained data bring back what suffered. The teacher's prediction
is FedAF's memory `suppressed`. Where several clients ask, each starts from the student of the one before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fedforget.federation.client import Client
from fedforget.federation.cost import Meter
from fedforget.federation.evaluation import FORWARD_COST, predict
from fedforget.federation.rounds import Schedule, recover
from fedforget.federation.tasks import Reply, TargetTask
from fedforget.federation.training import minibatches, set_training_mode
from fedforget.methods.checks import check_numbers, finite
from fedforget.methods.fedaf.memory_generator import suppress
from fedforget.params import State, state_of, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator, seeded_globally


@dataclass(frozen=True)
class FedQUITSettings:
    lr: float = 1e-4
    epochs: int = 20
    patience: int = 3
    """Stop after so many epochs in a row without a new lowest loss."""
    batch_size: int = 64
    recovery_rounds: int = 1
    """Ordinary rounds after it; the paper trains on until the utility is back."""

    def __post_init__(self) -> None:
        check_numbers("FedQUIT", self, above_zero=["lr", "epochs", "patience", "batch_size"])


def distillation_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    """Mean KL(teacher || softmax(logits)) over the batch."""
    return F.kl_div(F.log_softmax(logits, dim=1), teacher, reduction="batchmean")


def forget_with_fedquit(
    federation: Meter,
    state: Mapping[str, Tensor],
    requests: Sequence[ErasureRequest],
    settings: FedQUITSettings,
    schedule: Schedule,
    served: Sequence[ErasureRequest] = (),
) -> tuple[State, dict[str, list[float]]]:
    """(the global model without the target, the student's loss by epoch)."""
    current = dict(state)
    losses: list[float] = []
    with federation.stage("forgetting"):
        for client in sorted({request.client for request in requests}):
            task = schedule.about(Distil, requests, served, settings=settings)
            (reply,) = federation.ask(task, current, [client])
            current = finite(reply, "FedQUIT")
            losses += reply.curves["distillation_loss"]
    with federation.stage("recovery"):
        recovered = recover(federation, current, schedule, settings.recovery_rounds, (*served, *requests))
    return recovered, {"distillation_loss": losses}


@dataclass(frozen=True, kw_only=True)
class Distil(TargetTask):
    """The student's training at the client that asks, on the target alone."""

    at_target = True
    returns = "model"

    settings: FedQUITSettings

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        settings, model = self.settings, client.load(state)
        target = client.target(self.requests, self.served)
        features, labels = target.features.to(client.device), target.labels.to(client.device)
        teacher = suppress(predict(model, features, client.normalisation, client.device), labels)

        set_training_mode(model, freeze_normalisation=True)
        optimiser = torch.optim.Adam(trainable(model).values(), lr=settings.lr)
        generator = derive_generator(self.seed, "fedquit", "client", client.index, "order")
        losses: list[float] = []
        with seeded_globally(client.device, self.seed, "fedquit", "client", client.index, "dropout"):
            while len(losses) < settings.epochs and not stalled(losses, settings.patience):
                total = torch.zeros((), device=client.device)
                for batch in minibatches(len(target), settings.batch_size, generator, client.device):
                    loss = distillation_loss(model(client.inputs(features[batch])), teacher[batch])
                    optimiser.zero_grad(set_to_none=True)
                    loss.backward()
                    optimiser.step()
                    total += loss.detach() * len(batch)
                losses.append(float(total) / len(target))
        return Reply(
            client.index,
            tensors=state_of(model),
            numbers={"samples": float(len(target))},
            curves={"distillation_loss": losses},
            gradient_evaluations=(FORWARD_COST + len(losses)) * len(target),
        )


def stalled(losses: Sequence[float], patience: int) -> bool:
    """Whether none of the last `patience` losses is lower than all before them.

    >>> stalled([3.0, 2.0, 2.1, 2.0, 2.2], patience=3), stalled([3.0, 2.0, 2.1, 2.0, 1.9], patience=3)
    (True, False)
    """
    return len(losses) > patience and min(losses[-patience:]) >= min(losses[:-patience])
