"""Modules around an encoder or a module of others, that take or return something else."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from widefield.encoders.encoder import Encoder, FeatureModule


class FeatureMap(FeatureModule):
    """An encoder without its pooling: x[B, C, H, W] -> h[B, K h w], the feature map flattened.

    These features keep positions, over which pooling averages.

    Source: Feature Dropout (Tamkin et al. 2022), section 3.2.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Return the feature maps of images x[B, C, H, W], one row for each image."""
        return self.encoder.feature_map(x).flatten(1)


class Projected(FeatureModule):
    """An encoder with its projection head: x[B, C, H, W] -> z[B, m], the input of the loss.

    Source: S-DIET (2025), table 4 and figure 1c.
    """

    def __init__(self, encoder: nn.Module, projector: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector

    def forward(self, x: Tensor) -> Tensor:
        """Return the projections of images x[B, C, H, W], one row for each image."""
        projections: Tensor = self.projector(self.encoder(x))
        return projections


class Normalized(FeatureModule):
    """A module with the normalization of its images: x[B, C, H, W] -> module((x - mean) / std)."""

    mean: Tensor
    std: Tensor

    def __init__(self, module: nn.Module, *, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.module = module
        # A new module is in training mode, and would say so of one that is frozen.
        self.training = module.training
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the module for images in [0, 1]."""
        result: Tensor = self.module((x - self.mean) / self.std)
        return result
