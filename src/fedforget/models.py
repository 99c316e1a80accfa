"""Networks, and the checks that let any `nn.Module` classifier of the user's take their place.

The shipped ones begin with Xavier's draw, as in the paper's section 5.1.2, any other in its own way
(`federation/starts.py`)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedforget.errors import InputError
from fedforget.params import trainable
from fedforget.seeds import derive_generator, seeded_globally

BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)


class PaperCNN(nn.Sequential):
    """The paper's network for MNIST: 2 convolutions and 1 linear layer (29 k parameters on 28x28 images).

    The paper gives no sizes. Strided 5x5 convolutions without pooling keep the place of a trigger patch visible to the
    linear layer, and train in half the time (docs/decisions/networks.md)."""

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        channels, height, width = shape
        super().__init__(
            nn.Conv2d(channels, 16, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * -(-height // 4) * -(-width // 4), classes),
        )  # fmt: skip


class MLP(nn.Sequential):
    """Two hidden layers over flattened features, for images and tables alike."""

    def __init__(self, shape: Sequence[int], classes: int, hidden: int = 200) -> None:
        super().__init__(
            nn.Flatten(), nn.Linear(math.prod(shape), hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes),
        )  # fmt: skip


def _norm(kind: Literal["batch", "group"], channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.GroupNorm(math.gcd(8, channels), channels)


class _ResidualBlock(nn.Module):
    """Two 3x3 convolutions around an identity, or around a 1x1 projection where the shape changes (He et al. 2016)."""

    def __init__(self, inner: int, outer: int, stride: int, norm: Literal["batch", "group"]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = _norm(norm, outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = _norm(norm, outer)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), _norm(norm, outer))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class ResNet(nn.Module):
    """A stem and four stages of `width`, 2, 4 and 8 times `width` channels: with one block in a stage ResNet-10 (4.9 M
    parameters at 64), with two ResNet-18 (11.2 M)."""

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        norm: Literal["batch", "group"] = "batch",
        width: int = 64,
        blocks: int = 1,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(shape[0], width, 3, 1, 1, bias=False), _norm(norm, width), nn.ReLU())
        layers, inner = [], width
        for stage in range(4):
            for block in range(blocks):
                outer = width * 2**stage
                layers.append(_ResidualBlock(inner, outer, 2 if stage and not block else 1, norm))
                inner = outer
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))


class _Attention(nn.Module):
    """Multi-head self-attention over tokens, then an MLP, each behind a LayerNorm and around an identity."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, tokens, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, dim)
        x = x + self.out(attended)
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """A small vision transformer: square patches, learned positions, mean over tokens."""

    def __init__(
        self,
        shape: Sequence[int],
        classes: int,
        dim: int = 64,
        depth: int = 3,
        heads: int = 4,
        patch: int | None = None,
    ) -> None:
        super().__init__()
        channels, height, width = shape
        patch = patch or next(p for p in (7, 8, 4, 2, 5, 3, 1) if height % p == 0 and height > p and width % p == 0)
        self.embed = nn.Conv2d(channels, dim, patch, patch)
        self.position = nn.Parameter(torch.zeros(1, (height // patch) * (width // patch), dim))
        self.blocks = nn.Sequential(*(_Attention(dim, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.blocks(tokens)).mean(dim=1))


class Prepared(nn.Module):
    """The network of a federation that prepared for forgetting: Retrain takes little there, and makes bit for bit what
    the same training without the target makes. So the ladder has no other rung, and the verdict is `exact`."""

    serving: str
    """What it has, and what a request comes to: "has shards, so a request ..."."""
    assumed: tuple[str, ...]
    """What nobody can check by the model alone, and what its being exact rests on: a sentence for each."""
    evaluations: float = 1.0
    """What a sample costs in a round of training, in gradient evaluations."""

    def clients_beside(self, some: Iterable[int], clients: Iterable[int]) -> list[int]:
        """Which of the `clients` have to work where `some` of them ask."""
        raise NotImplementedError


def assumed_of(model: nn.Module) -> tuple[str, ...]:
    """What an exact model of this network rests on; nothing where the federation did not prepare."""
    return model.assumed if isinstance(model, Prepared) else ()


SHIPPED = (PaperCNN, MLP, ResNet, VisionTransformer)
ModelBuilder = Callable[[Sequence[int], int], nn.Module]

MODELS: dict[str, ModelBuilder] = {
    "cnn": PaperCNN,
    "mlp": MLP,
    "resnet10": ResNet,
    "resnet10-gn": lambda shape, classes: ResNet(shape, classes, norm="group"),
    "resnet18": lambda shape, classes: ResNet(shape, classes, blocks=2),
    "vit": VisionTransformer,
    "vit-20m": lambda shape, classes: VisionTransformer(shape, classes, dim=512, depth=10, heads=8, patch=4),
}


def build_model(name: str, shape: Sequence[int], classes: int, seed: int) -> nn.Module:
    """A shipped network by name, Xavier-initialised from `seed`."""
    if name not in MODELS:
        raise InputError(f"Model '{name}' is unknown; choose one of {', '.join(MODELS)}.")
    if name != "mlp" and len(shape) != 3:
        raise InputError(f"Model '{name}' needs images, but a sample has shape {tuple(shape)}; use the model 'mlp'.")
    return xavier_initialise(MODELS[name](shape, classes), seed)


Start = Callable[[nn.Module, int], nn.Module]
"""How a network begins: its weights get their first values in place, drawn from the seed."""
_starts: WeakKeyDictionary[nn.Module, Start] = WeakKeyDictionary()


def begins_with(model: nn.Module, start: Start) -> None:
    """Note how `model` begins, for every fresh copy of it."""
    _starts[model] = start


def start_of(model: nn.Module) -> Start | None:
    """How `model` begins, if it is a shipped one or that has been noted."""
    return _starts.get(model, xavier_initialise if type(model) in SHIPPED else None)


def fresh_copy(model: nn.Module, seed: int) -> nn.Module:
    """An untrained copy of the network, which begins as the network itself does, with the draw of `seed`. Where nobody
    noted how that is, its layers say it."""
    start = start_of(model) or reset_layers
    fresh = copy.deepcopy(model)
    device = next(fresh.parameters()).device
    start(fresh.cpu(), seed)  # the same draw on every device
    begins_with(fresh, start)
    return fresh.to(device)


def xavier_initialise(model: nn.Module, seed: int) -> nn.Module:
    """Re-initialise every parameter in place: Xavier-uniform weights, zero biases, ones and zeros in normalisations.

    Works for any module: its layers reset themselves first, then every parameter with two or more dimensions
    is drawn from U(-a, a), a = sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010). This is then how the
    model begins."""
    generator = derive_generator(seed, "xavier")
    untouched = _reset(model, seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                drawn = torch.empty(parameter.shape)
                nn.init.xavier_uniform_(drawn, generator=generator)
                parameter.copy_(drawn)
            elif "bias" in name.rpartition(".")[2]:
                parameter.zero_()
            elif name in untouched:
                raise InputError(f"Xavier's draw does not say how parameter '{name}' begins.")
    begins_with(model, xavier_initialise)
    return model


def reset_layers(model: nn.Module, seed: int) -> nn.Module:
    """Every trainable parameter anew, by the `reset_parameters` of its layer or of a module around it. Frozen ones stay
    as they are."""
    untouched = _reset(model, seed)
    if untouched:
        raise InputError(
            f"Nobody knows how parameter '{untouched[0]}' begins, so an untrained copy of the model cannot be made; "
            "give the network's class or a function that makes it in place of the instance, or give its module a "
            "reset_parameters."
        )
    return model


def _reset(model: nn.Module, seed: int) -> list[str]:
    """Let every module with a trainable parameter, or with none at all, reset itself, the inner before the outer; the
    trainable parameters that none of them set."""
    moving = trainable(model)
    frozen = {name: p.detach().clone() for name, p in model.named_parameters() if name not in moving}
    with seeded_globally(torch.device("cpu"), seed, "reset"), torch.no_grad():
        for parameter in moving.values():
            parameter.fill_(math.nan)  # what is still there afterwards was not set
        for module in reversed(list(model.modules())):
            own = list(module.parameters(recurse=False))
            reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
            if callable(reset) and (not own or any(parameter.requires_grad for parameter in own)):
                reset()
        for name, value in frozen.items():
            model.get_parameter(name).copy_(value)
    return [name for name, parameter in trainable(model).items() if bool(parameter.isnan().any())]


def check_layers(model: nn.Module) -> None:
    """Refuse a model that forgetting cannot work on, whatever the data."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError("The model has no trainable parameter; set requires_grad on the ones that training may move.")
    lazy = next((n for n, m in model.named_modules() if isinstance(m, nn.modules.lazy.LazyModuleMixin)), None)
    if lazy is not None:
        raise InputError(f"Layer '{lazy}' is lazy, so the model's size is not known; run one batch through it first.")
    mixing = next((n for n, m in model.named_modules() if isinstance(m, BATCH_NORMS) and m.running_mean is None), None)
    if mixing is not None:
        raise InputError(
            f"Layer '{mixing}' normalises by the batch also in evaluation, so no sample has a prediction of its own; "
            "set track_running_stats=True, or use GroupNorm."
        )


def check_model(model: nn.Module, shape: Sequence[int], classes: int | None = None) -> int:
    """How many classes the model tells apart, which must be the data's where those are known. Refused, before any work,
    is a model that is no classifier for this data or that forgetting cannot work on."""
    check_layers(model)
    was_training = model.training
    device = next(model.parameters()).device
    try:
        with torch.no_grad():
            out = model.eval()(torch.zeros((2, *shape), device=device))
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"The model cannot take samples of shape {tuple(shape)}: {reason}") from None
    finally:
        model.train(was_training)
    if classes is None:
        classes = out.shape[1] if isinstance(out, Tensor) and out.dim() > 1 else 1
        if isinstance(out, Tensor) and out.numel() == 2:
            raise InputError(
                "The model has a single output for a sample; forgetting needs one for each class, two for yes and no."
            )
    if not isinstance(out, Tensor) or out.shape != (2, classes):
        got = tuple(out.shape[1:]) if isinstance(out, Tensor) else type(out).__name__
        raise InputError(
            f"The model's output is {got} for a sample, but the data has {classes} classes, so it must be ({classes},)."
        )
    return classes
