"""What happens at the target client: train on new memories under the preserver (Algorithm 1).

The loss of a batch from the target R, with memories M (Eq. 13):

    L = L_M - L_R + (lambda/2) ||J^ (theta - theta*)||^2

    L_M = mean over x of CE(theta(x), y~)            towards the new memory
    L_R = mean over x of CE(theta(x), y)             away from the old one; - L_R takes one of three forms:

    ascent = none      0                             `overwrite`, our way: it has no ascent but in the amnesia
             plain     - CE(y)                       the paper; has no lower bound
             capped    - min(CE(y), cap)             the amnesia; a sample that is forgotten enough stops pushing

`forgetting_loss` is L_M - L_R. The third term is the preserver's (`Forget._forget`): with the setting `penalty` =
gradient, the paper's, its gradient is added to theirs; with `proximal`, ours, its step follows theirs. lambda is
divided by n with the setting `normalise`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import DivergedError, InputError
from fedforget.federation.captured import Gradient, gradient_of
from fedforget.federation.client import Client
from fedforget.federation.evaluation import FORWARD_COST, predict
from fedforget.federation.layout import for_convolutions
from fedforget.federation.sgd import SGD, length_of
from fedforget.federation.tasks import Reply
from fedforget.federation.training import minibatches
from fedforget.methods.fedaf.extensions.planning import only_from
from fedforget.methods.fedaf.extensions.principal import PrincipalRows
from fedforget.methods.fedaf.knowledge_preserver import DiagonalPreserver, Preserver, SketchPreserver
from fedforget.methods.fedaf.memory_generator import generate_memory, reminded_labels
from fedforget.methods.fedaf.sketch import Jacobian, Sketch
from fedforget.methods.fedaf.sketching import SKETCH_KEY, SketchTask, sketch_at_client, sketch_samples
from fedforget.methods.fisher import fisher_diagonal
from fedforget.params import State, digest, first_non_finite, state_of, trainable, weight_count
from fedforget.seeds import derive_generator, seeded_globally

HALVINGS = 5
"""How finely a last step that went too far is taken back."""
LONGEST_STEP = 10.0
"""A gradient moves the weights by no more than so many times `step_length`; one that would lowers the learning rate. On
a model that overfits, retained samples' gradients are short, so the rate is high, while the target's are long."""
TEACHER_KEY = "fedaf.teacher."
"""Under names that begin so, the reminded teacher's weights do."""


