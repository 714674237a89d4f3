"""Views of one line each: the image itself; a random half of its numbers, and the other half."""

import torch
from torch import Generator, Tensor

from widefield.views.base import BARE, Scene, Views


class NoViews(Views):
    """Every view is the image itself."""

    def alter(
        self, views: list[Tensor], generator: Generator | None = None, scene: Scene = BARE
    ) -> list[Tensor]:
        """`views` as they are."""
        return list(views)


class RandomMask(Views):
    """A random half of an image's numbers, doubled, and the other half.

        x+ = 2 D x,    x++ = 2 (I - D) x

    D is diagonal, Bernoulli(1/2), one coin for each number of each image. Views 1 and 2 are such a
    pair, so are 3 and 4, each pair with a D of its own; a last view without a partner is 2 D x.
    The mean over D is the image, and views lie in [0, 2].

    Example:
        >>> x = torch.rand(4, 3, 8, 8)
        >>> one, other = RandomMask()(x, 2)
        >>> bool((one * other == 0).all()), bool((one + other == 2 * x).all())
        (True, True)

    Source: Wen & Li (2021), definition 2.3.
    """

    value_range = (0.0, 2.0)
    come_in_pairs = True

    def alter(
        self, views: list[Tensor], generator: Generator | None = None, scene: Scene = BARE
    ) -> list[Tensor]:
        """Mask each pair of `views` [B, C, H, W] by complementary halves."""
        altered = []
        for first in range(0, len(views), 2):
            pair = views[first : first + 2]
            d = torch.rand(pair[0].shape, generator=generator, device=pair[0].device) < 0.5
            altered += [torch.where(keep, 2 * x, 0) for x, keep in zip(pair, (d, ~d), strict=False)]
        return altered
