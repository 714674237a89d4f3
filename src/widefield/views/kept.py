"""Views that leave the last channels of the images as they are."""

from typing import Annotated

import torch
from annotated_types import Ge
from torch import Generator, Tensor

from widefield.core.batch import checked
from widefield.views.base import Augmentation, AugmentContext, Views


class KeepChannels(Augmentation):
    """An augmentation of all channels but the last `count`, which are those of the images.

    The other channels get the same views as images without the last ones.

    Args:
        part: augmentation of the other channels.
        count: number of channels to keep.

    Example:
        >>> from widefield.views import build_views
        >>> x = torch.rand(2, 5, 8, 8)
        >>> (view,) = KeepChannels(build_views("expert"), 2)(x, 1)
        >>> torch.equal(view[:, :3], x[:, :3]), torch.equal(view[:, 3:], x[:, 3:])
        (False, True)

    Source: RandBit in Chen, Luo & Li (2021), section 4.
    """

    @checked
    def __init__(self, part: Augmentation, count: Annotated[int, Ge(0)]) -> None:
        super().__init__()
        self.part, self.count = part, count
        self.needs_mask = part.needs_mask
        self.gradient_calls = part.gradient_calls
        self.pixel_aligned = part.pixel_aligned
        self.complementary_pairs = part.complementary_pairs
        self.passes_gradient = part.passes_gradient
        self.value_range = part.value_range
        self.any_input_range = part.any_input_range

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Augment the first channels of `views` [B, C, H, W] and append the others again."""
        first = views[0].shape[1] - self.count
        kept = [x[:, first:] for x in views]

        def whole(parts: list[Tensor]) -> list[Tensor]:
            return [torch.cat(channels, dim=1) for channels in zip(parts, kept, strict=True)]

        def gradients(parts: list[Tensor]) -> list[Tensor]:
            assert context.gradients is not None
            return [gradient[:, :first] for gradient in context.gradients(whole(parts))]

        inner = AugmentContext(
            mask=None if context.mask is None else context.mask[:, :first],  # 1 or C channels
            gradients=None if context.gradients is None else gradients,
        )
        return whole(self.part.augment([x[:, :first] for x in views], generator, inner))
