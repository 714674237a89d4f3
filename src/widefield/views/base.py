"""Base classes of augmentations and their settings."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor, nn

from widefield.core.batch import Positive, check_examples, check_number
from widefield.core.names import plain_attributes
from widefield.core.types import Crop


class AugmentContext(NamedTuple):
    """Inputs of an augmentation other than the images; its attributes declare which it needs.

    Example:
        >>> AugmentContext(mask=torch.ones(2, 1, 8, 8, dtype=torch.bool)).gradients is None
        True
    """

    mask: Tensor | None = None
    """Pixels of the planted object, bool [B, 1 or C, H, W]."""
    gradients: Callable[[list[Tensor]], list[Tensor]] | None = None
    """Function from views of the batch to the gradient of the run's loss with respect to each; it
    does not change encoder and method."""
    crops: tuple[Tensor, ...] = ()
    """The images after the random crop that the views begin with, one for each view, [B, C, H, W];
    empty if the views crop."""


NO_CONTEXT = AugmentContext()
"""Context without mask and gradients."""

Views = list[Tensor]
"""Views of one batch, each [B, C, H, W]."""


class Augmentation(nn.Module, ABC):
    """Base class of augmentations, which sample views of a batch of images.

    Images and views are in [0, 1]; the encoder normalizes them. An augmentation with parameters is
    trained as an adversary of the encoder. In evaluation mode every view is the image itself.

    Example:
        >>> import torch
        >>> class Darker(Augmentation):
        ...     def augment(self, views, generator, context):
        ...         return [view / 2 for view in views]
        >>> (view,) = Darker()(torch.ones(2, 3, 8, 8), 1)
        >>> float(view.max())
        0.5
    """

    needs_mask: bool = False
    """Whether `AugmentContext.mask` must be given."""
    gradient_calls: int = 0
    """Number of calls of `AugmentContext.gradients` for a batch."""
    pixel_aligned: bool = True
    """Whether a pixel of a view corresponds to the same pixel of the image."""
    complementary_pairs: bool = False
    """Whether views 1 and 2, 3 and 4 and so on are complementary halves of the image."""
    passes_gradient: bool = True
    """Whether it is differentiable, so that an augmentation before it gets a gradient."""
    value_range: tuple[float, float] = (0.0, 1.0)
    """Minimum and maximum value of a view; infinite without a bound."""
    any_input_range: bool = False
    """Whether its inputs may be outside [0, 1]."""
    lr: float | None = None
    """Learning rate of its parameters, if it has any."""

    @property
    def crop(self) -> Crop | None:
        """The random crop that it begins with, which `AugmentContext.crops` may replace."""
        return None

    if TYPE_CHECKING:

        def __call__(
            self,
            x: Tensor,
            count: int,
            generator: Generator | None = None,
            context: AugmentContext = NO_CONTEXT,
        ) -> Views: ...

    def extra_repr(self) -> str:
        return plain_attributes(self)

    def forward(
        self,
        x: Tensor,
        count: int,
        generator: Generator | None = None,
        context: AugmentContext = NO_CONTEXT,
    ) -> Views:
        """Sample views of a batch jointly.

        Args:
            x: images [B, C, H, W] in [0, 1].
            count: number of views of each image.
            generator: random numbers, on the device of `x`; by default torch's global generator.
            context: mask and gradients, for augmentations that need them.

        Returns:
            `count` views, each [B, C, H, W].

        Raises:
            ValueError: `x` are no such images, or the context lacks what the views need.
        """
        check_number("count", Positive, count)
        check_examples(x, limits=None if self.any_input_range else (0, 1))
        if not self.training:
            return [x] * count
        self._check_context(x, context)
        return self.augment(list(context.crops) or [x] * count, generator, context)

    def _check_context(self, x: Tensor, context: AugmentContext) -> None:
        """Check that the context has what these views need."""
        mask = context.mask
        if self.needs_mask:
            if mask is None:
                raise ValueError(
                    "these views need to know where the planted object is: give "
                    "AugmentContext(mask=...), bool [B, 1 or C, H, W]"
                )
            sizes = {(len(x), channels, *x.shape[2:]) for channels in (1, x.shape[1])}
            if (
                not isinstance(mask, Tensor)
                or mask.dtype != torch.bool
                or tuple(mask.shape) not in sizes
            ):
                raise ValueError(
                    f"the mask does not fit images of shape {list(x.shape)}: give a bool tensor "
                    "[B, 1 or C, H, W]"
                )
        if self.gradient_calls and not callable(context.gradients):
            raise ValueError(
                "these views follow the gradient of the loss: give AugmentContext(gradients=...), "
                "a function from views to the gradient of each"
            )

    @abstractmethod
    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Return augmented copies of the `views` of one batch, each [B, C, H, W]."""


def trained_parameters(views: Augmentation) -> list[tuple[nn.Parameter, float]]:
    """Return the trained parameters of `views`, each with its learning rate.

    Example:
        >>> from widefield.views import build_views
        >>> [len(trained_parameters(build_views(name))) for name in ("expert", "viewmaker")]
        [0, 46]
    """
    parts = [part for part in views.modules() if isinstance(part, Augmentation)]
    return [(p, part.lr) for part in parts if part.lr is not None for p in part.parameters()]
