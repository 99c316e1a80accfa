"""Several models trained at once at a client: one tensor for each name, [models, ...], and one step moves them all.

Each model has a seed, hence a batch order, of its own; the data and the rest of the schedule they share. The result is
that of training them one after another (`training.py`) up to rounding, since sums over a stack have another order: it
is not the same bits. Rounding stays small only as long as the network lets it: a ReLU that it pushes across zero, or
many normalisations, can carry it to any digit, as a change of the thread count would. In double precision both ways
agree to 1e-15 after a round.

It pays where a small model leaves the hardware waiting, which is on a GPU; there, as in `captured.py`, a whole step is
recorded once and replayed for every full batch, in bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedforget.data.samples import Samples
from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.federation.aggregation import average
from fedforget.federation.client import Client
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, participants
from fedforget.federation.seam import Federation
from fedforget.federation.sgd import momentum_step
from fedforget.federation.tasks import Reply, Task
from fedforget.federation.training import minibatches, set_training_mode
from fedforget.params import State, copy_state, first_non_finite, trainable
from fedforget.requests import ErasureRequest
from fedforget.seeds import derive_generator


class CannotStackError(FedForgetError):
    """A network passed `can_stack`, but its forward pass cannot be run for several models at once."""


def can_stack(model: nn.Module) -> bool:
    """Whether the layers let several models be trained as one. What shows only in the forward pass (a branch that
    depends on the data, a draw of its own) is a `CannotStackError` of the training.

    Not with dropout, whose draws would be others than one after another; not with running statistics that are a plain
    mean over the batches (`momentum=None`), since the count of batches is read as one number; not with a parameter
    under two names, which a stack would take apart."""
    parameters = [list(model.named_parameters(remove_duplicate=alone)) for alone in (True, False)]
    if len(parameters[0]) != len(parameters[1]):
        return False
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            return False
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.momentum is None:
            return False
    return True


def gains_from_stacking(federation: Federation) -> bool:
    """Whether training together is the better way here. Not on a CPU: there the same bits are promised, and the gain
    depends on the network (with one thread and 4 models, the digits' CNN takes half the time, MNIST's a third more).
    Not where the clients are elsewhere, since nobody knows what they run on."""
    return isinstance(federation, LocalFederation) and federation.device.type == "cuda" and can_stack(federation.model)


def stack(states: Sequence[Mapping[str, Tensor]]) -> State:
    """Models as one state of tensors [models, ...]."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def unstack(stacked: Mapping[str, Tensor]) -> list[State]:
    """The models of a stack, each in memory of its own."""
    models = len(next(iter(stacked.values())))
    return [{name: tensor[number].clone() for name, tensor in stacked.items()} for number in range(models)]


def train_stacked(
    federation: Federation,
    state: Mapping[str, Tensor],
    schedule: Schedule,
    seeds: Sequence[int],
    *,
    start: int = 0,
    exclude: Sequence[ErasureRequest] = (),
    on_round: Callable[[int, State], None] | None = None,
) -> State:
    """Rounds `start` to `schedule.rounds` - 1 of the stack `state`, model i with the seed `seeds[i]`: what `train` does
    for each. A client's weight is the same for every model, so FedAvg of the stack is FedAvg of each."""
    current = copy_state(state)
    for round in range(start, schedule.rounds):
        task = TrainStacked(
            seed=schedule.seed, threads=schedule.threads, round=round, seeds=tuple(seeds), epochs=schedule.epochs,
            lr=schedule.lr_of(round), momentum=schedule.momentum, batch_size=schedule.batch_size,
            exclude=tuple(exclude),
        )  # fmt: skip
        current = average(federation.ask(task, current, participants(federation, exclude)))
        if on_round is not None:
            on_round(round + 1, current)
    return current


