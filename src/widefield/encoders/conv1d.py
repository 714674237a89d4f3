"""A small convolutional encoder over time, for windows and the waveforms of sounds."""

from torch import Tensor, nn

_WIDTHS = (32, 64, 128, 256)
# Chosen by hand: the cost of a sound is then that of a window of about 1,024 steps.
_STEPS = 1024
"""Largest number of time steps after the first layer; each of the four stages halves them."""


class Conv1d(nn.Module):
    """Four stages of residual blocks over time: x[B, C, 1, T] -> h[B, 256]."""

    head_hidden_size = _WIDTHS[-1]

    def __init__(self, channels: int, steps: int) -> None:
        super().__init__()
        stride = max(1, steps // _STEPS)
        self.stem = nn.Sequential(
            _conv(channels, _WIDTHS[0], kernel=8 * stride + 1, stride=stride),
            nn.BatchNorm2d(_WIDTHS[0]),
            nn.ReLU(),
        )
        inputs = (_WIDTHS[0], *_WIDTHS[:-1])
        self.stages = nn.Sequential(
            *(_Block(one, two) for one, two in zip(inputs, _WIDTHS, strict=True))
        )

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the feature map [B, 256, 1, t] of x [B, C, 1, T]."""
        return self.stages(self.stem(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of the feature map over time."""
        return self.forward_features(x).mean((2, 3))


class _Block(nn.Module):
    """Two convolutions over 5 steps and a shortcut; the first halves the time."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            _conv(inputs, outputs, kernel=5, stride=2),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            _conv(outputs, outputs, kernel=5),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = _conv(inputs, outputs, kernel=1, stride=2)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.shortcut(x) + self.branch(x))


SIGNAL_NETWORKS = ("conv1d",)
"""Names of the networks over time."""


def _conv(inputs: int, outputs: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(
        inputs, outputs, (1, kernel), stride=(1, stride), padding=(0, kernel // 2), bias=False
    )
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv
