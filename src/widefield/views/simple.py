"""Simple augmentations: the identity, complementary random masks, and turns by 90 degrees."""

import torch
from torch import Generator, Tensor

from widefield.views.base import Augmentation, AugmentContext, Views


class Identity(Augmentation):
    """Views that are the image itself.

    Example:
        >>> import torch
        >>> x = torch.rand(2, 3, 8, 8)
        >>> torch.equal(Identity()(x, 1)[0], x)
        True
    """

    any_input_range = True

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Return `views` as they are."""
        return list(views)


class RandomMask(Augmentation):
    """Complementary views: a random half of an image's numbers, doubled, and the other half.

        x+ = 2 D x,    x++ = 2 (I - D) x

    D is diagonal, Bernoulli(1/2), sampled for each number of each image. Views 1 and 2 are a pair,
    3 and 4 are a pair with another D, and so on; a last view without a partner is 2 D x. The mean
    over D is the image, and views are in [0, 2].

    Example:
        >>> x = torch.rand(4, 3, 8, 8)
        >>> first, second = RandomMask()(x, 2)
        >>> bool((first * second == 0).all()), bool((first + second == 2 * x).all())
        (True, True)

    Source: Wen & Li (2021), definition 2.3.
    """

    value_range = (0.0, 2.0)
    complementary_pairs = True

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Mask each pair of `views` [B, C, H, W] by complementary halves."""
        masked = []
        for first in range(0, len(views), 2):
            pair = views[first : first + 2]
            d = torch.rand(pair[0].shape, generator=generator, device=pair[0].device) < 0.5
            # Not strict: a last view may have no partner.
            masked += [torch.where(keep, 2 * x, 0) for x, keep in zip(pair, (d, ~d), strict=False)]
        return masked


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
        return [self._rotate(x, generator) for x in views]

    @staticmethod
    def _rotate(x: Tensor, generator: Generator | None) -> Tensor:
        n, device = len(x), x.device
        turns = torch.randint(4, (n,), generator=generator, device=device)
        flip = torch.randint(2, (n,), generator=generator, device=device).bool()
        if x.shape[2] != x.shape[3]:
            turns = turns // 2 * 2
        out = x
        for k in (1, 2, 3) if x.shape[2] == x.shape[3] else (2,):
            selected = (turns == k)[:, None, None, None]
            out = torch.where(selected, torch.rot90(x, k, (2, 3)), out)
        return torch.where(flip[:, None, None, None], out.flip(3), out)
