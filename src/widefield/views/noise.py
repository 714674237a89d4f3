"""Views that add Gaussian noise, everywhere or on the planted object alone."""

import torch
from torch import Generator, Tensor

from widefield.views.base import BARE, Scene, Views


class Noise(Views):
    """x + std n with n ~ N(0, 1) for every number, held in [0, 1].

    Args:
        std: standard deviation, in units of the images' range.

    Example:
        >>> x = torch.full((4, 3, 8, 8), 0.5)
        >>> one, other = Noise(std=0.1)(x, 2)
        >>> bool((one != other).any())
        True
    """

    def __init__(self, *, std: float) -> None:
        super().__init__()
        self.std = std

    def alter(
        self, views: list[Tensor], generator: Generator | None = None, scene: Scene = BARE
    ) -> list[Tensor]:
        """Add noise of its own to each of `views` [B, C, H, W]."""
        return [(x + self.std * _normal(x, generator)).clamp(0, 1) for x in views]


class ObjectNoise(Views):
    """`Noise` on the pixels of the planted object alone: what makes that one feature harder.

    Source: Feature Dropout (Tamkin et al. 2022), section 4, where noise on a dominant feature
    lets the weaker ones be learned.
    """

    needs_mask = True

    def __init__(self, *, std: float) -> None:
        super().__init__()
        self.std = std

    def alter(
        self, views: list[Tensor], generator: Generator | None = None, scene: Scene = BARE
    ) -> list[Tensor]:
        """Add noise inside `scene.mask` to each of `views` [B, C, H, W]."""
        assert scene.mask is not None
        std = self.std * scene.mask
        return [(x + (std * _normal(x, generator)).to(x.dtype)).clamp(0, 1) for x in views]


def _normal(like: Tensor, generator: Generator | None) -> Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=like.dtype)
