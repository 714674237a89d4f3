"""Two simple augmentations: the identity, and complementary random masks."""

import torch
from torch import Generator

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
