"""Views of channel groups: the image, and what is stacked on it as a further channel."""

import torch
from torch import Generator, Tensor

from widefield.views.base import BARE, Scene, Views
from widefield.views.image import ImageViews


class StackedViews(Views):
    """The first three channels get one policy, those after them another, drawn independently.

    Args:
        image: policy of channels 1 to 3, or of all where there are no more.
        rest: policy of channels 4 and on.

    Example:
        >>> one_pixel = ImageViews(crop_scale=(1e-3, 2e-3))
        >>> same = ImageViews(crop_scale=None, flip_prob=0, jitter_prob=0, grayscale_prob=0)
        >>> x = torch.rand(2, 4, 8, 8)
        >>> (view,) = StackedViews(image=one_pixel, rest=same)(x, 1)
        >>> torch.equal(view[:, :3], x[:, :3]), torch.equal(view[:, 3:], x[:, 3:])
        (False, True)

    Source: S-DIET (2025), section 6.1.1 and appendix C.
    """

    def __init__(self, *, image: ImageViews, rest: ImageViews) -> None:
        super().__init__()
        self.image = image
        self.rest = rest
        self.keeps_pixels_in_place = image.keeps_pixels_in_place and rest.keeps_pixels_in_place
        self.passes_gradient = image.passes_gradient and rest.passes_gradient

    def alter(
        self, views: list[Tensor], generator: Generator | None = None, scene: Scene = BARE
    ) -> list[Tensor]:
        """Draw a view of each group of each of `views` [B, C, H, W], and put them together."""
        image = self.image.alter([x[:, :3] for x in views], generator)
        if views[0].shape[1] <= 3:
            return image
        rest = self.rest.alter([x[:, 3:] for x in views], generator)
        return [torch.cat(pair, dim=1) for pair in zip(image, rest, strict=True)]
