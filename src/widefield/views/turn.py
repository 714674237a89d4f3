"""Turns by multiples of 90 degrees, for pictures that have no upper side."""

import torch
from torch import Generator, Tensor

from widefield.views.base import Augmentation, AugmentContext, Views


class Turn(Augmentation):
    """Turn each image by a random multiple of 90 degrees, and mirror it with probability 1/2.

    The eight results are equally likely, and pixels are not interpolated. Images that are not
    square are turned by 0 or 180 degrees.

    Example:
        >>> x = torch.rand(4, 3, 8, 8)
        >>> (view,) = Turn()(x, 1)
        >>> torch.equal(view.sum((2, 3)).round(decimals=3), x.sum((2, 3)).round(decimals=3))
        True
    """

    pixel_aligned = False

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Turn every one of `views` [B, C, H, W]."""
        return [self._turned(x, generator) for x in views]

    @staticmethod
    def _turned(x: Tensor, generator: Generator | None) -> Tensor:
        n, device = len(x), x.device
        quarters = torch.randint(4, (n,), generator=generator, device=device)
        mirrored = torch.randint(2, (n,), generator=generator, device=device).bool()
        if x.shape[2] != x.shape[3]:
            quarters = quarters // 2 * 2
        out = x
        for k in (1, 2, 3) if x.shape[2] == x.shape[3] else (2,):
            chosen = (quarters == k)[:, None, None, None]
            out = torch.where(chosen, torch.rot90(x, k, (2, 3)), out)
        return torch.where(mirrored[:, None, None, None], out.flip(3), out)