@dataclass(frozen=True, kw_only=True)
class TrainStacked(Task):
    """`Train` for a stack: the state holds tensors [models, ...], and so does the reply. `seeds` has one for each."""

    returns = "tensors"

    round: int
    seeds: tuple[int, ...] = ()
    epochs: int = 1
    lr: float = 0.01
    momentum: float = 0.9
    batch_size: int = 64
    exclude: tuple[ErasureRequest, ...] = ()

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        if not self.seeds or any(tensor.shape[:1] != (len(self.seeds),) for tensor in state.values()):
            raise InputError(f"The stack must hold one model for each seed, but there are {len(self.seeds)} seeds.")
        samples = client.retained(self.exclude)
        if len(samples) == 0:
            return Reply(client.index, numbers={"samples": 0.0})
        try:
            step = self._train(state, client, samples)
        except (RuntimeError, ValueError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise CannotStackError(f"The network cannot be trained as a stack ({reason[:200]}).") from error
        trained = copy_state(step.state)
        broken = first_non_finite(trained)
        if broken is not None:
            raise DivergedError(
                f"Training {len(self.seeds)} models in round {self.round} at client {client.index}",
                f"parameter '{broken}' is no longer finite; lower the learning rate ({self.lr:g}).",
            )
        evaluations = float(len(samples) * self.epochs * len(self.seeds))
        return Reply(
            client.index,
            tensors=trained,
            numbers={"samples": float(len(samples)), "loss": float(step.losses.sum()) / evaluations},
            gradient_evaluations=evaluations,
        )

    def _train(self, state: Mapping[str, Tensor], client: Client, samples: Samples) -> StackedStep:
        set_training_mode(client.model, min(len(samples), self.batch_size) == 1)
        features, labels = samples.features.to(client.device), samples.labels.to(client.device)
        recorded = client.device.type == "cuda" and len(samples) >= self.batch_size > 1
        if recorded:
            step = recorded_step(self, state, client, features, labels)
            step.load(state)
        else:
            step = StackedStep(client.model, state, self.lr, self.momentum)
        # Named as in `training.py`: each model sees the batches that it would see alone.
        orders = [derive_generator(seed, "train", self.round, "client", client.index, "order") for seed in self.seeds]
        for _ in range(self.epochs):
            epochs = [minibatches(len(samples), self.batch_size, order, client.device) for order in orders]
            for batches in zip(*epochs, strict=True):
                batch = torch.stack(batches)
                if recorded and batch.shape[1] == self.batch_size:
                    step.replay(features, labels, batch)
                else:
                    step(client, features[batch.flatten()], labels[batch])
        return step


class StackedStep:
    """An SGD step of every model at once, in memory of its own, over which it can be recorded."""

    def __init__(self, model: nn.Module, state: Mapping[str, Tensor], lr: float, momentum: float) -> None:
        self.state = copy_state(state)
        self._moved = [self.state[name].requires_grad_() for name in trainable(model)]
        self._velocity = [torch.zeros_like(parameter) for parameter in self._moved]
        self._lr, self._momentum = lr, momentum
        first = self._moved[0]
        self.losses = torch.zeros(len(first), device=first.device)
        """Each model's sum of losses since `load`."""

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """A new round begins: other weights, no velocity."""
        for name, tensor in state.items():
            self.state[name].copy_(tensor)
        torch._foreach_zero_(self._velocity)
        self.losses.zero_()

    def __call__(self, client: Client, features: Tensor, labels: Tensor) -> None:
        """One step. `labels` are [models, batch]; `features` are raw and of all models' batches behind each other."""
        model, (models, size) = client.model, labels.shape

        def forward(state: State, x: Tensor) -> Tensor:
            return functional_call(model, state, (x,))

        with sdpa_kernel(SDPBackend.MATH):  # the fused attentions know no stack on a CPU
            # Running statistics are part of the stack: layers update their own slice of it, in place.
            logits = vmap(forward)(self.state, client.inputs(features).unflatten(0, (models, size))).flatten(0, 1)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            losses = F.cross_entropy(logits, labels.flatten(), reduction="none").unflatten(0, (models, size)).mean(1)
            # No model's loss depends on another's weights: the gradient of the sum is that of each.
            gradients = torch.autograd.grad(losses.sum(), self._moved, allow_unused=True, materialize_grads=True)
        momentum_step(self._moved, self._velocity, gradients, self._lr, self._momentum)
        self.losses += losses.detach() * size

    def record(self, client: Client, features: Tensor, labels: Tensor, size: int) -> None:
        """Record a step on batches of this size as a CUDA graph. That runs it, so load the weights afterwards."""
        models = len(self.losses)
        self._features = torch.zeros((models * size, *features.shape[1:]), dtype=features.dtype, device=features.device)
        self._labels = torch.zeros((models, size), dtype=labels.dtype, device=features.device)

        def step() -> None:
            with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
                self(client, self._features, self._labels)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            step()

    def replay(self, features: Tensor, labels: Tensor, batch: Tensor) -> None:
        """The recorded step, on the samples at the positions `batch` [models, size]."""
        torch.index_select(features, 0, batch.flatten(), out=self._features)
        torch.index_select(labels, 0, batch.flatten(), out=self._labels.view(-1))
        self._graph.replay()


_STEPS: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], StackedStep]] = WeakKeyDictionary()


def recorded_step(
    task: TrainStacked, state: Mapping[str, Tensor], client: Client, features: Tensor, labels: Tensor
) -> StackedStep:
    """The step for this model and these numbers, recorded on first use: recording takes as long as many steps."""
    known = _STEPS.setdefault(client.model, {})
    key = (
        len(task.seeds), task.batch_size, task.lr, task.momentum, client.normalisation,
        features.shape[1:], features.dtype, labels.dtype,
    )  # fmt: skip
    if key not in known:
        step = StackedStep(client.model, state, task.lr, task.momentum)
        step.record(client, features, labels, task.batch_size)
        known[key] = step
    return known[key]
