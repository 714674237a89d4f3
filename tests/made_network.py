"""A network as a user has one: its own blocks, attention, pooling and initialization."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ChannelNorm(nn.Module):
    """Normalizes the channels at each position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width, 1, 1))
        self.bias = nn.Parameter(torch.zeros(width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        centered = x - x.mean(1, keepdim=True)
        spread = centered.square().mean(1, keepdim=True)
        return self.gain * centered * torch.rsqrt(spread + 1e-6) + self.bias


class Gate(nn.Module):
    """Scales each channel by what the whole image holds."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, width // 4), nn.Linear(width // 4, width)

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3))))))
        return x * scale[:, :, None, None]


class Mixer(nn.Module):
    """A depthwise convolution, a channel MLP and a gate, each with a shortcut."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.norm = ChannelNorm(width)
        self.spatial = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        self.wide = nn.Conv2d(width, 2 * width, 1)
        self.narrow = nn.Conv2d(2 * width, width, 1)
        self.gate = Gate(width)
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.spatial(self.norm(x))
        mixed = self.narrow(F.gelu(self.wide(x)))
        return x + self.scale * self.gate(mixed)


class Attend(nn.Module):
    """Attention of one learned query over all positions, in place of an average."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(1, 1, width))
        self.key_value = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        key, value = self.key_value(tokens).chunk(2, dim=2)
        weights = self.query @ key.transpose(1, 2) / math.sqrt(key.shape[2])
        return (weights.softmax(2) @ value).squeeze(1)


class Stage(nn.Module):
    """Halves the sides, then mixes."""

    def __init__(self, inputs: int, width: int, depth: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(inputs, width, 2, stride=2)
        self.blocks = nn.ModuleList(Mixer(width, 3) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x = self.reduce(x)
        for block in self.blocks:
            x = block(x)
        return x


class Network(nn.Module):
    """Stages of mixers, then attention: x [B, 3, H, W] -> h [B, 24]."""

    def __init__(self, widths: tuple[int, ...] = (8, 16, 24), depth: int = 1) -> None:
        super().__init__()
        inputs = (3, *widths[:-1])
        self.stages = nn.ModuleList(
            Stage(before, width, depth) for before, width in zip(inputs, widths, strict=True)
        )
        self.pool = Attend(widths[-1])
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.2)

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages:
            x = stage(x)
        return self.pool(x)


def build() -> nn.Module:
    return Network()
