"""Composition of augmentations."""

from collections.abc import Sequence
from itertools import combinations

from torch import Generator, nn

from widefield.core.types import Crop
from widefield.views.base import Augmentation, AugmentContext, Views


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
