"""A module whose images are normalized first."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalized(nn.Module):
    """A module with the normalization of its images: x[B, C, H, W] -> module((x - mean) / std).

    Example:
        >>> Normalized(nn.Flatten(), mean=[0.5], std=[0.25])(torch.ones(1, 1, 1, 2))
        tensor([[2., 2.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, module: nn.Module, *, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the module for images in [0, 1]."""
        result: Tensor = self.module((x - self.mean) / self.std)
        return result
