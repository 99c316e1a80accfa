"""On a GPU, small batches leave the device waiting for the next kernel's launch. Here the work on a batch (a whole step
of training, a gradient) is recorded once as a CUDA graph and replayed for every batch, in bfloat16 where that is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedforget.params import trainable

Loss = Callable[..., tuple[Tensor, Tensor]]
"""From the tensors of a batch to what is differentiated, and to figures that someone wants to see."""
Gradient = Callable[..., tuple[Sequence[Tensor], Tensor]]
"""From the tensors of a batch to the gradient of each parameter, and to the figures."""
_RECORDED: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], Recorded]] = WeakKeyDictionary()


class Recorded:
    """`work` on batches of fixed shapes, as a graph over the very memory that it reads and writes, such as the model's
    parameters. Recording runs the work a few times. What it returned then, `made`, every call computes anew in place.
    """

    def __init__(self, work: Callable[..., Any], batch: Sequence[Tensor]) -> None:
        self._batch = [tensor.clone() for tensor in batch]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # recording needs a few runs beforehand
            for _ in range(3):
                work(*self._batch)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.made = work(*self._batch)

    def __call__(self, *batch: Tensor) -> Any:
        for place, tensor in zip(self._batch, batch, strict=True):
            place.copy_(tensor)
        self._graph.replay()
        return self.made


def recorded(model: nn.Module, key: tuple[object, ...], work: Callable[..., Any], batch: Sequence[Tensor]) -> Recorded:
    """The graph of `work` over this model, recorded on first use for each shape of a batch and each `key`, which must
    name all else that the work depends on."""
    known = _RECORDED.setdefault(model, {})
    shapes = (*key, *((tensor.shape, tensor.dtype) for tensor in batch))
    if shapes not in known:
        known[shapes] = Recorded(work, batch)
    return known[shapes]


def in_half(wanted: bool) -> AbstractContextManager[object]:
    """Inside, a GPU computes in bfloat16 where that is safe."""
    return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False) if wanted else nullcontext()


def gradient_of(
    loss: Loss, model: nn.Module, key: tuple[object, ...], *, half: bool = False, record: bool = True
) -> Gradient:
    """The gradient of `loss` by what is trainable now, at the model's weights whatever they are when it is called: what
    autograd gives. On a GPU it is `recorded` (unless told not to) and may be computed `in_half`, as training is; what a
    call returns is overwritten by the next. The loss must change no weight then: a layer that keeps running statistics
    has to be in evaluation mode."""
    places = list(trainable(model).values())
    captures = record and can_capture(model, places[0].device)

    def work(*batch: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        with in_half(half and captures):
            total, figures = loss(*batch)
        gradients = torch.autograd.grad(total, places, allow_unused=True, materialize_grads=True)
        return gradients, figures.detach()

    def replayed(*batch: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        found: tuple[Sequence[Tensor], Tensor] = recorded(model, (*key, half), work, batch)(*batch)
        return found

    return replayed if captures else work


def can_capture(model: nn.Module, device: torch.device) -> bool:
    """Graphs need a GPU and a model without random layers."""
    random = any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in model.modules())
    return device.type == "cuda" and not random
