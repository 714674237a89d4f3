"""Cutout: a square of each image is covered with gray."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Le
from torch import Generator, Tensor

from widefield.core.batch import checked
from widefield.views.base import Augmentation, AugmentContext, Views
from widefield.views.policy import PolicySettings

GRAY = 0.5
"""Value of a covered pixel. The paper uses the mean of the data, which is not available here; gray
is close to it and depends neither on the image nor on the batch."""


@dataclass(frozen=True, kw_only=True)
class CutoutSettings(PolicySettings):
    """Settings of cutout."""

    argument_of: ClassVar = {"cutout_size": "size"}

    cutout_size: Annotated[float, Gt(0), Le(1)] = 0.5
    """Side of the covered square, as a share of the image's shorter side."""


class Cutout(Augmentation):
    """Views with one gray square each, of s x s pixels, whose center is any pixel of the image.

    With H x W pixels, s = round(size min(H, W)), at least 1, and a center (i, j) uniform over all
    pixels, the square covers the rows i - floor(s / 2) to i - floor(s / 2) + s - 1 and the columns
    likewise. The part outside the image is clipped.

    Args:
        size: side of the square, as a share of the image's shorter side, in (0, 1].

    Example:
        >>> x = torch.ones(8, 3, 32, 32)
        >>> (view,) = Cutout(size=0.5)(x, 1)
        >>> covered = (view == 0.5).sum((1, 2, 3))
        >>> bool((covered >= 3 * 8 * 8).all()), bool((covered <= 3 * 16 * 16).all())
        (True, True)

    Source: DeVries & Taylor (2017), Improved Regularization of Convolutional Neural Networks with
    Cutout, section 3.2: the square may cross the border, which they find important.
    """

    @checked
    def __init__(self, *, size: Annotated[float, Gt(0), Le(1)]) -> None:
        super().__init__()
        self.size = size

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Cover a square of each image of each of `views` [B, C, H, W]."""
        covered = []
        for x in views:
            side = max(1, round(self.size * min(x.shape[-2:])))
            rows, columns = (self._segment(len(x), n, side, x, generator) for n in x.shape[-2:])
            square = (rows[:, :, None] & columns[:, None, :])[:, None]
            covered.append(torch.where(square, GRAY, x))
        return covered

    def _segment(
        self, count: int, length: int, side: int, like: Tensor, generator: Generator | None
    ) -> Tensor:
        """Return which of `length` pixels of an axis the squares cover, bool [count, length]."""
        shape = (count, 1)
        center = torch.randint(length, shape, device=like.device, generator=generator)
        offset = torch.arange(length, device=like.device) - (center - side // 2)
        return (offset >= 0) & (offset < side)
