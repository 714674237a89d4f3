"""A small network that begins with a dictionary of patches of the data, and keeps it.

    f = PatchDictionary(x)                          f[B, F, h, w], `dictionary.py`
    g = norm(A mean of body(f) over positions)      g[B, 64], trained
    k = CellFeatures(f)                             k[B, 64], as they were fitted
    h = [g, k]

norm is a batch norm without gains: both halves of h have the same scale. The loss is taken on h, so
that the body learns what the dictionary lacks. Training does not change the dictionary, because
contrastive losses suppress what it holds.

Our architecture, on the dictionary of Coates & Ng (2012).
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from widefield.core.types import Size
from widefield.encoders.dictionary import FEATURES, CellFeatures, PatchDictionary

KEPT = 64
"""Width of k, and of g."""


class DictionaryNet(nn.Module):
    """A residual block on a dictionary of patches: x[B, C, H, W] -> h[B, 128]."""

    head_hidden_size = 2 * KEPT
    # As timm lists stages. The dictionary has a source of its own in every wide readout.
    feature_info = ({"module": "mix"}, {"module": "block"})

    def __init__(self, channels: int, size: Size) -> None:
        super().__init__()
        self.dictionary = PatchDictionary(channels, size)
        self.mix = nn.Sequential(
            nn.BatchNorm2d(FEATURES), *_conv(FEATURES, 64, kernel=1), nn.ReLU()
        )
        self.block = ResidualBlock(64, 128, stride=2)
        self.project = nn.Linear(128, KEPT, bias=False)
        self.norm = nn.BatchNorm1d(KEPT, affine=False)
        self.kept = CellFeatures(KEPT)

    def fit(self, batches: Callable[[], Iterable[Tensor]], *, seed: int) -> None:
        """Fit the dictionary and the kept directions on normalized inputs x[n, C, H, W]."""
        self.dictionary.fit(batches(), seed=seed)
        self.kept.fit(self.dictionary(x) for x in batches())

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the maps of the body, [B, 128, h, w]."""
        return self._body(self.dictionary(x).to(x.dtype))

    def forward(self, x: Tensor) -> Tensor:
        f = self.dictionary(x)
        g = self.norm(self.project(self._body(f.to(x.dtype)).mean((2, 3))))
        return torch.cat([g, self.kept(f).to(g.dtype)], dim=1)

    def _body(self, f: Tensor) -> Tensor:
        return self.block(self.mix(f))


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut, as in ResNet: x[B, K, h, w] -> [B, L, h/s, w/s]."""

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            *_conv(inputs, outputs, kernel=3, stride=stride),
            nn.ReLU(),
            *_conv(outputs, outputs, kernel=3),
        )
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(*_conv(inputs, outputs, kernel=1, stride=stride))
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.branch(x) + self.shortcut(x))


def _conv(inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return [conv, nn.BatchNorm2d(outputs)]
