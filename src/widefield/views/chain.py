"""Compositions: one augmentation after the other, or each of its own channels."""

from collections.abc import Sequence
from itertools import combinations
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Generator, Tensor, nn

from widefield.core.batch import checked
from widefield.core.types import Crop
from widefield.views.base import Augmentation, AugmentContext, Views
from widefield.views.image import ImageAugmentation


class Chain(Augmentation):
    """Augmentations applied from left to right.

    Args:
        parts: name, for messages, and augmentation of each part.

    Raises:
        ValueError: a part cannot precede another; the message has the reason and the remedy.

    Example:
        >>> from widefield.views import build_views
        >>> [type(part).__name__ for part in build_views("crop+noise").parts]
        ['ImageAugmentation', 'Noise']
    """

    def __init__(self, parts: Sequence[tuple[str, Augmentation]]) -> None:
        super().__init__()
        for (name, part), (second_name, second) in combinations(parts, 2):
            reason = _order_error(part, second)
            if reason is not None:
                raise ValueError(f"views {name!r} cannot come before {second_name!r}: {reason}")
        self.names = [name for name, _ in parts]
        augmentations = [part for _, part in parts]
        self.parts = nn.ModuleList(augmentations)
        self.needs_mask = any(part.needs_mask for part in augmentations)
        self.gradient_calls = sum(part.gradient_calls for part in augmentations)
        self.pixel_aligned = all(part.pixel_aligned for part in augmentations)
        self.complementary_pairs = any(part.complementary_pairs for part in augmentations)
        self.passes_gradient = all(part.passes_gradient for part in augmentations)
        self.value_range = augmentations[-1].value_range
        self.any_input_range = augmentations[0].any_input_range

    @property
    def crop(self) -> Crop | None:
        """The random crop of the first part."""
        first = self.parts[0]
        assert isinstance(first, Augmentation)
        return first.crop

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Change `views` [B, C, H, W] by each part in turn."""
        for part in self.parts:
            assert isinstance(part, Augmentation)
            views = part.augment(views, generator, context)
            context = context._replace(crops=())  # another crop is one of its own
        return views


def _order_error(part: Augmentation, second: Augmentation) -> str | None:
    """Return the reason why `second` cannot follow `part`; None if it can."""
    if second.needs_mask and not part.pixel_aligned:
        return "it moves pixels, and the planted object would no longer be where its mask is"
    if part.gradient_calls:
        return "the attack raises the loss of the views it returns: put it last"
    if part.value_range != (0.0, 1.0) and not second.any_input_range:
        return "its views leave [0, 1]: put it last"
    if not second.passes_gradient and any(p.requires_grad for p in part.parameters()):
        return "no gradient would come back to the views that learn: put them last"
    return None


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
