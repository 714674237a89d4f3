"""Gaussian noise on every pixel or on the planted object only."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt
from torch import Generator

from widefield.core.batch import checked
from widefield.views.base import Augmentation, AugmentContext, Views
from widefield.views.policy import PolicySettings
from widefield.views.signal import normal


@dataclass(frozen=True, kw_only=True)
class NoiseSettings(PolicySettings):
    """Settings of noise and noise:object."""

    argument_of: ClassVar = {"noise_std": "std"}

    noise_std: Annotated[float, Gt(0)] = 0.1
    """Standard deviation of the noise, in units of the images' range."""


class Noise(Augmentation):
    """Views x + std n, clamped to [0, 1], with n ~ N(0, 1) for every number of every view.

    Args:
        std: standard deviation, in units of the images' range.

    Example:
        >>> import torch
        >>> x = torch.full((4, 3, 8, 8), 0.5)
        >>> first, second = Noise(std=0.1)(x, 2)
        >>> bool((first != second).any())
        True
    """

    @checked
    def __init__(self, *, std: Annotated[float, Ge(0)]) -> None:
        super().__init__()
        self.std = std

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Add independent noise to each of `views` [B, C, H, W]."""
        return [(x + self.std * normal(x.shape, x, generator)).clamp(0, 1) for x in views]


class ObjectNoise(Noise):
    """Noise on the pixels of the planted object only, which makes this feature harder.

    Args:
        std: standard deviation, in units of the images' range.

    Example:
        >>> import torch
        >>> mask = torch.zeros(2, 1, 8, 8, dtype=torch.bool)
        >>> x = torch.rand(2, 3, 8, 8)
        >>> (view,) = ObjectNoise(std=0.1)(x, 1, context=AugmentContext(mask=mask))
        >>> torch.equal(view, x)  # there is no object
        True

    Source: Feature Dropout (Tamkin et al. 2022), section 4, where noise on a dominant feature
    lets the weaker ones be learned.
    """

    needs_mask = True

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Add independent noise inside `context.mask` to each of `views` [B, C, H, W]."""
        assert context.mask is not None
        std = self.std * context.mask
        return [(x + (std * normal(x.shape, x, generator)).to(x.dtype)).clamp(0, 1) for x in views]
