"""A ridge head on a frozen backbone: the clients send sums, the server solves one linear system. Not in the paper.

    A = sum over k of sum over (x, y) in D'_k of phi(x) phi(x)^T       phi(x) = (backbone(x), 1), d numbers
    B = sum over k of sum over (x, y) in D'_k of phi(x) e_y^T          e_y: the label as one of the classes
    W = (A + lambda I)^-1 B,    lambda = rho tr(A) / d                 logits(x) = 10 W^T phi(x)

All of it in float64, summed in the order of the samples and of the clients. The model depends on the data through A and
B alone, so forgetting is the same sums without the target, and the same system: the bits of a training that never had
it. lambda looks at no single sample, and is made anew with the sums. Here is the network; how the sums come together is
in `federation.sums`."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.data.samples import Samples
from fedforget.errors import DivergedError, InputError
from fedforget.federation.client import Client
from fedforget.federation.evaluation import FORWARD_COST
from fedforget.models import Prepared, begins_with
from fedforget.params import State, digest
from fedforget.seeds import derive_generator

BACKBONE = "backbone."
REGULARISATION = 1e-3
"""rho. On digits, breast_cancer and MNIST (seed 0) the test accuracy is within half a point of the best from 1e-4 to
1e-2."""
GAIN = 10.0
"""The logit of a sample that is its class beyond doubt. The targets are 0 and 1; as logits these would leave every
class nearly as likely as any other."""
BIAS = 0.5
"""The spread of the random features' biases, beside inputs of about 1."""
CHUNK = 512
"""So many samples go through the backbone at once. Part of the bits."""