def forgetting_loss(
    logits: Tensor, memory: Tensor, labels: Tensor, ascent: Literal["none", "plain", "capped"], cap: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(L_M - L_R as it is minimised, L_M, L_R) for one batch; the penalty is the preserver's."""
    log_p = F.log_softmax(logits, dim=1)
    towards = -(memory * log_p).sum(dim=1)
    old = -log_p.gather(1, labels[:, None])[:, 0]
    if ascent == "plain":
        away = -old
    elif ascent == "capped":
        away = -old.clamp(max=cap)
    else:
        away = torch.zeros_like(old)
    return (towards + away).mean(), towards.mean(), old.mean()


@dataclass(frozen=True, kw_only=True)
class Forget(SketchTask):
    """The whole local forgetting as one message: memory, sketch (unless one came along) and forgetting.

    With `amnesia` the result is no model to keep but the teacher that is to be reminded: see `memory_generator`."""

    at_target = True
    returns = "model"
    counts_samples = True
    keeps = (Sketch, PrincipalRows)

    amnesia: bool = False

    def beside(self, name: str, tensor: Tensor, model: nn.Module) -> Tensor | None:
        weights: Mapping[str, Tensor] = model.state_dict()
        if name.startswith(TEACHER_KEY) and name.removeprefix(TEACHER_KEY) in weights:
            return weights[name.removeprefix(TEACHER_KEY)].to("meta")
        if name == f"{SKETCH_KEY}.count":
            return torch.empty((), dtype=torch.int64, device="meta")
        if name == SKETCH_KEY and tensor.dim() == 2:
            return torch.empty(len(tensor), weight_count(model), dtype=self.settings.dtype, device="meta")
        return None

    def run(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        with only_from(client.model, self.settings.first_moved):
            return self._serve(state, client)

    def _serve(self, state: Mapping[str, Tensor], client: Client) -> Reply:
        weights = {name: tensor for name, tensor in state.items() if not name.startswith((SKETCH_KEY, TEACHER_KEY))}
        target = client.target(self.requests, self.served)
        if len(target) == 0:
            raise InputError(f"Client {client.index} has nothing to forget: the target is empty.")
        clock = _Clock(client.device)
        model = client.load(weights)

        batches = self._batches(len(target), client)
        memory, memory_evaluations = self._memory(state, target, client, batches)
        clock.stop("memory")
        preserver, lr, sketch_evaluations, stored = self._preserver(state, client)
        clock.stop("sketch")
        unstable = self._unstable(preserver, lr)
        remedy = unstable or ("" if self.settings.lr else f"its learning rate was {lr:.2g}; set a smaller step_length")
        with seeded_globally(client.device, self.seed, "forget", "client", client.index, "dropout"):
            curves = self._forget(client, target, batches, memory, preserver, lr, remedy)
        forgotten = state_of(model)
        clock.stop("memory" if self.amnesia else "forgetting")

        broken = first_non_finite(forgotten)
        if broken is not None:
            why = f" ({remedy})" if remedy else ""
            raise DivergedError(self._name, f"parameter '{broken}' is no longer finite{why}.")
        return Reply(
            client.index,
            tensors=forgotten,
            numbers={"samples": float(len(client.samples)), "target": float(len(target))},
            curves=curves,
            gradient_evaluations=memory_evaluations + sketch_evaluations + sum(curves["samples"]),
            seconds=clock.seconds,
            stored_bytes=stored,
            notes=(f"It survived, but {unstable}.",) if unstable else (),
        )

    @property
    def _name(self) -> str:
        return "The teacher's amnesia" if self.amnesia else "The forgetting step"

    def _batches(self, n: int, client: Client) -> list[Tensor]:
        """Which of the target's samples each step takes, in the order of the steps."""
        a_pass = -(-n // self.settings.batch_size)
        steps = max(self.settings.min_steps, math.ceil(float(self.settings.epochs) * a_pass))
        generator = derive_generator(self.seed, "forget", "client", client.index, "order")
        batches: list[Tensor] = []
        while len(batches) < steps:
            batches += minibatches(n, self.settings.batch_size, generator, client.device)
        return batches[:steps]

    def _memory(
        self, state: Mapping[str, Tensor], target: Samples, client: Client, batches: Sequence[Tensor]
    ) -> tuple[Tensor, float]:
        """New labels for those of the target's samples that a step meets, and the gradient evaluations they took."""
        seen = torch.cat(list(batches)).unique()
        met = target if len(seen) == len(target) else target.select(seen.to(target.ids.device))
        settings = self.settings
        if settings.memory == "reminded":
            teacher = {n.removeprefix(TEACHER_KEY): t for n, t in state.items() if n.startswith(TEACHER_KEY)}
            labels, evaluations = reminded_labels(teacher, met, client)
        else:
            labels, evaluations = generate_memory(
                settings.memory, client.model, met, client,
                teachers=settings.teachers, sigma=settings.sigma, seed=self.seed,
            )  # fmt: skip
        return labels.new_zeros(len(target), labels.shape[1]).index_copy_(0, seen, labels), evaluations

    def _preserver(self, state: Mapping[str, Tensor], client: Client) -> tuple[Preserver | None, float, float, int]:
        """The preserver, the learning rate, the gradient evaluations it took, and the bytes it keeps."""
        settings, model = self.settings, client.model
        if settings.preserver == "none":
            assert settings.lr is not None, "settings without a preserver name a learning rate"
            return None, settings.lr, 0.0, 0
        anchor = {name: parameter.detach().clone() for name, parameter in trainable(model).items()}
        if settings.preserver == "diagonal":
            samples = sketch_samples(client, self)
            diagonal = fisher_diagonal(Jacobian(model, samples, client.inputs, settings.sketch_labels, self.seed))
            lr = self._learning_rate(float(diagonal.sum()))
            elastic = DiagonalPreserver(diagonal, anchor, strength=settings.strength, lr=lr)
            return elastic, lr, float(len(samples)), diagonal.numel() * diagonal.element_size()
        sketch, evaluations = self._sketch(state, client, anchor)
        lr = self._learning_rate(sketch.mean_square)
        keep = SketchPreserver(sketch, anchor, strength=settings.strength, lr=lr, normalise=settings.normalise)
        return keep, lr, evaluations, sketch.bytes

    def _sketch(self, state: Mapping[str, Tensor], client: Client, anchor: State) -> tuple[Sketch, float]:
        """The sketch that came along, the one kept from the amnesia, or a new one; and what it took to make.

        The teacher's amnesia and the forgetting start from one anchor, so they share the sketch made there."""
        if SKETCH_KEY in state:
            return Sketch(state[SKETCH_KEY], int(state[f"{SKETCH_KEY}.count"])), 0.0
        known = (digest(anchor), self.served, self.requests, self.settings.sketch, self.seed)
        kept, sketch = client.kept.pop(SKETCH_KEY, (None, None))
        evaluations = 0.0
        if kept != known:
            sketch = sketch_at_client(client, self)
            evaluations = float(sketch.count)
        if self.amnesia:
            client.kept[SKETCH_KEY] = (known, sketch)
        return sketch, evaluations

    def _learning_rate(self, mean_square: float) -> float:
        """The setting's, or step_length / sqrt(tr F): `mean_square` is tr F, a gradient's mean squared length."""
        return self.settings.lr or float(self.settings.step_length) / max(mean_square, 1e-12) ** 0.5

    def _forget(
        self,
        client: Client,
        target: Samples,
        batches: Sequence[Tensor],
        memory: Tensor,
        preserver: Preserver | None,
        lr: float,
        remedy: str,
    ) -> dict[str, list[float]]:
        """SGD on the loss above: the penalty joins in the gradient (the paper), or its proximal step follows (ours)."""
        settings, model = self.settings, client.model
        parameters = trainable(model)
        features, labels = target.features.to(client.device), target.labels.to(client.device)
        jointly = settings.penalty == "gradient"
        # The paper bounds no step; bounded ones would hide that the penalty's own are unstable.
        longest = math.inf if settings.lr or jointly else LONGEST_STEP * float(settings.step_length) / lr
        optimiser = SGD(parameters.values(), lr, settings.momentum, longest)
        model.train(not settings.freeze_normalisation and min(len(target), settings.batch_size) > 1)
        curves: dict[str, list[float]] = {"samples": [], "memory_loss": [], "target_loss": [], "target_hits": []}
        learnt: list[float] = []
        gradient = self._gradient(client)
        before: State = {}
        for batch in batches:
            if self._stops(learnt):
                break
            gradients, figures = gradient(features[batch], memory[batch], labels[batch])
            if preserver is not None and jointly:
                gradients = torch._foreach_add(list(gradients), preserver.gradient(parameters))
            *seen, gap, length = torch.cat([figures, length_of(gradients)[None]]).tolist()  # one wait for a GPU
            for name, value in zip(curves, [float(len(batch)), *seen], strict=True):
                curves[name].append(value)
            learnt.append(gap)
            if not math.isfinite(seen[0] + seen[1]):
                why = f" ({remedy})" if remedy else ""
                raise DivergedError(self._name, f"the loss is no longer finite at step {len(learnt)}{why}.")
            if self._enough(curves["target_hits"], len(target)):
                if before:
                    curves["samples"][-1] += self._step_back(client, target, before, parameters)
                break
            before = {name: p.detach().clone() for name, p in parameters.items()} if settings.enough else {}
            optimiser.descend(gradients, length)
            if preserver is not None and not jointly:
                preserver.proximal_step(parameters)
        return curves

    def _step_back(self, client: Client, target: Samples, before: State, parameters: Mapping[str, Tensor]) -> float:
        """Where the last step went past `enough`, go back along it until so much of the target is recognised again. The
        gradient evaluations it took."""
        after = {name: parameter.detach().clone() for name, parameter in parameters.items()}

        @torch.no_grad()
        def go_to(part: float) -> None:
            for name, parameter in parameters.items():
                parameter.copy_(before[name].lerp(after[name], part))

        low, high, part = 0.0, 1.0, 1.0
        for _ in range(HALVINGS):
            logits = predict(client.model, target.features, client.normalisation, client.device)
            share = float((logits.argmax(1) == target.labels.to(logits.device)).float().mean())
            past = share < self.settings.enough
            if not past and high == 1.0:
                return FORWARD_COST * len(target)
            low, high = (low, part) if past else (part, high)
            part = (low + high) / 2
            go_to(part)
        go_to(low)
        return FORWARD_COST * len(target) * HALVINGS

    def _gradient(self, client: Client) -> Gradient:
        """Of a batch: the loss's gradient, and L_M, L_R, the hits and KL(y~ || model)."""
        ascent, cap, model = self.settings.ascent, self.settings.ascent_cap, client.model

        def loss(x: Tensor, memory: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            logits = model(for_convolutions(model, client.inputs(x))).float()
            total, towards, old = forgetting_loss(logits, memory, labels, ascent, cap)
            hits = (logits.detach().argmax(1) == labels).float().mean()
            entropy = torch.special.entr(memory).sum(dim=1).mean()
            return total, torch.stack([towards.detach(), old.detach(), hits, towards.detach() - entropy])

        return gradient_of(loss, model, ("forget", ascent, cap), half=True, record=not model.training)

    def _stops(self, learnt: list[float], window: int = 4) -> bool:
        """The stopping rule: over the last batches, the model's predictions are the memories, KL(y~ || model) ~ 0."""
        limit = self.settings.stop_below
        return limit is not None and len(learnt) >= window and sum(learnt[-window:]) / window <= limit

    def _enough(self, hits: Sequence[float], target: int) -> bool:
        """The target looks like data that was never seen: over the last batches, together as many samples as it has or
        four batches, no more of it is recognised."""
        latest = hits[-min(4, -(-target // self.settings.batch_size)) :]
        return bool(self.settings.enough and latest) and sum(latest) / len(latest) <= self.settings.enough

    def _unstable(self, preserver: Preserver | None, lr: float) -> str:
        """The check before the first step: are plain gradient steps of the penalty stable? If not, the sentence."""
        if preserver is None or self.settings.penalty != "gradient":
            return ""
        bound = 2.0 / max(preserver.largest_curvature(), 1e-300)
        if lr < bound:
            return ""
        return (
            f"the penalty's plain gradient step is stable only below a learning rate of {bound:.2g}, "
            f"and it is {lr:g}; use the proximal step"
        )


class _Clock:
    """Seconds by stage, at the client."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = {}
        self._device = device
        self._mark = time.perf_counter()

    def stop(self, stage: str) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._mark
        self._mark = now
