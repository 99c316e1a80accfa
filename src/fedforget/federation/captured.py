"""On a GPU, small batches leave the device waiting for the next kernel's launch. Here a whole training step (forward,
backward, SGD) is recorded once as a CUDA graph and replayed for every batch, in bfloat16 where that is safe.

The arithmetic is that of the plain loop in `training.py`: v <- momentum v + g, theta <- theta - lr v."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Normalisation
from fedforget.federation.layout import for_convolutions
from fedforget.federation.sgd import momentum_step

_STEPS: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], CapturedStep]] = WeakKeyDictionary()


class CapturedStep:
    """One SGD step on a batch of a fixed size, as a graph over this model's own parameter memory."""

    def __init__(
        self,
        model: nn.Module,
        normalisation: Normalisation,
        features: Tensor,
        labels: Tensor,
        batch_size: int,
        lr: float,
        momentum: float,
    ) -> None:
        self.batch_size = batch_size
        self._parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.velocity = [torch.zeros_like(p) for p in self._parameters]
        self._features = torch.zeros((batch_size, *features.shape[1:]), dtype=features.dtype, device=features.device)
        self._labels = torch.zeros((batch_size, *labels.shape[1:]), dtype=labels.dtype, device=features.device)
        self.loss = torch.zeros((), device=features.device)

        def step() -> None:
            with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
                x = for_convolutions(model, normalisation(self._features))
                loss = F.cross_entropy(model(x).float(), self._labels)
            gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True, materialize_grads=True)
            momentum_step(self._parameters, self.velocity, gradients, lr, momentum)
            self.loss += loss.detach() * batch_size

        self._graph = _recorded(step)

    def reset(self) -> None:
        """Forget the velocity and the summed loss: a new round begins."""
        torch._foreach_zero_(self.velocity)
        self.loss.zero_()

    def __call__(self, features: Tensor, labels: Tensor, batch: Tensor) -> None:
        torch.index_select(features, 0, batch, out=self._features)
        torch.index_select(labels, 0, batch, out=self._labels)
        self._graph.replay()


def captured_step(
    model: nn.Module,
    normalisation: Normalisation,
    features: Tensor,
    labels: Tensor,
    batch_size: int,
    lr: float,
    momentum: float,
    mode: str,
) -> CapturedStep:
    """The step for this model and these numbers, recorded on first use. Recording runs the step, so it changes the
    weights: ask for the step before the weights are loaded. `mode` names the layers' modes it was recorded in."""
    known = _STEPS.setdefault(model, {})
    key = (batch_size, lr, momentum, mode, features.shape[1:], features.dtype, labels.shape[1:], labels.dtype)
    if key not in known:
        known[key] = CapturedStep(model, normalisation, features, labels, batch_size, lr, momentum)
    return known[key]


Loss = Callable[..., tuple[Tensor, Tensor]]
"""From the tensors of a batch to what is differentiated, and to figures that someone wants to see."""
Gradient = Callable[..., tuple[Sequence[Tensor], Tensor]]
"""From the tensors of a batch to the gradient of each parameter, and to the figures."""
_GRADIENTS: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], CapturedGradient]] = WeakKeyDictionary()


class CapturedGradient:
    """The gradient of a loss over batches of fixed shapes, as a graph over this model's own parameter memory. What a
    call returns is overwritten by the next. Recording it changes no weight, so the loss must not either: a layer that
    keeps running statistics has to be in evaluation mode."""

    def __init__(self, loss: Loss, parameters: Sequence[Tensor], batch: Sequence[Tensor], half: bool) -> None:
        self._batch = [tensor.clone() for tensor in batch]
        made: dict[str, Sequence[Tensor]] = {}

        def step() -> None:
            with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False, enabled=half):
                total, figures = loss(*self._batch)
            gradients = torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True)
            made["all"] = (*gradients, figures.detach())

        self._graph = _recorded(step)
        *self._gradients, self._figures = made["all"]

    def __call__(self, *batch: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        for place, tensor in zip(self._batch, batch, strict=True):
            place.copy_(tensor)
        self._graph.replay()
        return self._gradients, self._figures


def gradient_of(
    loss: Loss,
    model: nn.Module,
    parameters: Mapping[str, Tensor],
    key: tuple[object, ...],
    *,
    half: bool = False,
    record: bool = True,
) -> Gradient:
    """The gradient of `loss` at the model's weights, whatever they are when it is called: what autograd gives. On a GPU
    each new shape of a batch is recorded (unless told not to) once for each `key`, which must name all else that the
    loss depends on; `half` then computes in bfloat16 where that is safe, as training does."""
    places = list(parameters.values())

    def plain(*batch: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        total, figures = loss(*batch)
        gradients = torch.autograd.grad(total, places, allow_unused=True, materialize_grads=True)
        return gradients, figures.detach()

    def captured(*batch: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        known = _GRADIENTS.setdefault(model, {})
        shapes = (*key, half, *((tensor.shape, tensor.dtype) for tensor in batch))
        if shapes not in known:
            known[shapes] = CapturedGradient(loss, places, batch, half)
        return known[shapes](*batch)

    return captured if record and can_capture(model, places[0].device) else plain


def _recorded(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """`step` as a graph; it runs a few times on a side stream first, as recording needs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def can_capture(model: nn.Module, device: torch.device) -> bool:
    """Graphs need a GPU and a model without random layers."""
    random = any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in model.modules())
    return device.type == "cuda" and not random
