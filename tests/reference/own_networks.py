"""Networks as users bring them: depthwise convolutions, LayerNorm as GroupNorm(1), GELU; two ways to begin."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.norm = nn.GroupNorm(1, dim)
        self.widen = nn.Conv2d(dim, 2 * dim, 1)
        self.narrow = nn.Conv2d(2 * dim, dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(F.gelu(self.widen(self.norm(self.depthwise(x)))))


class Layered(nn.Module):
    """Begins as its layers do."""

    def __init__(self, channels: int = 1, dim: int = 32, patch: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, dim, patch, stride=patch)
        self.blocks = nn.Sequential(Block(dim), Block(dim))
        self.norm = nn.GroupNorm(1, dim)
        self.head = nn.Linear(dim, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(x))).mean(dim=(2, 3)))


class Drawn(Layered):
    """Begins as its __init__ says, which no reset_parameters knows."""

    def __init__(self, channels: int = 1, dim: int = 32, patch: int = 2) -> None:
        super().__init__(channels, dim, patch)
        self.scale = nn.Parameter(torch.ones(dim, 1, 1))
        nn.init.trunc_normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        for block in self.blocks.children():
            assert isinstance(block, Block)
            nn.init.normal_(block.depthwise.weight, std=0.2)
            nn.init.zeros_(block.narrow.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.scale * self.norm(self.blocks(self.stem(x)))).mean(dim=(2, 3)))