class RandomFeatures(nn.Module):
    """relu(V x + b) with V and b drawn from the seed: no data goes into them (Rahimi and Recht 2007; Cho and Saul
    2009 for this one's kernel)."""

    weight: Tensor
    bias: Tensor

    def __init__(self, shape: Sequence[int], features: int, seed: int) -> None:
        super().__init__()
        inputs, generator = math.prod(shape), derive_generator(seed, "random features")
        self.register_buffer("weight", torch.randn(features, inputs, generator=generator) / math.sqrt(inputs))
        self.register_buffer("bias", BIAS * torch.randn(features, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(F.linear(x.flatten(1), self.weight, self.bias))


class Ridge(Prepared):
    """logits(x) = head(backbone(x)). The backbone is frozen and always in evaluation mode; the head, in float64, is 0
    until it is solved."""

    serving = "has a ridge head, so a request has it solved again from sums without the target"
    evaluations = FORWARD_COST

    def __init__(
        self,
        backbone: nn.Module,
        width: int,
        classes: int,
        *,
        regularisation: float = REGULARISATION,
        masked: bool = False,
        origin: str = "The backbone never saw the clients' data.",
    ) -> None:
        """`width`: how many features the backbone gives. `origin`: a sentence that says where it comes from."""
        super().__init__()
        if not (math.isfinite(regularisation) and regularisation > 0):
            raise InputError(f"The regularisation is {regularisation}, but it must be a finite number above 0.")
        self.backbone = backbone.requires_grad_(False)
        self.head = nn.Linear(width, classes, dtype=torch.float64)
        self.regularisation, self.masked = regularisation, masked
        self.assumed = (origin, "Every client sent the true sums of its data without the target.")
        begins_with(_unsolved(self), _unsolved)
        self.train(False)

    def train(self, mode: bool = True) -> Ridge:
        super().train(mode)
        self.backbone.eval()
        return self

    def clients_beside(self, some: Iterable[int], clients: Iterable[int]) -> list[int]:
        """Everybody sends sums, those that it has kept or new ones."""
        return list(clients)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.backbone(x).double())
        return logits.float()

    @torch.no_grad()
    def _rows(self, samples: Samples, client: Client) -> Iterator[tuple[Tensor, Tensor]]:
        """phi(x) and e_y of some of the samples at a time, as rows."""
        for x, y in zip(samples.features.split(CHUNK), samples.labels.split(CHUNK), strict=True):
            phi = self.backbone(client.inputs(x)).double()
            ones = phi.new_ones((len(phi), 1))
            yield torch.cat([phi, ones], dim=1), F.one_hot(y.to(phi.device), self.head.out_features).double()

    def sums(self, samples: Samples, client: Client) -> tuple[Tensor, Tensor]:
        """(the upper triangle of A_k row by row, B_k) of these samples, in float64."""
        d, classes = self.head.in_features + 1, self.head.out_features
        gram = torch.zeros((d, d), dtype=torch.float64, device=client.device)
        moments = torch.zeros((d, classes), dtype=torch.float64, device=client.device)
        for phi, e in self._rows(samples, client):
            gram.addmm_(phi.T, phi)
            moments.addmm_(phi.T, e)
        return gram.cpu().masked_select(_triangle(d)), moments.cpu()

    @torch.no_grad()
    def residual(self, held: Iterable[tuple[Client, Samples]]) -> float:
        """The largest entry of (A + lambda I) W - B as a part of the largest of B, without making A."""
        w = torch.cat([self.head.weight.T, self.head.bias[None]]) / GAIN
        left, moments, trace = torch.zeros_like(w), torch.zeros_like(w), 0.0
        for client, samples in held:
            for phi, e in self._rows(samples, client):
                left.addmm_(phi.T, phi @ w)
                moments.addmm_(phi.T, e)
                trace += float(phi.square().sum())
        left += self.regularisation * trace / len(w) * w
        return float((left - moments).abs().max() / moments.abs().max())

    def solved(self, gram: Tensor, moments: Tensor) -> State:
        """The head from the totals: W = (A + lambda I)^-1 B by Cholesky's decomposition."""
        d = len(moments)
        a = torch.zeros((d, d), dtype=torch.float64).masked_scatter_(_triangle(d), gram)
        a.diagonal().add_(self.regularisation * float(a.trace()) / d)
        factor, failed = torch.linalg.cholesky_ex(a.T)  # it reads the lower triangle alone
        if int(failed):
            raise DivergedError("The ridge head", "the sums are those of no data; check what the backbone gives.")
        w = GAIN * torch.cholesky_solve(moments, factor)
        return {"head.weight": w[:-1].T.contiguous(), "head.bias": w[-1].clone()}


def _triangle(d: int) -> Tensor:
    """Which entries of a symmetric matrix are sent: those on and above the diagonal, row by row."""
    return torch.ones((d, d), dtype=torch.bool).triu_()


def _unsolved(model: nn.Module, seed: int = 0) -> nn.Module:
    """How a ridge head begins. The backbone is no draw of a training: Retrain keeps it."""
    assert isinstance(model, Ridge)
    for parameter in model.head.parameters():
        nn.init.zeros_(parameter)
    return model


def cut(network: nn.Module) -> tuple[nn.Module, int, str]:
    """(a copy of the network up to its last linear layer, how many features that gives, the layer's name)."""
    layers = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise InputError(f"A {type(network).__name__} has no linear layer to cut off, so it is no backbone.")
    parent, _, own = layers[-1].rpartition(".")
    backbone = copy.deepcopy(network)
    last = network.get_submodule(layers[-1])
    assert isinstance(last, nn.Linear)
    setattr(backbone.get_submodule(parent), own, nn.Identity())
    return backbone, last.in_features, layers[-1]


def ridge_on(
    network: nn.Module,
    classes: int,
    *,
    origin: str,
    weights: Mapping[str, Tensor] | None = None,
    regularisation: float = REGULARISATION,
    masked: bool = False,
) -> Ridge:
    """A ridge head for `classes` classes in place of the network's last linear layer. `weights`: the network's own, if
    it does not have them yet; those of the last layer do not count. `origin`: who trained it, on which data."""
    backbone, width, last = cut(network)
    if weights is not None:
        given = {name: tensor for name, tensor in weights.items() if not name.startswith(f"{last}.")}
        own = backbone.state_dict()
        odd = next(
            (n for n in (*own, *given) if n not in own or n not in given or own[n].shape != given[n].shape), None
        )
        if odd is not None:
            raise InputError(
                f"The backbone's weights are not those of this {type(network).__name__}: they differ at '{odd}'; name "
                "the network that was trained."
            )
        backbone.load_state_dict(given)
    return Ridge(
        backbone, width, classes, regularisation=regularisation, masked=masked, origin=origin_of(backbone, origin)
    )  # fmt: skip


def random_ridge(
    shape: Sequence[int],
    classes: int,
    features: int,
    seed: int,
    *,
    regularisation: float = REGULARISATION,
    masked: bool = False,
) -> Ridge:
    """A ridge head on random features."""
    if features < 1:
        raise InputError(f"{features} random features were asked for, but it must be 1 or more.")
    return Ridge(
        RandomFeatures(shape, features, seed), features, classes, regularisation=regularisation, masked=masked,
        origin="The backbone is a draw from the run's seed, and no data went into it.",
    )  # fmt: skip


def origin_of(backbone: nn.Module, said: str) -> str:
    return (
        f"The backbone {digest(backbone.state_dict())[:16]} never saw the clients' data; who gave it says: "
        f"{said.strip().rstrip('.')}."
    )
