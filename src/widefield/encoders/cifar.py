"""AlexNet and Wide-ResNet 34-5 for CIFAR, which timm lacks.

Wen & Li (2021) show their features in Figures 1 to 4, without further details. Both take images
from 8 pixels on and end in global average pooling. As timm's models they have `head_hidden_size`
and `forward_features`.
"""

from collections import OrderedDict

from torch import Tensor, nn


class AlexNet(nn.Module):
    """The five convolutions of AlexNet for images of 32 pixels: x[B, C, H, W] -> h[B, 256].

    Widths, kernels, response normalization and overlapping pooling are the published ones, except
    the first kernel: 3 x 3 at stride 1 instead of 11 x 11 at stride 4, for images that are 7 times
    smaller. Pools are padded: 32 pixels become 16, 8 and 4. There are no fully connected layers and
    no groups of channels. Weights are initialized as by He et al. (2015), because the published
    deviation of 0.01 makes the features of different images almost equal.

    Source: Krizhevsky, Sutskever & Hinton (2012), sections 3.3 to 3.5.
    """

    head_hidden_size = 256

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, 96, 3, padding=1),
                relu1=nn.ReLU(),
                norm1=_response_norm(),
                pool1=_pool(),
                conv2=nn.Conv2d(96, 256, 5, padding=2),
                relu2=nn.ReLU(),
                norm2=_response_norm(),
                pool2=_pool(),
                conv3=nn.Conv2d(256, 384, 3, padding=1),
                relu3=nn.ReLU(),
                conv4=nn.Conv2d(384, 384, 3, padding=1),
                relu4=nn.ReLU(),
                conv5=nn.Conv2d(384, 256, 3, padding=1),
                relu5=nn.ReLU(),
                pool5=_pool(),
            )
        )
        _init_weights(self)

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the feature map [B, 256, H / 8, W / 8] of images [B, C, H, W]."""
        return self.layers(x)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of the feature map over positions."""
        return self.forward_features(x).mean((2, 3))


class WideResNet(nn.Module):
    """A wide residual network of 34 layers and width 5: x[B, C, H, W] -> h[B, 320].

    A convolution of 16 channels, then three groups of (34 - 4) / 6 = 5 blocks with 80, 160 and 320
    channels, the second and third of which halve the sides.

    Source: Zagoruyko & Komodakis (2016), table 1, without dropout.
    """

    head_hidden_size = 320

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.group1 = _group(16, 80, stride=1)
        self.group2 = _group(80, 160, stride=2)
        self.group3 = _group(160, 320, stride=2)
        self.norm = nn.BatchNorm2d(320)
        self.relu = nn.ReLU()
        _init_weights(self)

    def forward_features(self, x: Tensor) -> Tensor:
        """Return the feature map [B, 320, H / 4, W / 4] of images [B, C, H, W]."""
        return self.relu(self.norm(self.group3(self.group2(self.group1(self.conv1(x))))))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of the feature map over positions."""
        return self.forward_features(x).mean((2, 3))


class WideBlock(nn.Module):
    """Two 3 x 3 convolutions, each after normalization and ReLU, and a shortcut past both.

    Where width or size change, the shortcut is a 1 x 1 convolution of the normalized input.
    """

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.relu1 = nn.ReLU()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu2 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features [B, outputs, H / stride, W / stride] of x [B, inputs, H, W]."""
        active = self.relu1(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        return shortcut + self.conv2(self.relu2(self.norm2(self.conv1(active))))


def _group(inputs: int, outputs: int, *, stride: int) -> nn.Sequential:
    first = WideBlock(inputs, outputs, stride=stride)
    return nn.Sequential(first, *(WideBlock(outputs, outputs, stride=1) for _ in range(4)))


def _response_norm() -> nn.LocalResponseNorm:
    # The paper's sum over 5 channels with alpha = 1e-4; torch divides alpha by 5.
    return nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0)


def _pool() -> nn.MaxPool2d:
    return nn.MaxPool2d(3, stride=2, padding=1)


def _init_weights(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
