"""Views of images with stacked channels: each group of channels has its own augmentation."""

import torch
from torch import Generator

from widefield.core.types import Crop
from widefield.views.base import Augmentation, AugmentContext, Views
from widefield.views.image import ImageAugmentation


class StackedAugmentation(Augmentation):
    """Independent augmentations of the first three channels and of the others.

    Args:
        image: augmentation of channels 1 to 3, or of all if there are no more.
        rest: augmentation of channels 4 and on.

    Example:
        >>> one_pixel = ImageAugmentation(crop_scale=(1e-3, 2e-3))
        >>> same = ImageAugmentation(crop_scale=None, flip_prob=0, jitter_prob=0, grayscale_prob=0)
        >>> x = torch.rand(2, 4, 8, 8)
        >>> (view,) = StackedAugmentation(image=one_pixel, rest=same)(x, 1)
        >>> torch.equal(view[:, :3], x[:, :3]), torch.equal(view[:, 3:], x[:, 3:])
        (False, True)

    Source: S-DIET (2025), section 6.1.1 and appendix C.
    """

    def __init__(self, *, image: ImageAugmentation, rest: ImageAugmentation) -> None:
        super().__init__()
        self.image = image
        self.rest = rest
        self.pixel_aligned = image.pixel_aligned and rest.pixel_aligned
        self.passes_gradient = image.passes_gradient and rest.passes_gradient

    @property
    def crop(self) -> Crop | None:
        """The random crop of the image."""
        return self.image.crop

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Augment both channel groups of each of `views` [B, C, H, W] and concatenate them."""
        image = self.image.augment([x[:, :3] for x in views], generator, context)
        if views[0].shape[1] <= 3:
            return image
        rest = self.rest.augment([x[:, 3:] for x in views], generator, context)
        return [torch.cat(groups, dim=1) for groups in zip(image, rest, strict=True)]
