"""The contract of every view policy."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from torch import Generator, Tensor, nn


class Scene(NamedTuple):
    """What a policy may need to know beside the images; it says so in its `needs_`."""

    mask: Tensor | None = None
    """Pixels of the planted object, bool [B, 1 or C, H, W]."""
    gradients: Callable[[list[Tensor]], list[Tensor]] | None = None
    """Gradient of the run's loss with respect to each of these views of the batch; leaves the
    encoder and the method as they were."""


BARE = Scene()
"""Images and nothing else."""


class Views(nn.Module, ABC):
    """Draws views of a batch of images; a policy with parameters of its own is a second player.

    Views see images in [0, 1] and return images in that space: normalisation belongs to the
    encoder, so that views, attacks and pictures share one space. In evaluation mode nothing is
    drawn: every view is the image itself.
    """

    needs_mask: bool = False
    """Whether `Scene.mask` must be there."""
    gradient_calls: int = 0
    """How often a draw asks for `Scene.gradients`."""
    keeps_pixels_in_place: bool = True
    """Whether a pixel of a view shows what the same pixel of the image shows."""
    come_in_pairs: bool = False
    """Whether views 1 and 2, 3 and 4 and so on belong together and one alone says half of it."""
    passes_gradient: bool = True
    """Whether a gradient flows through it, back to a policy before it."""
    value_range: tuple[float, float] = (0.0, 1.0)
    """Least and greatest value in a view; infinite where nothing bounds them."""

    def forward(
        self, x: Tensor, count: int, generator: Generator | None = None, scene: Scene = BARE
    ) -> list[Tensor]:
        """Draw `count` views of `x` [B, C, H, W] jointly; `generator` lives on x's device."""
        if not self.training:
            return [x] * count
        return self.alter([x] * count, generator, scene)

    @abstractmethod
    def alter(
        self, views: list[Tensor], generator: Generator | None = None, scene: Scene = BARE
    ) -> list[Tensor]:
        """Change `views` of one batch, each [B, C, H, W], jointly; they are not overwritten."""
